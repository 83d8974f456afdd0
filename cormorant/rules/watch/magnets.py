"""What does a magnet link name? Its infohash, as 40 hexadecimal digits however it is written."""

from __future__ import annotations

import base64
import re

_HASH = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_BTIH = re.compile(r"[?&]xt(?:\.\d+)?=urn(?::|%3A)btih(?::|%3A)([0-9A-Za-z]{32,40})(?![0-9A-Za-z])", re.IGNORECASE)
_BTMH = re.compile(r"[?&]xt(?:\.\d+)?=urn(?::|%3A)btmh(?::|%3A)1220([0-9A-Fa-f]{64})(?![0-9A-Za-z])", re.IGNORECASE)
_BASE32_LENGTH = 32


def read_infohash(text: str | None) -> str | None:
    """An infohash in its usual spelling; None when it is none.

    >>> read_infohash("38C747C92231B893C6C00CDD8C1E32F6547E21B0"), read_infohash("(removed)")
    ('38c747c92231b893c6c00cdd8c1e32f6547e21b0', None)
    """
    text = (text or "").strip()
    if len(text) == _BASE32_LENGTH:
        try:
            return base64.b32decode(text.upper()).hex()
        except ValueError:
            return None
    return text.lower() if _HASH.fullmatch(text) else None


def infohash_of_magnet(link: str) -> str | None:
    """The infohash that a magnet link names; None when it names none.

    >>> infohash_of_magnet("magnet:?dn=x&xt=urn:btih:VU2QYN66WU7FTPXSG3TFDRXW6KTEBPBF")
    'ad350c37deb53e59bef236e651c6f6f2a640bc25'
    """
    found = _BTIH.search(link)
    return read_infohash(found[1]) if found else None


def infohash_v2_of_magnet(link: str) -> str | None:
    """The infohash of version 2 that a magnet link names, alone or beside the other; None when it names none.

    >>> infohash_v2_of_magnet("magnet:?xt=urn:btmh:1220" + "AB" * 32) == "ab" * 32
    True
    """
    found = _BTMH.search(link)
    return found[1].lower() if found else None

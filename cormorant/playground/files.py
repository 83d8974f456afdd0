"""What does a download of the playground hold? A whole torrent or NZB of something that does not exist."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from html import escape
from typing import Any, Final

from cormorant.playground.catalogue import PlayedRelease

__all__ = ["infohash_of", "nzb_of", "torrent_of"]

_PIECES_MAX: Final = 64
_PIECE_BYTES_MIN: Final = 2**18
_SEGMENTS_MAX: Final = 200
_SEGMENT_BYTES: Final = 716_800


@lru_cache(maxsize=2_000)
def infohash_of(release: PlayedRelease) -> str:
    """What the torrent is known by."""
    return hashlib.sha1(_bencoded(_info(release)), usedforsecurity=False).hexdigest()


def torrent_of(release: PlayedRelease, *, tracker: str) -> bytes:
    """The torrent file. Its pieces are as many as its size asks for, and the hash of nothing."""
    return _bencoded({b"announce": tracker.encode(), b"created by": b"playground", b"info": _info(release)})


def _info(release: PlayedRelease) -> dict[bytes, Any]:
    piece_bytes = _PIECE_BYTES_MIN
    while piece_bytes * _PIECES_MAX < release.size_bytes:
        piece_bytes *= 2
    count = -(-release.size_bytes // piece_bytes)
    return {
        b"length": release.size_bytes,
        b"name": release.title.encode(),
        b"piece length": piece_bytes,
        b"pieces": hashlib.shake_128(release.title.encode()).digest(20 * count),
        b"private": 1,
    }


def _bencoded(value: int | bytes | dict[bytes, Any]) -> bytes:
    """Invariant: keys come in order, as the format wants."""
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    pairs = (_bencoded(key) + _bencoded(value[key]) for key in sorted(value))
    return b"d" + b"".join(pairs) + b"e"


def nzb_of(release: PlayedRelease) -> bytes:
    """The NZB file."""
    count = min(_SEGMENTS_MAX, -(-release.size_bytes // _SEGMENT_BYTES))
    size, name = release.size_bytes // count, escape(release.title)
    segments = "".join(
        f'<segment bytes="{size}" number="{number}">{number}.{release.number}@playground.invalid</segment>'
        for number in range(1, count + 1)
    )
    posted = int(release.published.timestamp())
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE nzb PUBLIC "-//newzBin//DTD NZB 1.1//EN" "http://www.newzbin.com/DTD/nzb/nzb-1.1.dtd">\n'
        '<nzb xmlns="http://www.newzbin.com/DTD/2003/nzb">'
        f'<file poster="nobody@playground.invalid" date="{posted}" subject="{name} (1/{count})">'
        f"<groups><group>alt.binaries.playground</group></groups><segments>{segments}</segments></file></nzb>"
    ).encode()

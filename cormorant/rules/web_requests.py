"""Is a request one that no honest program sends? Paths that climb, lengths that disagree: refused before anybody reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from cormorant.rules.networks import forwarded_host

__all__ = ["body_bytes", "framing_problem", "headers_of", "path_problem"]

PATH_BYTES_MAX: Final = 4_000
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_CONTROL_MAX: Final = 0x1F
_DELETE: Final = 0x7F


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """Headers by lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


def path_problem(raw: bytes) -> str | None:
    """What is wrong with a path as it was sent.

    >>> path_problem(b"/gate/red/api"), path_problem(b"/api/%2e%2e/etc"), path_problem(b"/a//b")
    (None, 'the path climbs', 'the path has an empty part')
    """
    if len(raw) > PATH_BYTES_MAX:
        return f"the path is longer than {PATH_BYTES_MAX} bytes"
    path = unquote_to_bytes(raw)
    if not path.startswith(b"/"):
        return "the path does not begin with /"
    if b"\\" in path or any(byte <= _CONTROL_MAX or byte == _DELETE for byte in path):
        return "the path holds a control character or a backslash"
    try:
        path.decode()
    except UnicodeDecodeError:
        return "the path is not UTF-8"
    parts = path[1:].split(b"/")
    if any(part in {b".", b".."} for part in parts):
        return "the path climbs"
    return "the path has an empty part" if b"" in parts[:-1] else None


def framing_problem(headers: Mapping[str, list[str]]) -> str | None:
    """Whether two programs could disagree where the request ends, or whom it is for.

    >>> framing_problem({"host": ["a"], "content-length": ["4"], "transfer-encoding": ["chunked"]})
    'it has both Content-Length and Transfer-Encoding'
    """
    lengths, codings = headers.get("content-length", []), headers.get("transfer-encoding", [])
    if lengths and codings:
        return "it has both Content-Length and Transfer-Encoding"
    if len(set(lengths)) > 1 or any(not _DIGITS.fullmatch(length) for length in lengths):
        return "its Content-Length is not one number"
    if any(coding.strip().lower() != "chunked" for coding in codings):
        return "its Transfer-Encoding is not chunked"
    hosts = headers.get("host", [])
    if len(hosts) > 1 or (hosts and hosts[0] and forwarded_host(hosts[0]) != hosts[0]):
        return "its Host is not the name of one"
    return None


def body_bytes(headers: Mapping[str, list[str]]) -> int | None:
    """How long the body is as the request says; None: it does not say.

    >>> body_bytes({}), body_bytes({"content-length": ["12"]}), body_bytes({"transfer-encoding": ["chunked"]})
    (0, 12, None)
    """
    if "transfer-encoding" in headers:
        return None
    return int(headers.get("content-length", ["0"])[0])

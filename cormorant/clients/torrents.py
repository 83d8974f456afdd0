"""Is this really a torrent, and which? Bencode is read without recursion, so that no depth can end the process."""

from __future__ import annotations

import hashlib
from typing import Final

from attrs import frozen

DEPTH_MAX: Final = 64
_DIGITS_MAX: Final = 12
_NAME_MAX: Final = 500


class NotATorrent(Exception):
    """The bytes are no torrent, and why."""


@frozen
class Torrent:
    """What identifies a torrent: the infohash of version 1 where there is one, else that of version 2."""

    infohash: str
    name: str
    infohash_v2: str | None = None
    """That of version 2 where there is one."""


def read_torrent(body: bytes) -> Torrent:
    """What a torrent file is. Raises `NotATorrent` unless it is a whole bencoded dictionary with an `info` in it."""
    if not body.startswith(b"d"):
        raise NotATorrent("it does not begin as a torrent does")
    outer, end = _dictionary(body, 0)
    if body[end:].strip():
        raise NotATorrent("something follows its end")
    span = outer.get(b"info")
    if span is None or body[span[0] : span[0] + 1] != b"d":
        raise NotATorrent("it has no info")
    info = body[span[0] : span[1]]
    inner, _ = _dictionary(info, 0)
    if b"pieces" not in inner and b"file tree" not in inner:
        raise NotATorrent("its info names no pieces")
    second = hashlib.sha256(info).hexdigest() if b"file tree" in inner else None
    first = hashlib.sha1(info, usedforsecurity=False).hexdigest() if second is None or b"pieces" in inner else second
    return Torrent(first, _name(info, inner), second)


def _name(info: bytes, inner: dict[bytes, tuple[int, int]]) -> str:
    for key in (b"name.utf-8", b"name"):
        if key in inner:
            start, end = inner[key]
            return info[start:end].partition(b":")[2].decode("utf-8", "replace")[:_NAME_MAX]
    return ""


def _dictionary(body: bytes, start: int) -> tuple[dict[bytes, tuple[int, int]], int]:
    """Where each value of the dictionary at `start` begins and ends, and where the dictionary ends."""
    found: dict[bytes, tuple[int, int]] = {}
    at = start + 1
    while body[at : at + 1] != b"e":
        text, at = _string(body, at)
        end = _skip(body, at)
        found[text] = (at, end)
        at = end
    return found, at + 1


def _skip(body: bytes, start: int) -> int:
    """The end of the value at `start`, however deep it is nested."""
    depth, at = 0, start
    while True:
        mark = body[at : at + 1]
        if mark in {b"d", b"l"}:
            depth, at = depth + 1, at + 1
        elif mark == b"e" and depth:
            depth, at = depth - 1, at + 1
        elif mark == b"i":
            at = _integer_end(body, at)
        else:
            _, at = _string(body, at)
        if depth > DEPTH_MAX:
            raise NotATorrent("it is nested too deep")
        if not depth:
            return at


def _integer_end(body: bytes, start: int) -> int:
    end = body.find(b"e", start, start + 24)
    digits = body[start + 1 : end].removeprefix(b"-")
    if end < 0 or not digits.isdigit():
        raise NotATorrent("a number in it is none")
    return end + 1


def _string(body: bytes, start: int) -> tuple[bytes, int]:
    colon = body.find(b":", start, start + _DIGITS_MAX)
    digits = body[start:colon]
    if colon < 0 or not digits.isdigit():
        raise NotATorrent("it is cut off, or no bencode")
    end = colon + 1 + int(digits)
    if end > len(body):
        raise NotATorrent("it is cut off")
    return body[colon + 1 : end], end

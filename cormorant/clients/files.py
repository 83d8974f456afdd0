"""What a link led to: torrent, NZB, magnet or none."""

from __future__ import annotations

import hashlib
import io
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from attrs import field, frozen
from lxml import etree

from cormorant.clients.http.xml_documents import refuse_entities
from cormorant.clients.torznab_replies import StatedError, local_name, read_reply
from cormorant.rules.search.outcomes import SourceRefused, SourceUnavailable
from cormorant.rules.watch.handovers import infohash_of_magnet

_NZB_START: Final = 4_096
_NAME_MAX: Final = 500


@frozen(kw_only=True)
class Download:
    """What a link led to: a checked torrent or NZB, or a magnet, which has no body."""

    kind: Literal["torrent", "nzb", "magnet"]
    body: bytes = field(default=b"", repr=lambda body: f"<{len(body)} bytes>")
    infohash: str | None = None
    name: str | None = None
    magnet: str | None = field(default=None, repr=False)


def parse_download(body: bytes) -> Download | StatedError:
    """What was fetched, checked. Raises `SourceRefused` for all that is no torrent, NZB or magnet."""
    start = body[:_NZB_START].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise SourceUnavailable("what it gave is empty")
    if start.startswith(b"magnet:?"):
        return download_from_magnet(start.split()[0].decode("ascii", "replace"))
    try:
        if body.startswith(b"d"):
            torrent = read_torrent(body)
            return Download(kind="torrent", body=body, infohash=torrent.infohash, name=torrent.name or None)
        if start.startswith(b"<") and b"<nzb" in start:
            return Download(kind="nzb", body=body, name=read_nzb(body) or None)
    except (NotATorrent, NotAnNzb) as error:
        raise SourceRefused(f"what it gave is no usable torrent or NZB: {error}") from error
    return _stated_error(body)


def _stated_error(body: bytes) -> StatedError:
    try:
        reply = read_reply(body)
    except SourceUnavailable as error:
        raise SourceRefused(f"what it gave is neither a torrent nor an NZB: {error}") from error
    if isinstance(reply, StatedError):
        return reply
    raise SourceRefused("what it gave is some other document and neither a torrent nor an NZB")


def download_from_magnet(link: str) -> Download:
    """A magnet as what was fetched: there is nothing to check in it."""
    try:
        names = parse_qs(urlsplit(link).query, max_num_fields=500).get("dn", [""])
    except ValueError:
        names = [""]
    return Download(kind="magnet", magnet=link, infohash=infohash_of_magnet(link), name=names[0][:_NAME_MAX] or None)


DEPTH_MAX: Final = 64
_DIGITS_MAX: Final = 12


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


class NotAnNzb(Exception):
    """The bytes are no NZB, and why."""


def read_nzb(body: bytes) -> str:
    """The name that an NZB gives itself, or nothing. Raises `NotAnNzb` unless it is one with a segment to fetch."""
    refuse_entities(body)
    segments, name, root = 0, "", ""
    try:
        for event, element in etree.iterparse(
            io.BytesIO(body.lstrip()),
            events=("start", "end"),
            resolve_entities=False,
            no_network=True,
            huge_tree=False,
            load_dtd=False,
        ):
            kind = local_name(element)
            if event == "start":
                root = root or kind
                if root != "nzb":
                    raise NotAnNzb(f"it is a <{root[:40]}>")
                continue
            segments += kind == "segment" and bool(element.text)
            if kind == "meta" and (element.get("type") or "").lower() in {"name", "title"}:
                name = name or (element.text or "").strip()
            if kind == "file":
                element.clear()
    except etree.XMLSyntaxError as error:
        raise NotAnNzb("it is cut off, or no XML") from error
    if not segments:
        raise NotAnNzb("it names nothing to fetch")
    return name[:_NAME_MAX]

"""What did a link lead to: a torrent, an NZB, a magnet, or something that must not be handed over?"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

from attrs import field, frozen

from cormorant.clients.nzbs import NotAnNzb, read_nzb
from cormorant.clients.torrents import NotATorrent, read_torrent
from cormorant.clients.torznab_replies import StatedError, read_reply
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

"""Parcels of every kind, with titles as they come."""

from __future__ import annotations

from typing import Any

from cormorant.rules.watch.handovers import Parcel, ParcelKind

TITLES = {
    "slashes": "../../etc/AC/DC \\ Back..in..Black",
    "emoji": "🎸 Sigur Rós — ( ) 👩‍👩‍👧",
    "300 characters": "é" * 300,
    "nothing": "...",
}
INFO = b"d6:lengthi1e4:name1:x12:piece lengthi16384e6:pieces20:aaaaaaaaaaaaaaaaaaaae"
TORRENT = b"d4:info" + INFO + b"e"
HYBRID_INFO = (
    b"d9:file treede6:lengthi1e12:meta versioni2e4:name1:x12:piece lengthi16384e6:pieces20:aaaaaaaaaaaaaaaaaaaae"
)
HYBRID = b"d4:info" + HYBRID_INFO + b"e"
INFOHASH = "ad350c37deb53e59bef236e651c6f6f2a640bc25"
MAGNET = f"magnet:?xt=urn:btih:{INFOHASH}&dn=x"
NZB = b'<?xml version="1.0"?><nzb><file subject="x"><segments><segment number="1">a@b</segment></segments></file></nzb>'
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"


def torrent_number(number: int) -> bytes:
    """A torrent unlike that of any other number."""
    return TORRENT.replace(b"lengthi1e", b"lengthi%de" % (number + 2))


def parcel(kind: ParcelKind = ParcelKind.TORRENT, **fields: Any) -> Parcel:
    bodies = {ParcelKind.TORRENT: TORRENT, ParcelKind.NZB: NZB}
    links = {ParcelKind.MAGNET: MAGNET, ParcelKind.URL: "https://example.org/episode.mp3"}
    usual: dict[str, Any] = {
        "key": "want-7-1",
        "title": "A title",
        "kind": kind,
        "body": bodies.get(kind),
        "link": links.get(kind),
    }
    return Parcel(**usual | fields)

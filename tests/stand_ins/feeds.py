"""A host of feeds that grow at equal intervals, and of pages that are no feeds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import define
from typing_extensions import override

from cormorant.playground.feed_site import FeedStandIn, Form, PlayedEntry, PlayedFeed
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, remember

OPENED_AT = datetime(2026, 1, 1, tzinfo=UTC)
BOMB = (
    b'<!DOCTYPE rss [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b"<rss><channel><title>&b;</title></channel></rss>"
)
PAGES = {
    "/gone.xml": as_html("not now", status=410),
    "/members.xml": as_html("not now", status=401),
    "/ill.xml": as_html("not now", status=503),
    "/busy.xml": StandInResponse(status=429, headers={"Retry-After": "120"}, body=b"slow down"),
    "/page.html": as_html("no feed"),
    "/bomb.xml": StandInResponse(kind="text/html", body=BOMB),
    "/endless.xml": StandInResponse(kind="text/xml", body=b"<rss><channel>" + b" " * 11_000_000),
}


@define
class Clock:
    """The time of the host, in seconds after its opening."""

    now_s: float = 0.0

    def now(self) -> datetime:
        return OPENED_AT + timedelta(seconds=self.now_s)

    def stopwatch(self) -> float:
        return 0.0


def growing(
    title: str, *, every_s: float = 3_600.0, form: Form = "rss", begins_with: int = 3, shown: int = 10
) -> PlayedFeed:
    """A feed with a few entries at the opening of its host, and 20 that come later, at equal intervals."""
    slug = title.lower().replace(" ", "-")
    entries = [
        PlayedEntry(
            slug=f"{slug}-{number}",
            title=f"{title} {number}",
            at=OPENED_AT + timedelta(seconds=every_s * (number - begins_with + 1)),
            size_bytes=1_000 + number,
        )
        for number in range(begins_with + 20)
    ]
    return PlayedFeed(title=title, form=form, shown=shown, entries=tuple(entries))


class OddFeedHost(FeedStandIn):
    """The host."""

    @override
    async def answer(self, asked: StandInRequest) -> StandInResponse:
        if asked.path not in PAGES:
            return await super().answer(asked)
        remember(self.asked, asked)
        return PAGES[asked.path]


def feed_host(now_s: float = 0.0) -> OddFeedHost:
    """A feed of each form, at a time after the opening."""
    feeds = {
        "/harbour-lights.xml": growing("Harbour Lights"),
        "/field-recordings.xml": growing("Field Recordings", form="atom", every_s=600.0),
        "/slow-news.json": growing("Slow News", form="json", every_s=7_200.0),
    }
    return OddFeedHost(clock=Clock(now_s), feeds=feeds)

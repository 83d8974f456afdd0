"""Fetches a chosen candidate and makes the parcel."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from actors.environment import Environment
from cormorant.clients.files import Download
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import SearchError
from cormorant.rules.search.requests import Result
from cormorant.rules.watch.handovers import Parcel, ParcelKind, infohash_of_magnet, infohash_v2_of_magnet
from cormorant.rules.watch.soulseek import files_of
from cormorant.rules.watch.wants import Want
from cormorant.services.searches import Searches
from storage.watch.wants import Candidate

FEED: Final = "feed:"
"""What the names of feeds begin with where sources are named; no source has such a name."""
MAX_WAIT_S: Final = 20.0
TIMEOUT_S: Final = 60.0
_KINDS: Final = {"torrent": ParcelKind.TORRENT, "nzb": ParcelKind.NZB, "magnet": ParcelKind.MAGNET}


@frozen(kw_only=True)
class ParcelFetcher:
    """Packs candidates."""

    environment: Environment = field(kw_only=False)
    searches: Searches

    async def __call__(self, want: Want, candidate: Candidate, key: str) -> Parcel:
        """The parcel of a candidate. Raises `SourceError`, or `RateLimitWaitError` when its source is closed."""
        result = candidate.result
        if result.protocol == "soulseek":
            return self._files(want, result, key)
        link = result.link or result.magnet or ""
        if result.protocol == "web":
            return Parcel(key=key, title=result.title, kind=ParcelKind.URL, link=link, folder_parts=_parts(want))
        if link.startswith("magnet:"):  # nobody is asked
            return self._parcel(want, result, key, Download(kind="magnet", magnet=link))
        if candidate.source.startswith(FEED):
            return self._parcel(want, result, key, await self.environment.clients.link(link))
        await self.searches.directory.loaded.wait()
        if candidate.source not in self.searches.directory.by_name:
            raise SearchError(
                f"there is no source {candidate.source!r} now; its link goes through its gates or not at all"
            )
        fetched = await self.searches.call(
            candidate.source,
            lambda record: self.environment.clients.download(record, link),
            about=f"download {result.title}",
            max_wait_s=MAX_WAIT_S,
            timeout_s=TIMEOUT_S,
            lane=Lane.GRAB,
            consumer="watches",
        )
        return self._parcel(want, result, key, fetched)

    def _parcel(self, want: Want, result: Result, key: str, fetched: Download) -> Parcel:
        infohash = fetched.infohash or result.infohash
        if fetched.magnet is not None:
            infohash = infohash_of_magnet(fetched.magnet) or infohash_v2_of_magnet(fetched.magnet) or infohash
        return Parcel(
            key=key,
            title=result.title,
            kind=_KINDS[fetched.kind],
            body=fetched.body or None,
            link=fetched.magnet,
            infohash=infohash,
            folder_parts=_parts(want),
        )

    def _files(self, want: Want, result: Result, key: str) -> Parcel:
        username, files = files_of(result)
        return Parcel(
            key=key,
            title=result.title,
            kind=ParcelKind.FILES,
            folder_parts=_parts(want),
            username=username,
            files=files,
        )


def _parts(want: Want) -> dict[str, str]:
    """What folders and names may be made of."""
    watch = want.watch.partition(":")[2]
    parts = {"watch": watch, "feed": watch, "artist": want.artist, "title": want.title}
    return {name: text for name, text in parts.items() if text}

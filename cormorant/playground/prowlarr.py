"""Prowlarr and Jackett: the lists of their indexers, and each indexer as Torznab."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from attrs import define, evolve, field, frozen

from cormorant.playground.arr import MASKED, NOT_FOUND, is_key_right, status_of
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, as_json, as_xml
from cormorant.playground.indexer import Indexer, error

_PROXY: Final = re.compile(r"/(\d{1,6})(/api|/download/.+)")
_PRIVACY: Final = {True: "private", False: "public"}


@frozen(kw_only=True)
class ProwlarrEntry:
    """An indexer as Prowlarr has it."""

    indexer: Indexer
    is_enabled: bool = True
    title: str = ""

    @property
    def name(self) -> str:
        """What it is called there."""
        return self.title or self.indexer.title


@define(eq=False, kw_only=True)
class Prowlarr:
    """A stand-in for Prowlarr. Its indexers are numbered from 1."""

    name: str = "prowlarr"
    key: str
    entries: Sequence[ProwlarrEntry] = field(factory=tuple)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        if asked.path == "/":
            return as_html("Prowlarr, a stand-in.")
        if not is_key_right(asked, self.key):
            return StandInResponse(status=401)
        if asked.path == "/api/v1/system/status":
            return status_of("Prowlarr", "2.3.0.5236")
        if asked.path == "/api/v1/indexer":
            return as_json([self._resource(number, entry) for number, entry in enumerate(self.entries, 1)])
        return await self._proxied(asked)

    async def _proxied(self, asked: StandInRequest) -> StandInResponse:
        found = _PROXY.fullmatch(asked.path)
        if found is None or not 1 <= int(found[1]) <= len(self.entries):
            return NOT_FOUND
        entry = self.entries[int(found[1]) - 1]
        if not entry.is_enabled:
            return error(410, "Indexer is disabled", status=410)
        return await entry.indexer.speak(evolve(asked, path=found[2], base=f"{asked.base}/{found[1]}"))

    def _resource(self, number: int, entry: ProwlarrEntry) -> dict[str, Any]:
        habits = entry.indexer.habits
        return {
            "id": number,
            "name": entry.name,
            "sortName": entry.name.lower(),
            "enable": entry.is_enabled,
            "protocol": "usenet" if habits.kind == "newznab" else "torrent",
            "privacy": _PRIVACY[habits.is_private],
            "supportsRss": True,
            "supportsSearch": True,
            "priority": 25,
            "implementation": "Cardigann",
            "indexerUrls": [f"https://{entry.indexer.name}.invalid/"],
            "fields": [{"order": 0, "name": "apikey", "type": "textbox", "privacy": "apiKey", "value": MASKED}],
            "tags": [],
        }


_RESULTS: Final = re.compile(r"(/api/v2\.0/indexers/([a-z0-9-]{1,60})/results/torznab)(/api|/download/.+|/?)")
ALL: Final = "all"


@define(eq=False, kw_only=True)
class Jackett:
    """A stand-in for Jackett."""

    name: str = "jackett"
    key: str
    indexers: Sequence[Indexer] = field(factory=tuple)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        found = _RESULTS.fullmatch(asked.path)
        if found is None:
            return as_html("Jackett, a stand-in. Please log in.", status=200 if asked.path == "/" else 404)
        if asked.params.get("apikey") != self.key:
            return error(100, "Invalid API Key")
        path, wanted, rest = found.groups()
        if wanted == ALL and asked.params.get("t") == "indexers":
            return as_xml(f"<indexers>{''.join(map(self._listed, self.indexers))}</indexers>")
        for indexer in self.indexers:
            if indexer.name == wanted:
                base = f"{asked.base}{path}"
                return await indexer.speak(evolve(asked, path=rest if len(rest) > 1 else "/api", base=base))
        return error(201, "Indexer is not supported")

    def _listed(self, indexer: Indexer) -> str:
        kind = "private" if indexer.habits.is_private else "public"
        return (
            f'<indexer id="{indexer.name}" configured="true"><title>{escape(indexer.title)}</title>'
            f"<description/><link>https://{indexer.name}.invalid/</link><language>en-US</language><type>{kind}</type></indexer>"
        )

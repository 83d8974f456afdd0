"""Jackett: the list of its indexers, and each of them as Torznab."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

from attrs import define, evolve, field

from cormorant.playground.http import StandInRequest, StandInResponse, as_html, as_xml
from cormorant.playground.indexer import Indexer, error

__all__ = ["Jackett"]

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

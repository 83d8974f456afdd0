"""Caps of sources, requested weekly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, cast

import trio
from attrs import define, field

from actors.environment import Environment
from actors.search.search import Terms
from cormorant.rules.errors import CormorantError
from cormorant.rules.search.caps import DEFAULT_CAPS, dump_caps, load_caps, may_support, merged_caps
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Caps, SearchRequest
from cormorant.services.searches import Searches
from storage.search import sources
from storage.search.sources import SourceRecord

__all__ = ["SourceCaps"]

_FRESH: Final = timedelta(days=7)
"""As long as Sonarr, Radarr and Lidarr keep them."""
_HOLD_S: Final = 10.0
_ASK_S: Final = 20.0
_AGAIN_S: Final = 900.0
"""A source that did not say is asked again after so long; an app may look every minute."""


@define(eq=False, kw_only=True)
class SourceCaps:
    """The abilities of sources, for apps that ask for them."""

    environment: Environment = field(kw_only=False)
    searches: Searches
    _tried_at: dict[int, float] = field(init=False, factory=dict)
    _turns: dict[int, trio.Lock] = field(init=False, factory=dict)

    async def of(self, records: Sequence[SourceRecord], *, consumer: str) -> Caps:
        """What these sources can do, one or together. One that cannot be asked now counts as able to do the usual."""
        found: dict[str, Caps] = {}

        async def look(record: SourceRecord) -> None:
            try:
                found[record.name] = await self._of(record, consumer)
            except CormorantError:
                found[record.name] = DEFAULT_CAPS

        async with trio.open_nursery() as nursery:
            for record in records:
                nursery.start_soon(look, record)
        each = [found[record.name] for record in records]
        return each[0] if len(each) == 1 else merged_caps(each)

    async def may_support(self, record: SourceRecord, categories: Sequence[int]) -> bool:
        """Whether a source may ever have something in these categories, as far as it has said. Nobody is asked."""
        kept = await self.environment.database.read(sources.caps, record.id)
        return kept is None or may_support(load_caps(kept[0]), categories)

    async def _of(self, record: SourceRecord, consumer: str) -> Caps:
        async with self._turns.setdefault(record.id, trio.Lock()):
            kept = await self.environment.database.read(sources.caps, record.id)
            if kept is not None and self.environment.now() - kept[1] < _FRESH:
                return load_caps(kept[0])
            said = await self._ask(record, consumer)
            if said is None:
                return DEFAULT_CAPS if kept is None else load_caps(kept[0])
            now = self.environment.now()
            await self.environment.database.run(sources.set_caps, record.id, dump_caps(said), now=now)
            return said

    async def _ask(self, record: SourceRecord, consumer: str) -> Caps | None:
        ask, now = self.environment.clients.caps, trio.current_time()
        if ask is None or now - self._tried_at.get(record.id, -_AGAIN_S) < _AGAIN_S:
            return None
        self._tried_at[record.id] = now
        terms = Terms(
            priority=Priority.INTERACTIVE,  # a person has just added us to their app
            max_wait_s=_HOLD_S,
            timeout_s=_ASK_S,
            consumer=consumer,
            function=ask,
        )
        has_ended = False
        try:
            [outcome] = await self.searches.outcomes(SearchRequest(), terms, sources=[record.name])
            has_ended = True
        finally:
            if not has_ended:  # the app hung up before the site was asked: that was no try
                self._tried_at.pop(record.id, None)
        said = cast("Caps", outcome.value)
        return said if outcome.is_answer and said.searching else None

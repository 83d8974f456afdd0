"""An invented person who searches."""

from __future__ import annotations

import itertools
from typing import Final

import trio
from attrs import frozen

from cormorant.playground.catalogue import ARTISTS, FILMS, SHOWS
from cormorant.rules.errors import CormorantError
from cormorant.rules.events import PlaygroundSearched
from cormorant.rules.ports import Chance
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED
from supervisors import Service

CONSUMER: Final = "invented person"
_WORDS: Final = (*ARTISTS, *SHOWS, *FILMS)


def _searched(settings: Settings) -> list[str]:
    return [name for name, source in settings.sources.items() if source.kind in SEARCHED]


@frozen(kw_only=True)
class Person:
    """Searches one thing after the other, with a pause between; never two at once. The first few come in a hurry."""

    service: Service
    chance: Chance
    first_after_s: float = 1.0
    hurried: int = 4
    hurried_pause_s: float = 1.0
    pause_s: float = 12.0
    max_wait_s: float = 15.0

    async def live(self) -> None:
        """Search until cancelled."""
        await trio.sleep(self.first_after_s)
        for count in itertools.count():
            await self._search(_WORDS[int(self.chance.random() * len(_WORDS))])
            pause_s = self.hurried_pause_s if count < self.hurried else self.pause_s
            await trio.sleep(pause_s * (0.5 + self.chance.random()))

    async def _search(self, words: str) -> None:
        try:
            search = await self.service.sources.search(
                SearchRequest(query=words),
                sources=_searched(self.service.settings),  # what else was added is for whoever added it
                priority=Priority.INTERACTIVE,
                max_wait_s=self.max_wait_s,
                consumer=CONSUMER,
            )
            async with search:
                outcomes = [outcome async for outcome in search]
        except CormorantError:
            return  # what is wrong with the service is told by itself
        answered = [outcome for outcome in outcomes if outcome.is_answer]
        self.service.emit(
            PlaygroundSearched(
                words=words,
                found=sum(len(outcome.results) for outcome in answered),
                answered=tuple(sorted(outcome.source for outcome in answered)),
                not_answered=tuple(sorted(outcome.source for outcome in outcomes if not outcome.is_answer)),
            )
        )

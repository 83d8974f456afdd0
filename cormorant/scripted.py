"""Sources that answer as a test tells them, and remember when they were asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio
from attrs import define, field

from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceUnavailable
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.sources import SourceSettings
from storage.search.sources import SourceRecord

__all__ = ["BROKEN", "BUSY", "TIMEOUT", "ScriptedSource", "busy", "named_sources", "scripted"]

Step = Sequence[str] | BaseException | Callable[[], Any]
"""Titles that are found, an error that is raised, or an async function that does something."""


def busy(retry_after_s: float | None = None) -> SourceLimited:
    """The source says that it is asked too fast."""
    return SourceLimited("asked too fast", retry_after_s=retry_after_s)


BUSY: Final = busy()
BROKEN: Final = SourceUnavailable("it is broken")


async def TIMEOUT() -> None:  # noqa: N802 - reads as a constant in a script
    """It never answers."""
    await trio.sleep_forever()


@define(eq=False, init=False)
class ScriptedSource:
    """Answers with one step after the other; the last one holds for ever. Without a script it finds nothing."""

    script: list[Step]
    takes_s: float
    asked_at: list[float] = field(factory=list)
    requests: list[SearchRequest] = field(factory=list)
    in_flight: int = 0
    in_flight_most: int = 0

    def __init__(self, *script: Step, takes_s: float = 0.0) -> None:
        self.script = list(script)
        self.takes_s = takes_s
        self.asked_at = []
        self.requests = []
        self.in_flight = self.in_flight_most = 0

    async def __call__(self, source: SourceRecord, request: SearchRequest) -> SearchPage:
        """Be asked."""
        self.asked_at.append(round(trio.current_time(), 6))
        self.requests.append(request)
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            await trio.sleep(self.takes_s)
            return await self._answer(source)
        finally:
            self.in_flight -= 1

    async def _answer(self, source: SourceRecord) -> SearchPage:
        step: Step = (self.script.pop(0) if len(self.script) > 1 else self.script[0]) if self.script else ()
        if isinstance(step, SourceError):
            raise type(step)(str(step), retry_after_s=step.retry_after_s)
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            await step()
            return SearchPage(results=())
        return SearchPage(results=tuple(_result(title, source.name) for title in step))


def _result(title: str, source: str) -> Result:
    return Result(title=title, guid=f"{source}:{title}", link=f"http://{source}.test/{title}", protocol="torrent")


def scripted(sources: Mapping[str, ScriptedSource]) -> Callable[[SourceRecord, SearchRequest], Any]:
    """What `open_service(ask=…)` takes: each source by its name."""

    async def ask(record: SourceRecord, request: SearchRequest) -> SearchPage:
        return await sources[record.name](record, request)

    return ask


def named_sources(*names: str, **limits: Any) -> dict[str, SourceSettings]:
    """Settings of sources that differ in name alone, for `settings(sources=…)`."""
    return {name: SourceSettings(url=f"http://{name}.test/api", **limits) for name in names}

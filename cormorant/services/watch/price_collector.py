"""Job handler of kind collect."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from actors.environment import Environment
from actors.jobs.handler import JobContext
from cormorant.rules.errors import CommitUnknown
from cormorant.rules.jobs.verdicts import Cancel, Fail, Retry, Snooze
from cormorant.rules.search.outcomes import CredentialsRefused, Outcome, OutcomeStatus, SourceLimited
from cormorant.rules.search.priorities import Priority
from cormorant.rules.settings.sources import PRICE_KIND
from cormorant.rules.watch.prices import (
    PriceAlert,
    PriceCollected,
    PriceLeftOut,
    PriceValued,
    PriceWatch,
    point_of,
    problems_of,
    request_for,
)
from cormorant.services.durable_search import PATIENCE_S, SNOOZE_S_MIN, wait_of
from cormorant.services.searches import Searches
from storage.search.sources import UnknownSource
from storage.watch import prices, watches
from storage.watch.prices import PRICE, Collected

REASONS_MAX = 5
"""So many different reasons are told why items of an answer are no prices."""


@frozen(kw_only=True)
class PriceCollector:
    """The handler of the kind `collect`."""

    environment: Environment = field(kw_only=False)
    searches: Searches

    async def __call__(self, context: JobContext) -> None:
        """Ask the source, unless it was asked lately, write down what it states, and value the intake anew."""
        intake_id, source, by_hand = _read(context.payload)
        intake = await context.transaction(watches.by_id, PRICE, intake_id)
        if intake is None:
            raise Cancel("it is no longer watched")
        if intake.idle_because and not by_hand:
            raise Cancel(intake.idle_because)
        outcome = await self._ask(intake, source)
        _decide(outcome)
        now = self.environment.now()
        found = [point_of(intake, source, result, now=now) for result in outcome.results]
        points = [point for point in found if point is not None]
        try:
            done = await context.transaction(prices.collect, intake_id, points, now=now)
        except CommitUnknown:
            # Another attempt of the job would not tell an alert that is written already.
            done = await context.transaction(prices.collect_again, intake_id, points, now=now)
        if done is not None:
            self._tell_left_out(intake, source, problems_of(outcome.results))
            self._tell(done, source, len(points))

    async def _ask(self, intake: PriceWatch, source: str) -> Outcome:
        await self.searches.directory.loaded.wait()
        record = self.searches.directory.record_of(source)
        if record is not None and record.kind != PRICE_KIND:
            raise Fail(f'{source} is of kind {record.kind} and states no prices; write kind = "{PRICE_KIND}"')
        try:
            search = await self.searches.search(
                request_for(intake),
                sources=[source],
                priority=Priority.BACKGROUND,
                max_wait_s=PATIENCE_S,
                consumer="prices",
            )
        except UnknownSource as unknown:
            raise Fail(str(unknown)) from None
        async with search:
            [outcome] = [outcome async for outcome in search]
        return outcome

    def _tell_left_out(self, intake: PriceWatch, source: str, problems: list[str]) -> None:
        if problems:
            why = "; ".join(list(dict.fromkeys(problems))[:REASONS_MAX])
            self.environment.emit(PriceLeftOut(price=intake.name, source=source, items=len(problems), why=why))

    def _tell(self, done: Collected, source: str, points: int) -> None:
        name, value, alert = done.intake.name, done.valuation, done.alert
        self.environment.emit(PriceCollected(price=name, source=source, points=points, written=done.written))
        if value is not None and done.has_changed:
            self.environment.emit(
                PriceValued(
                    price=name,
                    cents=value.cents,
                    currency=value.currency,
                    points=value.points,
                    match=value.match.name.lower(),
                )
            )
        if alert is not None:
            self.environment.emit(
                PriceAlert(
                    price=name,
                    side=alert.side.value,
                    limit_cents=alert.limit_cents,
                    cents=alert.cents,
                    currency=alert.currency,
                )
            )


def _decide(outcome: Outcome) -> None:
    """An answer goes on; a source that is closed is asked when it opens; one that refuses or is disabled is not."""
    error = outcome.error
    if outcome.is_answer:
        return
    if outcome.status is OutcomeStatus.REFUSED or isinstance(error, CredentialsRefused):
        raise Fail(f"{outcome.source}: {error}")
    if outcome.status is OutcomeStatus.FAILED and not isinstance(error, SourceLimited):
        raise Retry(f"{outcome.source}: {error}")
    raise Snooze(max(SNOOZE_S_MIN, wait_of(outcome)))


def _read(payload: Any) -> tuple[int, str, bool]:
    intake_id = payload.get("intake") if isinstance(payload, dict) else None
    source = payload.get("source") if isinstance(payload, dict) else None
    if isinstance(intake_id, bool) or not isinstance(intake_id, int) or not isinstance(source, str):
        raise Fail('the payload names no price and source; it is { "intake": NUMBER, "source": NAME }')
    return intake_id, source, payload.get("by_hand") is True

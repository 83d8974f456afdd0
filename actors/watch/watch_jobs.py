"""The jobs of watches and wants: search, hand over, collect, repeat a saved search."""

from __future__ import annotations

from actors.environment import Environment
from actors.jobs.new_jobs import least_urgent, new_job
from cormorant.rules.settings.sources import PRICE_KIND
from cormorant.rules.watch.prices import COLLECT, STAGGER_S, PriceWatch, collect_key
from cormorant.rules.watch.wants import HANDOVER_KIND, WANT_KIND, Want, WantState
from cormorant.rules.watch.watches import SAVED_KIND, SavedSearch
from storage.jobs.jobs import NewJob


def search_job(environment: Environment, want: Want) -> NewJob:
    """The job that searches for a want."""
    return _want_job(environment, WANT_KIND, want)


def handover_job(environment: Environment, want: Want) -> NewJob:
    """The job that hands over what was chosen for a want, as the mode says."""
    return _want_job(environment, HANDOVER_KIND, want)


def handover_job_by_hand(environment: Environment, want: Want) -> NewJob:
    """As `handover_job`, after a decision of a person: it is sent in any mode."""
    return _want_job(environment, HANDOVER_KIND, want, by_hand=True)


def job_of(environment: Environment, want: Want) -> NewJob:
    """The job that works on a want in its state."""
    is_chosen = want.state in {WantState.CHOSEN, WantState.SENDING, WantState.IN_DOUBT}
    return handover_job(environment, want) if is_chosen else search_job(environment, want)


def _want_job(environment: Environment, kind: str, want: Want, **more: bool) -> NewJob:
    payload = {"want": want.key} | more
    return new_job(environment, kind, payload, priority=least_urgent(environment), dedupe_key=want.key)


def saved_search_jobs(environment: Environment, saved: SavedSearch, *, by_hand: bool = False) -> list[NewJob]:
    """The one job that repeats a saved search at all of its sources; `by_hand` also while it is paused."""
    payload = {"saved": saved.id} | ({"by_hand": True} if by_hand else {})
    return [new_job(environment, SAVED_KIND, payload, priority=least_urgent(environment), dedupe_key=str(saved.id))]


def price_sources(environment: Environment, intake: PriceWatch) -> tuple[str, ...]:
    """The sources that are asked about a price: those that it names, otherwise all that state prices."""
    configured = environment.settings.sources
    every = sorted(name for name, each in configured.items() if each.kind == PRICE_KIND and each.enabled)
    return intake.sources or tuple(every)


def collect_jobs(
    environment: Environment, intake: PriceWatch, place: int = 0, *, by_hand: bool = False
) -> list[NewJob]:
    """A job for each source of a price, 2 s apart, the first after `place` others."""
    return [
        new_job(
            environment,
            COLLECT,
            {"intake": intake.id, "source": source} | ({"by_hand": True} if by_hand else {}),
            delay_s=STAGGER_S * number,
            dedupe_key=collect_key(intake.id, source),
        )
        for number, source in enumerate(price_sources(environment, intake), start=place)
    ]

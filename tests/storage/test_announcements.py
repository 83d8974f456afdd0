"""Every transaction that makes something due, or due sooner, announces the channel on which its actors wait."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from sqlalchemy import Connection, TextClause, text

from cormorant.rules.jobs.states import JobState
from cormorant.rules.search import reservations
from cormorant.rules.search.reservations import EndKind, RequestEnd
from cormorant.rules.watch.feeds import CheckStatus, DueFeed, FeedCheck, NextCheck
from cormorant.rules.watch.handovers import Handover, HandoverState, ParcelState, ParcelStatus
from cormorant.rules.watch.wants import WantState
from storage import pauses
from storage.engine.calls import ANNOUNCED
from storage.engine.statements import FastStatement
from storage.jobs import batch, jobs, sql, workers
from storage.jobs.batch import Batch
from storage.jobs.workers import FREED
from storage.search import requests, source_states, sources
from storage.tables import CLAIMED, FEEDS, HANDOVERS
from storage.watch import artists, choice, feed_claims, feeds, handovers, prices, wants, watches
from storage.watch.feeds import FEED
from storage.watch.prices import PRICE
from storage.watch.saved_searches import SAVED
from tests.storage.job_store import NOW, at, new_job, put, settle, take, take_one
from tests.storage.source_store import FREE, add_source, record_of, spend
from tests.storage.watch_store import add_artist, add_want, new_handover, new_want
from tests.watch_kinds import CASES, added, new_feed, new_price, new_saved
from tests.watch_kinds import Case as KindCase

STORAGE = Path(__file__).parents[2] / "storage"
JOBS, PAUSES, SOURCES = sql.CHANNEL, pauses.CHANNEL, source_states.CHANNEL
WATCHED = [table.name for table in CLAIMED]
RESULT = RequestEnd(kind=EndKind.ANSWERED)

Transaction = Callable[[Connection], object]
Prepare = Callable[[Connection], Transaction]
"""Prepares what is needed, and returns the transaction."""


@frozen
class Case:
    """A transaction and the channels that it announces; False for those that only other processes hear of."""

    name: str
    channels: Mapping[str, bool]
    prepare: Prepare

    def __str__(self) -> str:
        return self.name


CASES_OF_ALL: list[Case] = []


def announces(**channels: bool) -> Callable[[Prepare], Prepare]:
    """A transaction that announces these channels. The name of the function says which, up to two underscores."""

    def note(prepare: Prepare) -> Prepare:
        CASES_OF_ALL.append(Case(prepare.__name__.strip("_"), channels, prepare))
        return prepare

    return note


def add_one(kind: KindCase, connection: Connection) -> Transaction:
    return partial(watches.add_new, kind=kind.kind, wanted=[kind.new("one", NOW)])


def resume_one(kind: KindCase, connection: Connection) -> Transaction:
    added(connection, kind.kind, kind.new("one", NOW, is_paused=True))
    return partial(watches.set_paused, kind=kind.kind, wanted="one", is_paused=False, now=NOW)


def check_one(kind: KindCase, connection: Connection) -> Transaction:
    added(connection, kind.kind, kind.new("one", at(9_000)))
    return partial(watches.make_due, kind=kind.kind, wanted="one", now=NOW)


def release_one(kind: KindCase, connection: Connection) -> Transaction:
    one = added(connection, kind.kind, kind.new("one", NOW))
    return partial(watches.release, table=kind.table, claims=[(one.id, one.token)])


def release_one_unknown(kind: KindCase, connection: Connection) -> Transaction:
    mark_claimed(connection, kind.table.name, added(connection, kind.kind, kind.new("one", NOW)).id)
    return partial(watches.release_unknown, table=kind.table, worker="me", known=())


def free_one(kind: KindCase, connection: Connection) -> Transaction:
    mark_claimed(connection, kind.table.name, added(connection, kind.kind, kind.new("one", NOW)).id)
    workers.mark_dead(connection, "me", beat=0, now=NOW)
    return partial(workers.free_if_dead, worker_id="me", limit=9)


def configure_one(kind: KindCase, connection: Connection) -> Transaction:
    return lambda connection: kind.configure(connection, [kind.new("one", NOW)])


def mark_claimed(connection: Connection, table: str, number: int) -> None:
    connection.execute(text(f"UPDATE {table} SET claimed_by = 'me' WHERE id = :id"), {"id": number})  # noqa: S608 - a table of ours


OF_A_KIND: Final = {
    "add_new": (add_one, True),
    "_change, resumed": (resume_one, True),
    "_change, checked": (check_one, True),
    "release": (release_one, False),
    "release_unknown": (release_one_unknown, False),
    "free_claims": (free_one, True),
    "configure": (configure_one, False),
}
FURTHER = {"free_claims": {FREED: True}}
"""Channels that such a transaction announces besides that of its table."""
CASES_OF_ALL += [
    Case(f"{name} {kind}", {kind.table.name: is_own} | FURTHER.get(name, {}), partial(prepare, kind))
    for kind in CASES
    for name, (prepare, is_own) in OF_A_KIND.items()
    if kind.is_in_file or prepare is not configure_one
]


def feed_in_hand(connection: Connection) -> DueFeed:
    added(connection, FEED, new_feed("one", NOW))
    [held] = feed_claims.claim(connection, worker="me", now=NOW, limit=1)
    return held


@announces(subscriptions=True)
def reschedule(connection: Connection) -> Transaction:
    return partial(feeds.reschedule, number=added(connection, FEED, new_feed("one", at(9_000))).id, at=NOW)


@announces(subscriptions=True)
def reschedule_all(connection: Connection) -> Transaction:
    return partial(feeds.reschedule_all, times={added(connection, FEED, new_feed("one", at(9_000))).id: NOW})


@announces(subscriptions=True)
def reschedule_after_clock_jump(connection: Connection) -> Transaction:
    one = added(connection, FEED, new_feed("one", at(9_000_000)))
    connection.execute(text("UPDATE subscriptions SET last_checked = next_attempt_at WHERE id = :id"), {"id": one.id})
    return partial(feeds.reschedule_after_clock_jump, now=NOW, limit=9)


@announces(subscriptions=False)
def release__feeds(connection: Connection) -> Transaction:
    return partial(feed_claims.release, mine=[feed_in_hand(connection)])


@announces(subscriptions=False)
def release_until(connection: Connection) -> Transaction:
    return partial(feed_claims.release_until, turns={feed_in_hand(connection): at(60)})


def handover_of(connection: Connection, **words: Any) -> Handover:
    want = add_want(connection, state=WantState.SENDING)
    begun = handovers.begin(connection, new_handover(want.id, **words))
    assert begun is not None
    return begun


@announces(downloads=True)
def set_arrived(connection: Connection) -> Transaction:
    receipt = ParcelStatus(target_id="1", standing=ParcelState.PRESENT)
    return partial(handovers.set_arrived, handover=handover_of(connection), receipt=receipt, next_at=at(60), now=NOW)


@announces(downloads=True)
def change__of_a_handover_that_is_due(connection: Connection) -> Transaction:
    return partial(
        handovers.change, handover=handover_of(connection), to=HandoverState.HANDED_OVER, next_at=NOW, now=NOW
    )


@announces(downloads=True, **{FREED: True})
def free_claims__of_handovers(connection: Connection) -> Transaction:
    mark_claimed(connection, HANDOVERS.name, handover_of(connection).id)
    workers.mark_dead(connection, "me", beat=0, now=NOW)
    return partial(workers.free_if_dead, worker_id="me", limit=9)


@announces(**{JOBS: True})
def enqueue(connection: Connection) -> Transaction:
    return partial(jobs.enqueue, job=new_job(), now=NOW)


@announces(**{JOBS: True})
def enqueue__for_later(connection: Connection) -> Transaction:
    return partial(jobs.enqueue, job=new_job(run_at=at(60)), now=NOW)


@announces(**{JOBS: True})
def enqueue__a_notice(connection: Connection) -> Transaction:
    return partial(batch.enqueue_or_join, job=new_job(dedupe_key="k"), join=lambda _, new: new, now=NOW)


@announces(**{JOBS: True})
def enqueue__again(connection: Connection) -> Transaction:
    return partial(jobs.enqueue_again, job=new_job(), now=NOW)


@announces(**{JOBS: True})
def make_due_now(connection: Connection) -> Transaction:
    put(connection, dedupe_key="k", run_at=at(60))
    return partial(jobs.make_due_now, kind="work", dedupe_key="k", now=NOW)


@announces(**{JOBS: False})
def settle__released(connection: Connection) -> Transaction:
    put(connection)
    job = take_one(connection)
    return lambda connection: settle(connection, job, JobState.PENDING, run_at=NOW)


@announces(**{JOBS: False})
def settle__put_off(connection: Connection) -> Transaction:
    put(connection)
    job = take_one(connection)
    return lambda connection: settle(connection, job, JobState.RETRYABLE, uses_attempt=True, run_at=at(60))


@announces()
def settle__failed(connection: Connection) -> Transaction:
    put(connection)
    job = take_one(connection)
    return lambda connection: settle(connection, job, JobState.FAILED, run_at=NOW)


@announces(**{JOBS: False})
def release_all(connection: Connection) -> Transaction:
    put(connection)
    take(connection)
    return partial(jobs.release_all, owner="me", now=NOW)


@announces(**{JOBS: True})
def reclaim(connection: Connection) -> Transaction:
    put(connection)
    take(connection)
    return partial(jobs.reclaim, owner="me", limit=9, now=NOW)


@announces(**{JOBS: True})
def cancel(connection: Connection) -> Transaction:
    number = put(connection)
    take(connection)
    return partial(batch.change_one, verb="cancel", job_id=number, now=NOW)


@announces(**{JOBS: True})
def revive(connection: Connection) -> Transaction:
    number = put(connection)
    jobs.cancel(connection, number, now=NOW)
    return partial(batch.change_one, verb="retry", job_id=number, now=NOW)


@announces(**dict.fromkeys([JOBS, *WATCHED], True))
def _announce_all__declared_dead(connection: Connection) -> Transaction:
    return partial(workers.mark_dead, worker_id="me", beat=0, now=NOW)


@announces(**dict.fromkeys([JOBS, *WATCHED], False))
def _announce_all__left(connection: Connection) -> Transaction:
    ended = Batch(owner="me", done=(), endings=(), doubtful=(), kinds=(), priorities=(), room=0, now=NOW)
    return partial(batch.leave, batch=ended, is_orderly=True)


@announces(**{PAUSES: True})
def set_all__paused(connection: Connection) -> Transaction:
    return partial(pauses.set_all, is_paused=True, now=NOW)


@announces(**{PAUSES: True})
def set_all__resumed(connection: Connection) -> Transaction:
    pauses.set_all(connection, is_paused=True, now=NOW)
    return partial(pauses.set_all, is_paused=False, now=NOW)


@announces(**{JOBS: True})
def free_some(connection: Connection) -> Transaction:
    pauses.pause(connection, "work", now=NOW)
    put(connection)
    pauses.resume(connection, "work")
    return partial(pauses.free_some, limit=9)


@announces(**{SOURCES: True})
def _put__a_source(connection: Connection) -> Transaction:
    return partial(sources.add, source=record_of(), now=NOW)


@announces(**{SOURCES: True})
def _put__a_source_of_the_settings_file(connection: Connection) -> Transaction:
    return partial(sources.set_configured, wanted=[record_of()], now=NOW)


@announces(**{SOURCES: True})
def _remove__a_source(connection: Connection) -> Transaction:
    add_source(connection)
    return partial(sources.remove, name="a", now=NOW)


@announces(**{SOURCES: True})
def change__of_a_source_by_hand(connection: Connection) -> Transaction:
    return partial(source_states.change, source_id=add_source(connection), rule=reservations.reset, configured=FREE)


@announces(**{SOURCES: True})
def record_caps(connection: Connection) -> Transaction:
    number = add_source(connection)
    permit = spend(connection, number)
    return partial(
        requests.record_caps, record=evolve(record_of(), id=number), permit=permit, end=RESULT, caps=None, now=NOW
    )


@announces(**{JOBS: True, PRICE.table: True})
def add_watches(connection: Connection) -> Transaction:
    return partial(prices.add_watches, wanted=[new_price("one", NOW)], make_jobs=lambda *_: [new_job()], now=NOW)


@announces(**{JOBS: True})
def check_now(connection: Connection) -> Transaction:
    added(connection, SAVED, new_saved("one", NOW))
    return partial(watches.check_now, kind=SAVED, wanted="one", make_jobs=lambda _: [new_job(dedupe_key="k")], now=NOW)


@announces(**{JOBS: True})
def enqueue_due(connection: Connection) -> Transaction:
    one = added(connection, SAVED, new_saved("one", NOW))
    known = (one.id, one.token)
    table = SAVED.codec.table
    return partial(watches.enqueue_due, table=table, known=known, made=[new_job()], next_attempt_at=at(60), now=NOW)


@announces(**{JOBS: True})
def record_success(connection: Connection) -> Transaction:
    artist = add_artist(connection)
    return partial(
        artists.record_success, artist=artist, wanted=[(new_want(), new_job())], looked_at=NOW, next_attempt_at=at(60)
    )


@announces(**{JOBS: True})
def search_again(connection: Connection) -> Transaction:
    want = add_want(connection, state=WantState.GAVE_UP)
    targets = choice.WatchTargets(configured=frozenset())
    return partial(
        choice.search_again,
        want_id=want.id,
        targets=targets,
        make_job=lambda _: new_job(dedupe_key="k"),
        now=NOW,
    )


@announces(**{JOBS: True})
def settle__a_handover_that_is_sent_again(connection: Connection) -> Transaction:
    held = handover_of(connection, state=HandoverState.HELD)
    wants.change(connection, held.want_id, WantState.IN_DOUBT, now=NOW)
    return partial(
        choice.settle, number=held.id, has_arrived=False, make_job=lambda _: new_job(dedupe_key="k"), now=NOW
    )


# What only puts something off, or is done by who knows, wakes nobody.


@announces()
def claim(connection: Connection) -> Transaction:
    put(connection)
    return take


@announces()
def complete(connection: Connection) -> Transaction:
    put(connection)
    job = take_one(connection)
    return partial(jobs.complete, owner="me", done=[(job.id, job.token)], now=NOW)


@announces()
def beat(connection: Connection) -> Transaction:
    return partial(workers.beat, worker_id="me", now=NOW)


@announces()
def claim__feeds(connection: Connection) -> Transaction:
    added(connection, FEED, new_feed("one", NOW))
    return partial(feed_claims.claim, worker="me", now=NOW, limit=9)


@announces()
def end_check__of_a_feed(connection: Connection) -> Transaction:
    held = feed_in_hand(connection)
    check = FeedCheck(subscription_id=held.id, started_at=NOW, status=CheckStatus.SUCCESS)
    following = NextCheck(next_check_at=at(60), failures=0, effective_s=None)
    return partial(
        feed_claims.end_check, subscription=held, following=following, check=check, etag=None, last_modified=None
    )


@announces()
def reserve(connection: Connection) -> Transaction:
    number = add_source(connection)
    return lambda connection: spend(connection, number)


@announces()
def change__of_a_handover_that_is_asked_later(connection: Connection) -> Transaction:
    return partial(
        handovers.change, handover=handover_of(connection), to=HandoverState.HANDED_OVER, next_at=at(60), now=NOW
    )


@announces()
def free_claims__of_nothing(connection: Connection) -> Transaction:
    workers.mark_dead(connection, "me", beat=0, now=NOW)
    return partial(workers.free_if_dead, worker_id="me", limit=9)


@pytest.mark.parametrize("case", CASES_OF_ALL, ids=str)
def test_a_transaction_announces_what_it_makes_due(connection: Connection, case: Case) -> None:
    transaction = case.prepare(connection)
    connection.info.pop(ANNOUNCED, None)

    transaction(connection)

    assert connection.info.pop(ANNOUNCED, {}) == case.channels


def test_what_is_announced_to_all_and_to_others_is_announced_to_all(connection: Connection) -> None:
    connection.info.pop(ANNOUNCED, None)
    one = added(connection, FEED, new_feed("one", NOW))
    watches.release(connection, FEEDS, [(one.id, one.token)])

    assert connection.info.pop(ANNOUNCED) == {FEEDS.name: True}


def test_every_function_that_announces_is_tried() -> None:
    announcing = set()
    for path in STORAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and ast.unparse(call.func) == "announce" for call in ast.walk(node)
            ):
                announcing.add(node.name.strip("_"))

    tried = {re.split(r"__|[ ,]", case.name.strip("_"))[0] for case in CASES_OF_ALL}

    assert announcing <= tried, announcing - tried


MOVES = re.compile(
    r"(INSERT INTO|UPDATE) (jobs|watchlist_artists|saved_searches|subscriptions|price_intakes|downloads|\{(kind\.)?table)"
    r"( \(.*?run_at|.*?(next_attempt_at =|next_at =|run_at =|held =|is_paused =|claimed_by = NULL))",
    re.DOTALL,
)
"""A statement that may make a row due earlier: a new time, the end of a hold or a pause, or the end of a claim."""
OWN_TICKER = "the ticker that has done this reads the next due time itself"
SILENT = {
    "artists.succeed": OWN_TICKER,
    "artists.fail": OWN_TICKER,
    "feed_claims.end_check": OWN_TICKER,
    "feed_claims.postpone": OWN_TICKER,
    "watches.take": OWN_TICKER,
    "watches.postpone": OWN_TICKER,
    "feed_claims.spread_overdue": "it puts off",
    "jobs.complete": "a job that has ended is not due",
    "pauses.hold_some": "it holds jobs",
    "watches._release_text": "it makes the statement; `release` announces",
}


def test_every_function_that_may_make_a_row_due_earlier_announces_or_says_why_not() -> None:
    assert _silent_functions() == SILENT.keys()


def _silent_functions() -> set[str]:
    """Functions that use a statement which may make a row due earlier, and announce nothing."""
    trees = {path: ast.parse(path.read_text()) for path in STORAGE.rglob("*.py") if "migrations" not in path.parts}
    moving = set().union(*map(_moving_constants, trees))
    return {
        f"{path.stem}.{node.name}"
        for path, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (_names_in(node, path) & moving or MOVES.search(ast.unparse(node)))
        and "announce(" not in ast.unparse(node)
    }


def _moving_constants(path: Path) -> set[str]:
    """The statements of a module that may make a row due earlier, as `module.NAME`."""
    name = ".".join(path.relative_to(STORAGE.parent).with_suffix("").parts)
    values = vars(importlib.import_module(name)).items()
    return {f"{path.stem}.{each}" for each, value in values if MOVES.search(_sql_of(value))}


def _sql_of(value: object) -> str:
    if isinstance(value, FastStatement):
        return value._sql  # noqa: SLF001 - its text is the question
    return str(value) if isinstance(value, str | TextClause) else ""


def _names_in(node: ast.AST, path: Path) -> set[str]:
    plain = {f"{path.stem}.{each.id}" for each in ast.walk(node) if isinstance(each, ast.Name)}
    return plain | {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Attribute)}

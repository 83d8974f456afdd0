"""What the four kinds of watches have in common in both databases: add, find, pause, configure, claim, and take for jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Connection, text

from cormorant.rules.errors import AlreadyExists, NotFound, SetInFile
from cormorant.rules.watch.watches import TAKEN_OUT, Watch, next_check
from storage.engine.columns import to_micros
from storage.jobs import reports, workers
from storage.jobs.jobs import Claim
from storage.tables import PRICES
from storage.watch import watches
from storage.watch.prices import PRICE
from storage.watch.watches import WatchTakenOut
from tests.storage.at_once import at_once
from tests.storage.job_store import NOW, JobStore, at, hire, new_job, show, take
from tests.watch_kinds import CASES, Case, added, new_price

DUE = "NOT is_paused AND next_attempt_at <= :now"
IN_FILE = [case for case in CASES if case.is_in_file]
BY_JOBS = [case for case in IN_FILE if case.kind.what != "subscription"]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    """One kind after the other."""
    found: Case = request.param
    return found


@pytest.fixture(params=IN_FILE, ids=str)
def filed(request: pytest.FixtureRequest) -> Case:
    """Each kind that the settings file may have."""
    found: Case = request.param
    return found


@pytest.fixture(params=BY_JOBS, ids=str)
def by_jobs(request: pytest.FixtureRequest) -> Case:
    """Each kind that is checked by durable jobs."""
    found: Case = request.param
    return found


def add(connection: Connection, case: Case, name: str = "one", **words: Any) -> Any:
    return added(connection, case.kind, case.new(name, NOW, **words))


def names(found: Sequence[Watch]) -> list[str]:
    return [each.name for each in found]


def claim(connection: Connection, case: Case, worker: str = "me", *, now_s: float = 0.0, limit: int = 10) -> list[Any]:
    found = watches.claim(
        connection,
        case.kind.codec,
        worker=worker,
        due=DUE,
        order="next_attempt_at",
        limit=limit,
        now=to_micros(at(now_s)),
    )
    return sorted(found, key=lambda each: each.name)


def claimed(connection: Connection, case: Case, **words: Any) -> list[str]:
    return names(claim(connection, case, **words))


def claims_of(found: Sequence[Watch]) -> list[Claim]:
    return [known(each) for each in found]


def known(watch: Watch) -> Claim:
    return watch.id, watch.token


def owners(connection: Connection, case: Case) -> dict[str, str | None]:
    """The worker that has claimed each watch."""
    rows = connection.execute(text(f"SELECT name, claimed_by FROM {case.table.name}"))  # noqa: S608 - a name of ours
    return {row.name: row.claimed_by for row in rows}


def take_due(connection: Connection, case: Case, now: datetime) -> list[str]:
    """The names of what is due, each taken for its jobs."""
    return [
        each.name
        for each in watches.due(connection, case.kind, now=now, limit=9)
        if watches.take(
            connection,
            case.table,
            known(each),
            next_attempt_at=next_check(due=each.next_attempt_at, every_s=each.every_s, now=now),
        )
    ]


# Add, find and remove


def test_what_is_added_is_read_as_it_was_and_is_there_once(connection: Connection, case: Case) -> None:
    made = add(connection, case, "one", **case.full)

    assert watches.find(connection, case.kind, "one") == made
    assert watches.by_id(connection, case.kind, made.id) == made
    assert watches.page(connection, case.kind) == watches.all_of(connection, case.kind) == [made]
    with pytest.raises(AlreadyExists, match=f"there is an? {case.kind.what} 'one' already"):
        add(connection, case, "one")


def test_what_is_there_already_is_left_as_it_is_where_others_are_added(connection: Connection, case: Case) -> None:
    first = add(connection, case, "one")

    made = watches.add_new(connection, case.kind, [case.new("one", at(9)), case.new("two", NOW)])

    assert [None if each is None else each.name for each in made] == [None, "two"]
    assert watches.find(connection, case.kind, "one") == first


def test_a_page_goes_on_after_a_number_in_the_order_they_came(connection: Connection, case: Case) -> None:
    made = [add(connection, case, name) for name in ("c", "a", "b")]

    first = watches.page(connection, case.kind, limit=2)
    second = watches.page(connection, case.kind, after_id=first[-1].id, limit=2)

    assert (first, second) == (made[:2], made[2:])


def test_what_is_removed_is_gone_and_the_others_stay(connection: Connection, case: Case) -> None:
    for name in ("one", "two"):
        add(connection, case, name)

    removed = watches.remove(connection, case.kind, "one")

    assert (removed.name, names(watches.all_of(connection, case.kind))) == ("one", ["two"])
    for verb in (watches.find, watches.remove):
        with pytest.raises(NotFound, match=f"there is no {case.kind.what} 'one'; `cormorant {case.kind.command} list`"):
            verb(connection, case.kind, "one")


@pytest.mark.parametrize("verb", ["pause", "resume", "make due", "remove"])
def test_what_another_process_removes_at_that_moment_is_not_found(job_store: JobStore, case: Case, verb: str) -> None:
    with job_store.begin() as connection:
        add(connection, case, "one")

    verbs: dict[str, Callable[[Connection], object]] = {
        "pause": lambda c: watches.set_paused(c, case.kind, "one", is_paused=True, now=NOW),
        "resume": lambda c: watches.set_paused(c, case.kind, "one", is_paused=False, now=NOW),
        "make due": lambda c: watches.make_due(c, case.kind, "one", now=NOW),
        "remove": lambda c: watches.remove(c, case.kind, "one"),
    }

    with pytest.raises(NotFound, match=f"there is no {case.kind.what} 'one'"):
        at_once(job_store, lambda c: watches.remove(c, case.kind, "one"), verbs[verb])


def test_one_of_the_settings_file_is_not_removed_also_before_it_has_a_row(connection: Connection, filed: Case) -> None:
    filed.configure(connection, [filed.new("there", NOW)])

    for name in ("there", "not yet"):
        with pytest.raises(SetInFile, match=rf"take \[{filed.kind.section}.{name}\] out of it"):
            watches.remove(connection, filed.kind, name, configured=["there", "not yet"])

    assert names(watches.all_of(connection, filed.kind)) == ["there"]


# Pause, resume and check


def test_one_that_is_paused_is_not_due_until_it_is_resumed(connection: Connection, case: Case) -> None:
    add(connection, case)

    paused = watches.set_paused(connection, case.kind, "one", is_paused=True, now=NOW)
    while_paused = claim(connection, case, now_s=9)
    resumed = watches.set_paused(connection, case.kind, "one", is_paused=False, now=at(10))

    assert (paused.is_paused, while_paused, resumed.is_paused) == (True, [], False)
    assert names(claim(connection, case, now_s=10)) == ["one"]
    with pytest.raises(NotFound):
        watches.set_paused(connection, case.kind, "none", is_paused=True, now=NOW)


def test_one_that_is_made_due_is_due_now(connection: Connection, case: Case) -> None:
    add(connection, case, next_attempt_at=at(9_000))

    made = watches.make_due(connection, case.kind, "one", now=at(5))

    assert made.next_attempt_at == at(5)
    assert names(claim(connection, case, now_s=5)) == ["one"]
    with pytest.raises(NotFound):
        watches.make_due(connection, case.kind, "none", now=NOW)


def test_one_that_is_checked_by_hand_has_its_jobs_at_once_also_while_it_is_paused(
    connection: Connection, by_jobs: Case
) -> None:
    add(connection, by_jobs)
    watches.set_paused(connection, by_jobs.kind, "one", is_paused=True, now=NOW)
    waiting = new_job(dedupe_key="k", run_at=at(900))
    watches.enqueue_all(connection, [waiting], now=NOW)

    for _ in range(2):
        watches.check_now(connection, by_jobs.kind, "one", make_jobs=lambda _: [waiting], now=at(5))

    [job] = reports.recent(connection, limit=9)
    assert show(connection, job.id).run_at == at(5)
    assert watches.find(connection, by_jobs.kind, "one").is_paused
    with pytest.raises(NotFound):
        watches.check_now(connection, by_jobs.kind, "none", make_jobs=lambda _: [], now=NOW)


# The settings file


def test_those_of_the_settings_file_follow_it_and_keep_what_was_checked(connection: Connection, filed: Case) -> None:
    kind = filed.kind
    add(connection, filed, "mine")
    filed.configure(connection, [filed.new("kept", NOW), filed.new("gone", NOW)])
    kept = watches.find(connection, kind, "kept")
    watches.set_paused(connection, kind, "kept", is_paused=True, now=NOW)

    wanted = filed.new("kept", at(99), **filed.full)
    filed.configure(connection, [wanted, filed.new("new", NOW)])

    after = watches.find(connection, kind, "kept")
    assert (after.id, after.is_paused, after.origin) == (kept.id, True, "configured")
    assert {name: getattr(after, name) for name in kind.set_by_file if name in filed.full} == {
        name: value for name, value in filed.full.items() if name in kind.set_by_file
    }
    assert watches.find(connection, kind, "mine").origin == "by command"
    left = {"kept", "mine", "new"} | ({"gone"} if kind.keeps_taken_out else set())
    assert set(names(watches.all_of(connection, kind))) == left


def test_a_start_with_the_same_settings_moves_no_time(connection: Connection, filed: Case) -> None:
    filed.configure(connection, [filed.new("one", NOW)])
    filed.configure(connection, [filed.new("one", at(99))])

    assert watches.find(connection, filed.kind, "one").next_attempt_at == NOW


def test_what_was_taken_out_and_is_kept_is_idle_until_it_comes_back(connection: Connection) -> None:
    watches.set_configured(connection, PRICE, [new_price("coin", NOW)])
    watches.set_configured(connection, PRICE, [])

    assert watches.find(connection, PRICE, "coin").origin == TAKEN_OUT
    assert watches.due(connection, PRICE, now=at(10), limit=9) == []
    verbs: list[Callable[..., object]] = [watches.make_due, _pause, _check]
    for verb in verbs:
        with pytest.raises(WatchTakenOut, match=r"write \[prices.coin\].*cormorant prices remove coin"):
            verb(connection, PRICE, "coin", now=NOW)
    watches.set_configured(connection, PRICE, [new_price("coin", NOW)])
    assert [each.name for each in watches.due(connection, PRICE, now=at(10), limit=9)] == ["coin"]


def _pause(connection: Connection, kind: Any, name: str, *, now: Any) -> None:
    watches.set_paused(connection, kind, name, is_paused=True, now=now)


def _check(connection: Connection, kind: Any, name: str, *, now: Any) -> None:
    watches.check_now(connection, kind, name, make_jobs=lambda _: [], now=now)


# Claims


def test_only_due_and_unclaimed_rows_are_claimed_the_longest_due_first(connection: Connection, case: Case) -> None:
    for name, due_s in (("later", 1), ("c", 0), ("a", -9), ("b", -5)):
        add(connection, case, name, next_attempt_at=at(due_s))
    add(connection, case, "paused", next_attempt_at=at(-99), is_paused=True)

    found = [claimed(connection, case, limit=2), claimed(connection, case, limit=2), claimed(connection, case, limit=2)]

    assert found == [["a", "b"], ["c"], []]
    assert owners(connection, case) == {"later": None, "paused": None, "a": "me", "b": "me", "c": "me"}


def test_of_rows_that_are_due_at_one_time_the_oldest_comes_first(connection: Connection, case: Case) -> None:
    for name in ("first", "second", "third"):
        add(connection, case, name)

    assert [claimed(connection, case, limit=1) for _ in range(3)] == [["first"], ["second"], ["third"]]


def test_a_worker_that_is_not_known_or_was_declared_dead_claims_nothing(connection: Connection, case: Case) -> None:
    add(connection, case, "a1")
    workers.mark_dead(connection, "me", beat=0, now=NOW)

    assert [claim(connection, case, worker) for worker in ("me", "stranger")] == [[], []]
    assert owners(connection, case) == {"a1": None}


def test_a_token_rises_with_each_claim_and_not_with_a_release(connection: Connection, case: Case) -> None:
    made = add(connection, case, "a1")
    tokens = []
    for _ in range(3):
        found = claim(connection, case)
        watches.release(connection, case.table, claims_of(found))
        tokens += [each.token for each in found]

    assert tokens == [made.token + 1, made.token + 2, made.token + 3]
    assert watches.find(connection, case.kind, "a1").token == tokens[-1]


def test_two_workers_that_claim_at_one_moment_share_the_rows(job_store: JobStore, case: Case) -> None:
    with job_store.begin() as connection:
        hire(connection, "me")
        hire(connection, "you")
        for number in range(5):
            add(connection, case, f"a{number}")

    one, two = at_once(job_store, lambda c: claim(c, case, limit=3), lambda c: claim(c, case, "you", limit=3))

    assert (names(one), names(two)) == (["a0", "a1", "a2"], ["a3", "a4"])
    with job_store.begin() as connection:
        assert owners(connection, case) == {"a0": "me", "a1": "me", "a2": "me", "a3": "you", "a4": "you"}


def test_a_released_row_is_due_as_before_or_at_the_time_given(connection: Connection, case: Case) -> None:
    for name in ("kept", "soon", "later"):
        add(connection, case, name)
    held = {each.name: (each.id, each.token) for each in claim(connection, case)}

    watches.release(connection, case.table, [held["soon"]])
    watches.release(connection, case.table, [held["later"]], next_attempt_at=at(30))
    watches.release(connection, case.table, [])

    assert owners(connection, case) == {"kept": "me", "soon": None, "later": None}
    assert watches.find(connection, case.kind, "soon").next_attempt_at == NOW
    assert [claimed(connection, case, now_s=now_s) for now_s in (29, 30)] == [["soon"], ["later"]]


@pytest.mark.parametrize("moved_s", [None, 30.0])
def test_an_older_claim_releases_nothing(connection: Connection, case: Case, moved_s: float | None) -> None:
    hire(connection, "you")
    add(connection, case, "a1")
    old = claims_of(claim(connection, case))
    watches.release(connection, case.table, old)
    current = claims_of(claim(connection, case, "you"))

    watches.release(connection, case.table, old, next_attempt_at=None if moved_s is None else at(moved_s))

    assert owners(connection, case) == {"a1": "you"}
    assert watches.find(connection, case.kind, "a1").next_attempt_at == NOW
    watches.release(connection, case.table, current)
    assert owners(connection, case) == {"a1": None}


def test_a_worker_releases_what_it_does_not_know_of_and_nothing_of_another(connection: Connection, case: Case) -> None:
    hire(connection, "you")
    for name in ("kept", "lost", "lost too", "yours"):
        add(connection, case, name)
    held = {each.name: each.id for each in claim(connection, case, limit=3)}
    claim(connection, case, "you")

    counts = [
        watches.release_unknown(connection, case.table, worker="me", known=[held["kept"], 10**9]),
        watches.release_unknown(connection, case.table, worker="me", known=[held["kept"]]),
    ]

    assert counts == [2, 0]
    assert owners(connection, case) == {"kept": "me", "lost": None, "lost too": None, "yours": "you"}


# Rows that are taken for jobs


def test_a_due_row_is_taken_once_and_its_next_time_is_set(connection: Connection, by_jobs: Case) -> None:
    made = add(connection, by_jobs, "coin")

    taken = [watches.take(connection, by_jobs.table, known(made), next_attempt_at=at(due_s)) for due_s in (60, 90)]

    found = watches.find(connection, by_jobs.kind, "coin")
    assert taken == [True, False]
    assert (found.next_attempt_at, found.token) == (at(60), made.token + 1)
    assert watches.take(connection, by_jobs.table, known(found), next_attempt_at=at(120))


def test_of_two_processes_that_saw_the_same_due_row_one_takes_it(job_store: JobStore, by_jobs: Case) -> None:
    with job_store.begin() as connection:
        made = add(connection, by_jobs, "coin")

    taken = at_once(
        job_store,
        lambda c: watches.take(c, by_jobs.table, known(made), next_attempt_at=at(60)),
        lambda c: watches.take(c, by_jobs.table, known(made), next_attempt_at=at(90)),
    )

    assert taken == (True, False)


def test_the_longest_due_rows_come_first_and_not_more_than_asked_for(connection: Connection, by_jobs: Case) -> None:
    for name, due_s in (("now", 0), ("later", 1), ("old", -60), ("also old", -60)):
        add(connection, by_jobs, name, next_attempt_at=at(due_s))

    found = [[each.name for each in watches.due(connection, by_jobs.kind, now=NOW, limit=limit)] for limit in (2, 9)]

    assert found == [["old", "also old"], ["old", "also old", "now"]]


@pytest.mark.parametrize("every_s", [60.0, 86_400.0])
def test_a_row_that_a_clock_that_ran_ahead_put_off_is_due_and_one_within_twice_its_time_is_not(
    connection: Connection, by_jobs: Case, every_s: float
) -> None:
    for name, due_s in (("soon", every_s), ("twice", 2 * every_s), ("ahead", 2 * every_s + 1)):
        add(connection, by_jobs, name, every_s=every_s, next_attempt_at=at(due_s))

    assert [each.name for each in watches.due(connection, by_jobs.kind, now=NOW, limit=9)] == ["ahead"]


def test_a_row_is_taken_and_its_jobs_are_enqueued_and_a_process_that_was_slower_enqueues_none(
    connection: Connection, by_jobs: Case
) -> None:
    made = add(connection, by_jobs, "coin")
    jobs = [new_job(payload=f"{number}") for number in range(2)]

    counts = [
        watches.enqueue_due(connection, by_jobs.table, known(made), each, next_attempt_at=at(60), now=NOW)
        for each in (jobs, [new_job()])
    ]

    assert counts == [2, 0]
    assert [job.payload for job in take(connection)] == ["0", "1"]
    assert watches.find(connection, by_jobs.kind, "coin").next_attempt_at == at(60)


def test_of_two_processes_that_saw_the_same_due_row_one_enqueues_its_jobs(job_store: JobStore, by_jobs: Case) -> None:
    with job_store.begin() as connection:
        made = add(connection, by_jobs, "coin")

    def enqueue(connection: Connection) -> int:
        return watches.enqueue_due(connection, by_jobs.table, known(made), [new_job()], next_attempt_at=at(60), now=NOW)

    assert at_once(job_store, enqueue, enqueue) == (1, 0)
    with job_store.begin() as connection:
        assert len(reports.recent(connection, limit=9)) == 1


def test_a_row_whose_jobs_were_not_committed_is_due_as_before(job_store: JobStore, by_jobs: Case) -> None:
    with job_store.begin() as connection:
        made = add(connection, by_jobs, "coin")

    with job_store.begin() as connection:
        watches.enqueue_due(connection, by_jobs.table, known(made), [new_job()], next_attempt_at=at(60), now=NOW)
        connection.rollback()

    with job_store.begin() as connection:
        assert reports.recent(connection, limit=9) == []
        assert watches.due(connection, by_jobs.kind, now=NOW, limit=9) == [made]


def test_a_row_that_was_paused_taken_out_or_removed_since_it_was_seen_is_not_taken(connection: Connection) -> None:
    watches.set_configured(connection, PRICE, [new_price("out", NOW)])
    watched = [
        added(connection, PRICE, new_price("paused", NOW)),
        added(connection, PRICE, new_price("removed", NOW)),
        watches.find(connection, PRICE, "out"),
    ]
    assert len(watches.due(connection, PRICE, now=NOW, limit=9)) == 3
    watches.set_paused(connection, PRICE, "paused", is_paused=True, now=NOW)
    watches.remove(connection, PRICE, "removed")
    watches.set_configured(connection, PRICE, [])

    taken = [watches.take(connection, PRICES, known(each), next_attempt_at=at(60)) for each in watched]

    assert taken == [False, False, False]
    assert watches.due(connection, PRICE, now=at(9_999), limit=9) == []
    assert {each.next_attempt_at for each in watches.all_of(connection, PRICE)} == {NOW}


def test_what_is_due_is_shared_by_two_processes_and_keeps_its_cadence(job_store: JobStore, by_jobs: Case) -> None:
    with job_store.begin() as connection:
        for name in "abcd":
            add(connection, by_jobs, name)

    one, two = at_once(job_store, lambda c: take_due(c, by_jobs, at(10)), lambda c: take_due(c, by_jobs, at(10)))

    assert sorted(one + two) == ["a", "b", "c", "d"]
    with job_store.begin() as connection:
        assert take_due(connection, by_jobs, at(59)) == []
        assert len(take_due(connection, by_jobs, at(60))) == 4


def test_a_row_that_was_taken_by_a_clock_that_ran_ahead_is_due_again(connection: Connection, by_jobs: Case) -> None:
    add(connection, by_jobs)

    assert take_due(connection, by_jobs, at(400 * 86_400)) == ["one"]
    assert [take_due(connection, by_jobs, at(now_s)) for now_s in (10, 11)] == [["one"], []]


def test_a_row_that_is_postponed_is_due_at_its_new_time_and_no_other_is_moved(
    connection: Connection, by_jobs: Case
) -> None:
    made = [add(connection, by_jobs, name) for name in "ab"]

    watches.postpone(connection, by_jobs.table, made[0].id, next_attempt_at=at(60))

    due = [names(watches.due(connection, by_jobs.kind, now=at(now_s), limit=9)) for now_s in (59, 60)]
    assert due == [["b"], ["b", "a"]]

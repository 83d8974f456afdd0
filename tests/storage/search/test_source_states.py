"""What is spent is spent: every statement over the state of a source, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from threading import Barrier, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from cormorant.rules.search.limits import Lane, LearnedLimits, SourceLimits
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.reservations import EndKind, RequestPermit, Reserved, SourceClosedNow, pause, reset, resume
from storage.search import source_states
from storage.search.source_states import ReservationRequest
from tests.bounds import WAIT_S
from tests.storage.job_store import NOW, JobStore, at
from tests.storage.source_store import FREE, LEASE_S, add_source, ask, end, look, spend
from tests.storage.test_two_at_once import after


def names(answer: Reserved | SourceClosedNow) -> list[str]:
    """The gates in the way."""
    return [gate.name.value for gate in answer.reasons] if isinstance(answer, SourceClosedNow) else []


def test_a_source_that_was_never_asked_has_a_fresh_state(connection: Connection) -> None:
    known = look(connection, add_source(connection))

    assert (known.state.query.last_seq, known.state.is_enabled, known.learned) == (0, True, LearnedLimits())
    assert known.limits == FREE


def test_a_reservation_is_kept_and_closes_the_source_until_it_ends(connection: Connection) -> None:
    source = add_source(connection)

    permit = spend(connection, source)
    meanwhile = ask(connection, source, now=at(1))
    known = end(connection, source, permit, now=at(2))

    assert names(meanwhile) == ["in_flight"]
    assert (known.state.query.last_seq, known.state.query.last_at) == (1, NOW)
    assert (known.state.query.last_end_at, known.state.query.in_flight) == (at(2), ())
    assert known.state.last_success_at == at(2)
    assert isinstance(ask(connection, source, now=at(2)), Reserved)


def test_what_is_read_back_is_what_was_written(connection: Connection) -> None:
    source = add_source(connection)
    limits = SourceLimits(spacing_s=0, pace_s=0, per_minute=3, in_flight_max=4)
    known = look(connection, source)
    for number in range(5):
        known = end(
            connection,
            source,
            spend(connection, source, now=at(60 * number), limits=limits),
            EndKind.LIMITED,
            now=at(60 * number),
            limits=limits,
            retry_after_s=1.0,
        )
    got = ask(connection, source, now=at(10_000), limits=limits)
    assert isinstance(got, Reserved)

    assert look(connection, source, limits=limits).state == got.state
    assert known.state.breaker.state.value == "open"
    assert got.state.breaker.probes[0].expires_at == at(10_000 + LEASE_S)


def test_a_lease_whose_end_was_never_told_expires(connection: Connection) -> None:
    source = add_source(connection)
    permit = spend(connection, source)

    assert names(ask(connection, source, now=at(LEASE_S - 0.001))) == ["in_flight"]
    assert isinstance(ask(connection, source, now=at(LEASE_S)), Reserved)
    assert not source_states.is_in_flight(connection, source, permit)


def test_the_end_of_a_request_is_known_to_be_open_or_recorded(connection: Connection) -> None:
    source = add_source(connection)
    permit = spend(connection, source)
    before = source_states.is_in_flight(connection, source, permit)
    end(connection, source, permit)

    assert (before, source_states.is_in_flight(connection, source, permit)) == (True, False)


def test_lanes_have_their_own_windows(connection: Connection) -> None:
    source = add_source(connection)
    limits = SourceLimits(spacing_s=0, pace_s=0, per_hour=1, grabs_per_day=1)
    for lane in Lane:
        got = ask(connection, source, limits=limits, lane=lane)
        assert isinstance(got, Reserved)
        end(connection, source, got.permit, limits=limits)

    assert [
        names(ask(connection, source, now=at(3600), limits=limits, lane=lane)) for lane in (Lane.GRAB, Lane.QUERY)
    ] == [["day"], []]


def test_stated_limits_are_learned_and_the_stricter_holds(connection: Connection) -> None:
    source = add_source(connection)
    limits = SourceLimits(spacing_s=0, pace_s=0, per_day=50)
    known = end(
        connection,
        source,
        spend(connection, source, limits=limits),
        limits=limits,
        learned=LearnedLimits(per_day=1, grabs_per_day=7),
    )

    assert (known.limits.per_day, known.limits.grabs_per_day) == (1, 7)
    assert look(connection, source, limits=limits).learned == LearnedLimits(per_day=1, grabs_per_day=7)
    assert names(ask(connection, source, now=at(10), limits=limits)) == ["day"]


def test_changes_by_hand_are_kept(connection: Connection) -> None:
    source = add_source(connection)
    permit = spend(connection, source)
    end(connection, source, permit, EndKind.CREDENTIALS_REFUSED, because="wrong \0 \ud800 key")

    stopped = ask(connection, source, now=at(1))
    source_states.change(connection, source, pause, configured=FREE)
    source_states.change(connection, source, reset, configured=FREE)
    paused = ask(connection, source, now=at(1))
    source_states.change(connection, source, resume, configured=FREE)

    assert (names(stopped), names(paused)) == (["stopped"], ["paused"])
    got = ask(connection, source, now=at(1))
    assert isinstance(got, Reserved)
    assert got.permit.seq == 2, "what was spent stays spent"


def test_requests_are_pruned_oldest_first_in_pages(connection: Connection) -> None:
    source = add_source(connection)
    later = 33 * 86_400
    for second in (0, 1, 2, 3, later):
        end(connection, source, spend(connection, source, now=at(second)), now=at(second))

    pruned = [source_states.prune_requests(connection, before=at(later), limit=3) for _ in range(3)]

    left = connection.execute(text("SELECT seq FROM source_requests WHERE source_id = :id"), {"id": source}).scalars()
    assert (pruned, list(left)) == ([3, 1, 0], [5])
    assert look(connection, source).state.query.last_seq == 5


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    """What is done within is undone: each example begins anew."""
    with connection.begin_nested() as savepoint:
        yield
        savepoint.rollback()


LIMITS = st.builds(
    SourceLimits,
    spacing_s=st.sampled_from([0.0, 2.0, 30.0]),
    pace_s=st.just(0.0),
    per_minute=st.none() | st.integers(1, 5),
    per_hour=st.none() | st.integers(1, 8),
    per_day=st.none() | st.integers(1, 10),
)
STEPS = st.lists(
    st.tuples(
        st.one_of(st.floats(0, 90), st.floats(0, 4000), st.floats(-5000, 0)),  # how far the clock goes, also back
        st.none() | LIMITS,  # new limits
        st.sampled_from(["ends", "ends", "ends", "dies"]),
        st.floats(0, 50),  # how long a request takes
    ),
    min_size=5,
    max_size=40,
)


def assert_nothing_exceeded(sent: list[tuple[datetime, datetime]], limits: SourceLimits) -> None:
    """The request that was sent last broke none of the limits that held when it went."""
    times = [at for at, _ in sent]
    last = times[-1]
    for count, width in ((limits.per_minute, 60), (limits.per_hour, 3600), (limits.per_day, 86_400)):
        if count is not None:
            within = [time for time in times if last - timedelta(seconds=width) < time <= last]
            assert len(within) <= count, (width, within)
    for began_at, ended_at in sent[:-1]:
        assert ended_at + timedelta(seconds=limits.spacing_s) <= last, "two in flight, or too close"
        assert began_at <= last


@pytest.mark.slow("many statements for each example")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=LIMITS, steps=STEPS)
def test_no_limit_is_ever_exceeded_whatever_the_clock_and_the_limits_do(
    connection: Connection, first: SourceLimits, steps: list[tuple[float, SourceLimits | None, str, float]]
) -> None:
    with undone(connection):
        source, limits, clock = add_source(connection), first, NOW
        sent: list[tuple[datetime, datetime]] = []  # the naive list: when each went, and when it had surely ended
        for passed_s, changed, fate, takes_s in steps:
            clock += timedelta(seconds=passed_s)
            limits = changed or limits
            got = ask(connection, source, now=clock, limits=limits)
            if isinstance(got, SourceClosedNow):
                continue
            assert got.at >= clock
            assert got.permit.seq == len(sent) + 1
            if fate == "dies":
                sent.append((got.at, got.expires_at))
            else:
                clock += timedelta(seconds=takes_s)
                known = end(connection, source, got.permit, now=clock, limits=limits)
                assert known.state.query.last_end_at is not None
                sent.append((got.at, known.state.query.last_end_at))
            assert_nothing_exceeded(sent, limits)


def test_of_two_that_reserve_at_the_same_moment_one_gets_through(postgres_jobs: JobStore) -> None:
    with postgres_jobs.begin() as connection:
        source = add_source(connection)

    second = after(
        postgres_jobs, lambda connection: spend(connection, source), lambda connection: ask(connection, source)
    )

    assert names(second) == ["in_flight"]


@pytest.mark.parametrize("has_hint", [False, True])
def test_of_two_requests_of_an_app_at_the_same_moment_one_gets_the_last_of_its_share(
    postgres_jobs: JobStore, *, has_hint: bool
) -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, per_day=8, in_flight_max=9)
    wanted = ReservationRequest(lease_s=LEASE_S, consumer="sonarr", share=0.25)
    with postgres_jobs.begin() as connection:
        source = add_source(connection)
        _, known = source_states.reserve(connection, source, wanted, configured=limits, now=NOW)
    hint = known if has_hint else None

    second = after(
        postgres_jobs,
        lambda connection: source_states.reserve(connection, source, wanted, configured=limits, now=at(1), hint=hint),
        lambda connection: source_states.reserve(connection, source, wanted, configured=limits, now=at(2), hint=hint),
    )

    assert names(second[0]) == ["app_share"]


@pytest.mark.slow("two threads, twenty times")
def test_of_two_processes_that_race_for_the_first_request_exactly_one_gets_through(postgres_jobs: JobStore) -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, per_hour=1, in_flight_max=5)
    for number in range(20):
        with postgres_jobs.begin() as connection:
            source = add_source(connection, f"s{number}")
        barrier, answers = Barrier(2), list[object]()

        def race(source: int = source, barrier: Barrier = barrier, answers: list[object] = answers) -> None:
            with postgres_jobs.begin() as connection:
                barrier.wait(timeout=WAIT_S)
                answers.append(ask(connection, source, limits=limits, priority=Priority.INTERACTIVE))

        threads = [Thread(target=race) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=WAIT_S)

        assert sorted(type(answer).__name__ for answer in answers) == ["Reserved", "SourceClosedNow"]


def test_of_two_that_end_at_the_same_moment_none_is_lost(postgres_jobs: JobStore) -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=2)
    with postgres_jobs.begin() as connection:
        source = add_source(connection)
        permits: list[RequestPermit] = [spend(connection, source, limits=limits) for _ in range(2)]

    known = after(
        postgres_jobs,
        lambda connection: end(connection, source, permits[0], EndKind.UNAVAILABLE, limits=limits),
        lambda connection: end(connection, source, permits[1], EndKind.UNAVAILABLE, limits=limits),
    )

    assert (known.state.failure_streak, known.state.query.in_flight) == (2, ())

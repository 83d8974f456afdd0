"""A copy of a source's state is a hint: whoever has an old one is not faster than the database, in either kind of it."""

from __future__ import annotations

import pytest
from attrs import evolve
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from cormorant.rules.search import reservations
from cormorant.rules.search.limits import Lane, LearnedLimits, SourceLimits
from cormorant.rules.search.reservations import EndKind, RequestEnd, Reserved, SourceClosedNow
from storage.engine.statements import FastStatement
from storage.search import source_states
from storage.search.source_states import KnownState, ReservationRequest
from tests.storage.job_store import NOW, at

OPEN = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=10)
HOURLY = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=10, per_hour=2)
WISH = ReservationRequest(lease_s=60)
ANSWERED = RequestEnd(kind=EndKind.ANSWERED)


def reserve(
    connection: Connection, hint: KnownState | None, limits: SourceLimits = OPEN, *, wanted: ReservationRequest = WISH
) -> tuple[Reserved, KnownState]:
    answer, known = source_states.reserve(connection, 1, wanted, configured=limits, now=NOW, hint=hint)
    assert isinstance(answer, Reserved)
    return answer, known


def test_a_state_that_was_written_from_a_hint_is_what_is_read(connection: Connection) -> None:
    _, first = reserve(connection, None)
    second, known = reserve(connection, first)
    known = source_states.finish(connection, 1, second.permit, ANSWERED, configured=OPEN, now=at(1), hint=known)

    assert source_states.read(connection, 1, configured=OPEN) == known
    assert known.version == first.version + 2


@pytest.mark.parametrize("lane", list(Lane))
def test_both_lanes_are_written(connection: Connection, lane: Lane) -> None:
    _, known = reserve(connection, None)
    reserved, known = reserve(connection, known, wanted=ReservationRequest(lease_s=60, lane=lane))
    known = source_states.finish(connection, 1, reserved.permit, ANSWERED, configured=OPEN, now=at(1), hint=known)

    assert source_states.read(connection, 1, configured=OPEN) == known
    assert known.state.lane(lane).last_end_at == at(1)


def test_two_with_the_same_hint_spend_two_requests(connection: Connection) -> None:
    _, hint = reserve(connection, None)

    one, _ = reserve(connection, hint)
    other, known = reserve(connection, hint)

    assert (one.permit.seq, other.permit.seq, known.state.query.last_seq) == (2, 3, 3)


def test_an_old_hint_opens_no_share_and_the_last_request_of_one_says_so(connection: Connection) -> None:
    limits = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=10, per_hour=8, per_day=9)
    wanted = ReservationRequest(lease_s=60, consumer="sonarr", share=0.25)
    _, hint = reserve(connection, None, limits, wanted=evolve(wanted, consumer="radarr"))

    one, _ = reserve(connection, hint, limits, wanted=wanted)
    other, _ = reserve(connection, hint, limits, wanted=wanted)
    third, known = source_states.reserve(connection, 1, wanted, configured=limits, now=at(1), hint=hint)

    assert one.share_reason is None
    assert other.share_reason is not None
    assert other.share_reason.opens_at == at(86_400)
    assert isinstance(third, SourceClosedNow)
    assert third.reasons == (other.share_reason,)
    assert known.state.query.last_seq == 3
    reserve(connection, known, limits, wanted=evolve(wanted, consumer="radarr"))
    later, _ = source_states.reserve(connection, 1, wanted, configured=limits, now=at(86_400), hint=known)
    assert isinstance(later, Reserved)


def test_an_old_hint_opens_no_window(connection: Connection) -> None:
    _, hint = reserve(connection, None, HOURLY)
    reserve(connection, hint, HOURLY)

    answer, known = source_states.reserve(connection, 1, WISH, configured=HOURLY, now=at(1), hint=hint)

    assert isinstance(answer, SourceClosedNow)
    assert known.state.query.last_seq == 2


def test_a_hint_that_says_closed_is_not_believed(connection: Connection) -> None:
    _, hint = reserve(connection, None)
    paused = evolve(hint, state=reservations.pause(hint.state))

    assert reserve(connection, paused)[0].permit.seq == 2


def test_a_pause_by_hand_holds_against_a_hint_from_before(connection: Connection) -> None:
    _, hint = reserve(connection, None)
    source_states.change(connection, 1, reservations.pause, configured=OPEN)

    answer, known = source_states.reserve(connection, 1, WISH, configured=OPEN, now=NOW, hint=hint)

    assert isinstance(answer, SourceClosedNow)
    assert known.state.is_paused


def test_an_end_with_an_old_hint_undoes_nothing_of_others(connection: Connection) -> None:
    reserved, hint = reserve(connection, None)
    source_states.change(connection, 1, reservations.pause, configured=OPEN)

    known = source_states.finish(connection, 1, reserved.permit, ANSWERED, configured=OPEN, now=at(1), hint=hint)

    assert known.state.is_paused
    assert known.state.query.in_flight == ()


def test_limits_that_were_learned_or_changed_need_a_new_look(connection: Connection) -> None:
    reserved, hint = reserve(connection, None)
    learned = RequestEnd(kind=EndKind.ANSWERED, learned=LearnedLimits(per_day=1))
    known = source_states.finish(connection, 1, reserved.permit, learned, configured=OPEN, now=at(1), hint=hint)

    answers = [
        source_states.reserve(connection, 1, WISH, configured=limits, now=at(2), hint=each)[0]
        for limits in (OPEN, HOURLY)
        for each in (hint, known)
    ]

    assert all(isinstance(answer, SourceClosedNow) for answer in answers)


def test_a_failed_plain_statement_raises_what_sqlalchemy_would(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE unique_numbers (number BIGINT PRIMARY KEY)"))
    insert = FastStatement("INSERT INTO unique_numbers (number) VALUES (:number)")
    assert insert.change(connection, (1,)) == 1

    with pytest.raises(IntegrityError), connection.begin_nested():
        insert.change(connection, (1,))

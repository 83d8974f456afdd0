"""Death by observation: silence kills, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.jobs.states import LivenessObservation, observe

INTERVAL_S = 60.0
SILENCE_S = 300.0

Look = tuple[float, dict[str, int]]


def watch_all(looks: Iterable[Look]) -> list[list[str]]:
    """Who was found dead at each look."""
    watch, found = LivenessObservation(), []
    for now, beats in looks:
        watch, dead = observe(watch, beats, now=now, interval_s=INTERVAL_S, silence_s=SILENCE_S)
        found.append(dead)
    return found


def test_a_worker_that_stays_silent_is_dead_after_the_silence_and_not_before() -> None:
    looks = [(minute * 60.0, {"silent": 7}) for minute in range(6)]

    assert watch_all(looks) == [[], [], [], [], [], ["silent"]]


def test_a_worker_that_beats_lives_for_ever() -> None:
    looks = [(minute * 60.0, {"lively": minute}) for minute in range(100)]

    assert not any(watch_all(looks))


def test_one_beat_in_the_last_moment_begins_the_silence_anew() -> None:
    beats = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    looks = [(minute * 60.0, {"faint": beat}) for minute, beat in enumerate(beats)]

    found = watch_all(looks)

    assert found.index(["faint"]) == 10


def test_the_silent_one_dies_and_its_neighbours_live() -> None:
    looks = [(minute * 60.0, {"silent": 1, "lively": minute}) for minute in range(6)]

    assert watch_all(looks)[-1] == ["silent"]


@pytest.mark.parametrize("why", ["the database was away", "the machine slept", "the clock jumped"])
def test_after_a_gap_nobody_is_dead_until_a_whole_silence_was_watched(why: str) -> None:
    gap_s = 3600.0
    before = [(minute * 60.0, {"worker": 7}) for minute in range(5)]
    after = [(before[-1][0] + gap_s + minute * 60.0, {"worker": 7}) for minute in range(6)]

    found = watch_all([*before, *after])

    assert found == [[]] * 10 + [["worker"]]


def test_a_gap_of_two_intervals_is_still_watching_and_one_past_it_is_not() -> None:
    silent = {"worker": 7}

    watched = watch_all([(0.0, silent), (120.0, silent), (240.0, silent), (360.0, silent)])
    slept = watch_all([(0.0, silent), (120.001, silent), (240.0, silent), (360.0, silent)])

    assert watched[-1] == ["worker"]
    assert slept[-1] == []


def test_a_worker_that_came_just_now_is_not_taken_for_a_silent_one() -> None:
    looks: list[Look] = [(minute * 60.0, {"old": minute}) for minute in range(5)]

    found = watch_all([*looks, (300.0, {"old": 5, "new": 0}), (360.0, {"old": 6, "new": 0})])

    assert not any(found)


def test_a_worker_that_was_away_and_came_back_with_the_same_beat_is_watched_anew() -> None:
    seen: list[Look] = [(minute * 60.0, {"worker": 7}) for minute in range(4)]

    found = watch_all([*seen, (240.0, {}), (300.0, {"worker": 7})])

    assert not any(found)


def test_the_first_look_kills_nobody_however_old_the_beats_are() -> None:
    assert watch_all([(1e9, {"worker": 0})]) == [[]]


def test_a_clock_that_goes_backwards_kills_nobody() -> None:
    looks = [(600.0, {"worker": 7}), (0.0, {"worker": 7}), (60.0, {"worker": 7})]

    assert not any(watch_all(looks))


looks_of_one = st.lists(st.tuples(st.floats(0.1, 200.0), st.booleans()), min_size=1, max_size=30)


@pytest.mark.slow("a hundred histories")
@given(looks_of_one)
def test_whoever_is_found_dead_was_watched_without_a_gap_for_the_whole_silence(steps: list[tuple[float, bool]]) -> None:
    now, beat, looks = 0.0, 0, []
    for gap_s, beats in steps:
        now, beat = now + gap_s, beat + beats
        looks.append((now, {"worker": beat}))

    found = watch_all(looks)

    for place, dead in enumerate(found):
        # Walk back over looks without a gap and without a beat: that is what was watched.
        first = place
        while first > 0 and looks[first][1] == looks[first - 1][1] and steps[first][0] <= 2 * INTERVAL_S:
            first -= 1
        watched_s = looks[place][0] - looks[first][0]
        if abs(watched_s - SILENCE_S) > 1e-6:
            assert bool(dead) == (watched_s > SILENCE_S)

"""Death by observation: silence kills, and nothing else does."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.jobs.states import Sighting, observe, observed_s

INTERVAL_S = 60.0
BEAT_S = 20.0
SILENCE_S = 300.0

Look = tuple[float, dict[str, int]]


@define
class Observer:
    """A sweeper: its sightings are stored, the time of its last look is its own."""

    seen: dict[str, Sighting] = field(factory=dict)
    looked_at: float | None = None

    def look(self, now: float, beats: dict[str, int], *, confirmed_at: float | None = None) -> list[str]:
        """The dead. The own heartbeat was confirmed just now, unless told otherwise."""
        elapsed_s = observed_s(
            self.looked_at,
            now=now,
            interval_s=INTERVAL_S,
            confirmed_at=now if confirmed_at is None else confirmed_at,
            beat_s=BEAT_S,
        )
        self.looked_at = now
        self.seen = observe(self.seen, beats, elapsed_s=elapsed_s)
        return [worker for worker, seen in self.seen.items() if seen.unchanged_s >= SILENCE_S]


def watch_all(looks: Iterable[Look]) -> list[list[str]]:
    """Who was found dead at each look."""
    observer = Observer()
    return [observer.look(now, beats) for now, beats in looks]


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


def test_after_a_clock_went_backwards_a_silent_worker_is_dead_after_one_silence() -> None:
    looks = [(600.0, {"worker": 7}), *((minute * 60.0, {"worker": 7}) for minute in range(6))]

    assert watch_all(looks) == [[], [], [], [], [], [], ["worker"]]


def test_while_the_own_heartbeat_is_not_confirmed_silence_does_not_count() -> None:
    """A full disk or a write lock stops the heartbeats of all, though reads succeed."""
    observer, silent = Observer(), {"worker": 7}
    for minute in range(5):
        assert observer.look(minute * 60.0, silent) == []

    blocked = [observer.look(minute * 60.0, silent, confirmed_at=240.0) for minute in range(5, 20)]
    after = [observer.look(minute * 60.0, silent) for minute in range(20, 25)]

    assert blocked == [[]] * 15
    assert after == [[], [], [], [], ["worker"]]


def test_a_heartbeat_confirmed_two_beats_ago_counts_and_an_older_one_does_not() -> None:
    def elapsed_s(age_s: float) -> float | None:
        return observed_s(0.0, now=60.0, interval_s=INTERVAL_S, confirmed_at=60.0 - age_s, beat_s=BEAT_S)

    assert (elapsed_s(40.0), elapsed_s(40.001)) == (60.0, None)


@pytest.mark.parametrize("last_at", [None, 0.0, -math.inf])
def test_a_first_look_without_a_confirmed_heartbeat_begins_the_observation_anew(last_at: float | None) -> None:
    elapsed_s = observed_s(last_at, now=60.0, interval_s=INTERVAL_S, confirmed_at=0.0, beat_s=BEAT_S)

    assert elapsed_s is None


def test_after_an_outage_the_observation_begins_anew() -> None:
    elapsed_s = observed_s(-math.inf, now=60.0, interval_s=INTERVAL_S, confirmed_at=60.0, beat_s=BEAT_S)

    assert elapsed_s is None


def test_an_observation_that_was_handed_over_continues_and_the_time_between_does_not_count() -> None:
    first, silent = Observer(), {"worker": 7}
    for minute in range(5):
        assert first.look(minute * 60.0, silent) == []

    second = Observer(seen=first.seen)
    found = [second.look(now, silent) for now in (1e6, 1e6 + 59.0, 1e6 + 60.0)]

    assert found == [[], [], ["worker"]]


def test_a_beat_between_two_observers_ends_the_silence() -> None:
    first = Observer()
    for minute in range(5):
        assert first.look(minute * 60.0, {"worker": 7}) == []

    second = Observer(seen=first.seen)
    found = [second.look(minute * 60.0, {"worker": 8}) for minute in range(6)]

    assert found == [[], [], [], [], [], ["worker"]]


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


# Whole seconds, so that sums are exact. A gap may be longer than two intervals, a heartbeat older than two beats.
gaps = st.integers(1, 180)
observed_gaps = st.integers(1, 120)
ages = st.integers(0, 60)


@pytest.mark.slow("a hundred histories")
@given(st.lists(st.tuples(gaps, ages, st.booleans()), min_size=1, max_size=60))
def test_a_worker_that_beats_in_every_silence_of_observed_time_is_never_dead(
    steps: list[tuple[int, int, bool]],
) -> None:
    observer, now, beat, silent_s = Observer(), 0.0, 0, 0
    for gap_s, age_s, beats in steps:
        now += gap_s
        is_observed = gap_s <= 2 * INTERVAL_S and age_s <= 2 * BEAT_S
        silent_s += gap_s if is_observed else 0
        if beats or silent_s >= SILENCE_S:
            beat, silent_s = beat + 1, 0

        assert observer.look(now, {"worker": beat}, confirmed_at=now - age_s) == []


@pytest.mark.slow("a hundred histories")
@given(st.lists(observed_gaps, min_size=1, max_size=40), st.integers(0, 40), st.integers(0, 10**9))
def test_a_worker_that_never_beats_again_is_dead_after_the_silence_and_not_before(
    steps: list[int], age_s: int, start_s: int
) -> None:
    observer, now = Observer(), float(start_s)
    assert observer.look(now, {"worker": 7}) == []

    for gap_s in steps:
        now += gap_s
        dead = observer.look(now, {"worker": 7}, confirmed_at=now - age_s)
        assert dead == (["worker"] if now - start_s >= SILENCE_S else [])


@pytest.mark.slow("a hundred histories")
@given(st.lists(st.tuples(gaps, ages), min_size=1, max_size=60))
def test_silence_never_counts_during_a_gap_or_without_a_confirmed_heartbeat(steps: list[tuple[int, int]]) -> None:
    """The worker is silent all the time. It is dead only by what was observed since the last gap or unconfirmed look."""
    observer, now, watched_s = Observer(), 0.0, 0
    observer.look(now, {"worker": 7})

    for gap_s, age_s in steps:
        now += gap_s
        is_observed = gap_s <= 2 * INTERVAL_S and age_s <= 2 * BEAT_S
        watched_s = watched_s + gap_s if is_observed else 0
        dead = observer.look(now, {"worker": 7}, confirmed_at=now - age_s)
        assert dead == (["worker"] if watched_s >= SILENCE_S else [])


@pytest.mark.slow("a hundred histories")
@given(
    before=st.lists(observed_gaps, max_size=10),
    between_s=st.integers(-(10**6), 10**6),
    after=st.lists(observed_gaps, max_size=10),
)
def test_an_observation_handed_over_continues_with_what_was_observed_before(
    before: list[int], between_s: int, after: list[int]
) -> None:
    """The clocks of the two sweepers have nothing to do with each other."""
    first, now = Observer(), 0.0
    first.look(now, {"worker": 7})
    for gap_s in before:
        now += gap_s
        first.look(now, {"worker": 7})

    second, now, watched_s = Observer(seen=first.seen), now + between_s, sum(before)
    found = [second.look(now, {"worker": 7})]
    for gap_s in after:
        now += gap_s
        found.append(second.look(now, {"worker": 7}))

    watched = [watched_s + sum(after[:place]) for place in range(len(after) + 1)]
    assert found == [["worker"] if each >= SILENCE_S else [] for each in watched]

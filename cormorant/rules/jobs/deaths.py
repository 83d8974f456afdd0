"""Which workers are dead? Death is observed, not computed from clocks that may be wrong."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class LastBeat:
    """A beat, and since when (on the observer's own monotonic clock) it has been the last one seen."""

    beat: int
    since: float


@frozen(kw_only=True)
class LivenessObservation:
    """What one observer knows: the last sighting of each worker, and when it last looked."""

    sightings: Mapping[str, LastBeat] = {}
    looked_at: float | None = None


def look(
    watch: LivenessObservation, beats: Mapping[str, int], *, now: float, interval_s: float, silence_s: float
) -> tuple[LivenessObservation, list[str]]:
    """Take a look at everyone's beats; who has been silent for `silence_s` of our own watching is dead.

    A gap of more than two intervals between looks means that we were asleep, or that the database was away, perhaps
    for the others too: the observation begins anew, so that an outage, a suspend or a clock set wrong kills nobody.

    >>> watch, dead = look(LivenessObservation(), {"w": 7}, now=0.0, interval_s=60, silence_s=120)
    >>> watch, dead = look(watch, {"w": 7}, now=60.0, interval_s=60, silence_s=120)
    >>> look(watch, {"w": 7}, now=120.0, interval_s=60, silence_s=120)[1]
    ['w']
    """
    slept = watch.looked_at is None or now - watch.looked_at > 2 * interval_s
    before = {} if slept else watch.sightings
    sightings = {
        worker: before[worker] if worker in before and before[worker].beat == beat else LastBeat(beat, now)
        for worker, beat in beats.items()
    }
    dead = [worker for worker, seen in sightings.items() if now - seen.since >= silence_s]
    return LivenessObservation(sightings=sightings, looked_at=now), dead

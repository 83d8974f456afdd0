"""What do the states of slskd mean? They are flags joined by commas, and "Completed" alone is no success."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from cormorant.rules.watch.handovers import ParcelState, ParcelStatus

_LIVE: Final = {"Initializing", "InProgress"}
_TOLD_MAX: Final = 3


def flags_of(state: str) -> frozenset[str]:
    """The flags of a state.

    >>> sorted(flags_of("Completed, TimedOut"))
    ['Completed', 'TimedOut']
    """
    return frozenset(flag.strip() for flag in state.split(",") if flag.strip())


@frozen(kw_only=True)
class Transfer:
    """A file that slskd fetches or has fetched. `will_retry`: it failed, and slskd tries it again by itself."""

    id: str
    filename: str
    state: str
    requested_at: str = ""
    bytes_done: int = 0
    place_in_queue: int | None = None
    exception: str = ""
    will_retry: bool = False

    @property
    def flags(self) -> frozenset[str]:
        """The flags of its state."""
        return flags_of(self.state)

    @property
    def standing(self) -> ParcelState:
        """Where it stands.

        >>> for state in "Queued, Remotely", "InProgress", "Completed, Succeeded", "Completed, Rejected", "Completed":
        ...     print(Transfer(id="", filename="", state=state).standing.value)
        present
        running
        done
        failed
        failed
        """
        if "Completed" in self.flags:
            if "Succeeded" in self.flags:
                return ParcelState.DONE
            return ParcelState.PRESENT if self.will_retry else ParcelState.FAILED
        return ParcelState.RUNNING if self.flags & _LIVE else ParcelState.PRESENT

    @property
    def why(self) -> str:
        """Why it failed."""
        return self.exception or ", ".join(sorted(self.flags - {"Completed"})) or "it ended without a result"


def newest(transfers: Iterable[Transfer]) -> dict[str, Transfer]:
    """The last try of each file, by its name."""
    last: dict[str, Transfer] = {}
    for transfer in transfers:
        known = last.get(transfer.filename)
        if known is None or transfer.requested_at >= known.requested_at:
            last[transfer.filename] = transfer
    return last


def receipt_of_transfers(filenames: Iterable[str], transfers: Iterable[Transfer], *, target_id: str) -> ParcelStatus:
    """What is told of files that belong together: done when all are, failed when one is and no other is still coming."""
    wanted = list(dict.fromkeys(filenames))
    last = newest(transfers)
    found = [last[name] for name in wanted if name in last]
    if not found:
        return ParcelStatus(target_id=target_id, standing=ParcelState.ABSENT)
    standings = [transfer.standing for transfer in found]
    counted = f"{standings.count(ParcelState.DONE)} of {len(wanted)} files are done"
    if ParcelState.RUNNING in standings:
        return ParcelStatus(target_id=target_id, standing=ParcelState.RUNNING, reason=counted)
    if ParcelState.PRESENT in standings:
        return ParcelStatus(target_id=target_id, standing=ParcelState.PRESENT, reason=f"{counted}{_queue(found)}")
    if ParcelState.FAILED in standings:
        return ParcelStatus(target_id=target_id, standing=ParcelState.FAILED, reason=_failures(found, counted))
    if len(found) < len(wanted):
        # Transfers show up some seconds late: that is no failure yet.
        why = f"{counted}, the others are not listed"
        return ParcelStatus(target_id=target_id, standing=ParcelState.RUNNING, reason=why, is_stalled=True)
    return ParcelStatus(target_id=target_id, standing=ParcelState.DONE)


def _queue(transfers: Iterable[Transfer]) -> str:
    places = [transfer.place_in_queue for transfer in transfers if transfer.place_in_queue is not None]
    return f", place {min(places)} in the queue of the peer" if places else ""


def _failures(transfers: Iterable[Transfer], counted: str) -> str:
    failed = [transfer for transfer in transfers if transfer.standing is ParcelState.FAILED]
    causes = list(dict.fromkeys(transfer.why for transfer in failed))
    return f"{counted}, {len(failed)} failed: {'; '.join(causes[:_TOLD_MAX])}"

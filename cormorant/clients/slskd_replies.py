"""Reads slskd's replies and transfer states (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import frozen

from cormorant.rules.json_documents import Json, number_of, objects_of, text_of
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import shortened
from cormorant.rules.watch.handovers import ParcelState, ParcelStatus
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse


def read_responses(body: list[Any]) -> tuple[PeerResponse, ...]:
    """What the peers offer."""
    return tuple(_response(item) for item in body if isinstance(item, dict) and text_of(item, "username"))


def read_transfers(body: Any) -> list[Transfer]:
    """All transfers anywhere in a list by user and folder, or in a batch."""
    return [_transfer(item) for item in _leaves(body) if text_of(item, "filename")]


def _response(item: Json) -> PeerResponse:
    return PeerResponse(
        username=text_of(item, "username"),
        files=tuple(_files(item, "files")),
        locked_files=tuple(_files(item, "lockedFiles")),
        has_free_slot=item.get("hasFreeUploadSlot") is True,
        speed_bytes_s=number_of(item, "uploadSpeed") or 0,
        queue_length=number_of(item, "queueLength") or 0,
    )


def _files(item: Json, name: str) -> Iterator[PeerFile]:
    for file in objects_of(item, name):
        yield PeerFile(
            filename=text_of(file, "filename"),
            size_bytes=number_of(file, "size") or 0,
            bit_rate=number_of(file, "bitRate"),
            length_s=number_of(file, "length"),
            is_locked=file.get("isLocked") is True,
        )


def _leaves(body: Any) -> Iterator[Json]:
    """The transfers in [{directories: [{files: […]}]}], in one of these objects, or in a batch."""
    for user in body if isinstance(body, list) else [body]:
        if isinstance(user, dict):
            yield from objects_of(user, "transfers")
            for directory in objects_of(user, "directories"):
                yield from objects_of(directory, "files")


def _transfer(item: Json) -> Transfer:
    return Transfer(
        id=text_of(item, "id"),
        filename=text_of(item, "filename"),
        state=text_of(item, "state"),
        requested_at=text_of(item, "requestedAt"),
        place_in_queue=number_of(item, "placeInQueue"),
        exception=shortened(text_of(item, "exception")),
        will_retry=bool(text_of(item, "nextAttemptAt")),
    )


BUSY_S: Final = 2.0
"""slskd starts one search at a time, and does not say when the next may come: it takes a moment."""

OFFLINE_S: Final = 60.0
"""After so long it may be connected to Soulseek again."""

_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_CREDENTIALS: Final = {401, 403}
_NOT_FOUND: Final = {404, 405}
_PASSING: Final = {
    409: ("slskd is not connected to Soulseek", OFFLINE_S),
    429: ("slskd is just starting another search", BUSY_S),
}


def error_of_search(status: int, words: str = "") -> SourceError | None:
    """The error that a reply stands for; None when it is none.

    >>> for status in 200, 401, 404, 409, 429, 400, 500:
    ...     print(status, type(error_of_search(status)).__name__)
    200 NoneType
    401 CredentialsRefused
    404 SourceRefused
    409 SourceUnavailable
    429 SourceUnavailable
    400 SourceRefused
    500 SourceUnavailable
    """
    said = f"HTTP {status}, {words}" if words else f"HTTP {status}"
    if status in _OK:
        return None
    if status in _CREDENTIALS:
        return CredentialsRefused(
            f"slskd does not accept our key ({said}); check the key, its role and the addresses it is bound to"
        )
    if status in _NOT_FOUND:
        return SourceRefused(f"there is no slskd at this address ({said}); check the address, also its url_base")
    passing = _PASSING.get(status)
    if passing is not None:
        return SourceUnavailable(f"{passing[0]} ({said})", retry_after_s=passing[1])
    if status in _CLIENT_ERRORS:
        return SourceRefused(f"slskd refused the search ({said})")
    return SourceUnavailable(f"slskd cannot search now ({said})")


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

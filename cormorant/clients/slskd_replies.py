"""What do the replies of slskd hold? What is null there is left out; what is of another kind is taken for absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cormorant.clients.slskd_states import Transfer
from cormorant.rules.secrets import told
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse

Json = Mapping[str, Any]

_NUMBER_MAX: Final = 2**63 - 1


def read_responses(body: list[Any]) -> tuple[PeerResponse, ...]:
    """What the peers offer."""
    return tuple(_response(item) for item in body if isinstance(item, dict) and text_of(item, "username"))


def read_transfers(body: Any) -> list[Transfer]:
    """All transfers anywhere in a list by user and folder, or in a batch."""
    return [_transfer(item) for item in _leaves(body) if text_of(item, "filename")]


def text_of(item: Json, name: str) -> str:
    """A text; empty when there is none."""
    value = item.get(name)
    return value if isinstance(value, str) else ""


def number_of(item: Json, name: str) -> int | None:
    """A whole number from 0 that a database can hold; None when there is none."""
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
        return None
    return int(value)


def objects_of(item: Json, name: str) -> list[Json]:
    """The objects in a list; none when there is no list."""
    value = item.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


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
            bit_depth=number_of(file, "bitDepth"),
            sample_rate=number_of(file, "sampleRate"),
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
        bytes_done=number_of(item, "bytesTransferred") or 0,
        place_in_queue=number_of(item, "placeInQueue"),
        exception=told(text_of(item, "exception")),
        will_retry=bool(text_of(item, "nextAttemptAt")),
    )

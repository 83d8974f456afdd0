"""Tests a source by one request for its caps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import trio

from actors.environment import AskCaps
from cormorant.rules.errors import CormorantError
from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.outcomes import SourceError, SourceUnavailable
from cormorant.rules.search.priorities import TIMEOUT_S, Priority
from cormorant.rules.search.requests import Caps
from cormorant.rules.search.reservations import (
    PROBE_GRACE_S,
    Reserved,
    SourceClosedNow,
    end_of,
)
from storage.database import Database
from storage.search import source_states
from storage.search.requests import record_caps
from storage.search.source_states import ReservationRequest
from storage.search.sources import SourceRecord

__all__ = ["SourceClosed", "test_source"]

CONSUMER: Final = "cormorant sources test"
_TIMEOUT_S: Final = TIMEOUT_S[Priority.INTERACTIVE]
_RECORD_S: Final = 5.0


class SourceClosed(CormorantError):
    """The source may not be asked now."""


async def test_source(database: Database, record: SourceRecord, ask_caps: AskCaps) -> Caps:
    """The caps of a source, asked now and stored. Raises `SourceClosed` or the error of the source."""
    wanted = ReservationRequest(priority=Priority.INTERACTIVE, lease_s=_TIMEOUT_S + PROBE_GRACE_S, consumer=CONSUMER)
    answer, _ = await database.run(
        source_states.reserve, record.id, wanted, configured=record.limits, now=datetime.now(UTC)
    )
    if isinstance(answer, SourceClosedNow):
        raise SourceClosed(f"{record.name} may not be asked now")
    return await _ask(database, record, ask_caps, answer)


async def _ask(database: Database, record: SourceRecord, ask_caps: AskCaps, reserved: Reserved) -> Caps:
    caps: Caps | None = None
    end = end_of(KeyboardInterrupt())  # whatever cuts it short is ours
    try:
        with trio.move_on_after(_TIMEOUT_S):
            caps = await ask_caps(record)
        if caps is None:
            raise SourceUnavailable(f"it did not answer within {_TIMEOUT_S:g} s")
        end = end_of(None)
    except SourceError as error:
        end = end_of(error)
        raise
    finally:
        with trio.move_on_after(_RECORD_S, shield=True):
            await database.run(
                record_caps,
                record,
                reserved.permit,
                end,
                None if caps is None else dump_caps(caps),
                now=datetime.now(UTC),
            )
    return caps

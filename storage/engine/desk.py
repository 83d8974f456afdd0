"""Over which connection is a call served, and what if that connection is dead?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import outcome

from cormorant.rules.errors import CommitUnknown
from storage.engine.calls import Call, CallSession, DatabaseAway


class ConnectionWorker:
    """Serves calls over one session that is opened when needed. A thread's own, or the loop's when in line."""

    def __init__(self, open_session: Callable[[], CallSession]) -> None:
        self._open = open_session
        self._session: CallSession | None = None
        self._busy_since: float | None = None

    def serve(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        """Give each call its outcome. Those left without one surely did not run, because the database is away."""
        was_open = self._session is not None
        away = self._attempt(calls)
        # A connection that idled may be long dead while the database is well: one new try, at once.
        if away is not None and away.is_stale and was_open:
            away = self._attempt([call for call in calls if call.outcome is None])
        return away

    def cut_if_hung(self, limit_s: float) -> None:
        """End what the session does when that takes longer than any time-out of the database explains."""
        busy_since, session = self._busy_since, self._session
        if session is not None and busy_since is not None and time.monotonic() - busy_since > limit_s:
            session.cut()

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _attempt(self, calls: Sequence[Call[Any]]) -> DatabaseAway | None:
        self._busy_since = time.monotonic()
        is_settled = False
        try:
            self._session = self._session or self._open()
            self._session.serve(calls)
            is_settled = True
        except DatabaseAway as away:
            self.close()
            is_settled = True
            return away
        finally:
            self._busy_since = None
            if not is_settled:
                _give_up(calls)
        if not self._session.is_usable:
            self.close()
        return None


def _give_up(calls: Sequence[Call[Any]]) -> None:
    """Nobody waits for ever when the gateway itself crashes, and nobody is told more than is known."""
    for call in calls:
        if call.outcome is None:
            call.outcome = outcome.Error(CommitUnknown("the storage gateway crashed with this call in hand"))

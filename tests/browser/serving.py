"""A service on a real socket in a thread of its own, for tests whose own thread belongs to the browser."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import trio
from sqlalchemy import Connection, text

from cormorant.rules.search.limits import Lane
from cormorant.scripted import ScriptedSource
from supervisors import Service
from tests.bounds import WAIT_S
from tests.web.web_place import WebPlace, web_place

T = TypeVar("T")


class Serving:
    """The service, its sources and what it told. `call` runs something inside of it."""

    def __init__(self, data: Path, scripts: dict[str, ScriptedSource], /, **chosen: Any) -> None:
        self._data = data
        self._scripts = scripts
        self._chosen = chosen
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self.place: WebPlace
        self.service: Service
        self._token: trio.lowlevel.TrioToken
        self._told: trio.Event

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"{self.place.address}/"

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """What an async function says that is run where the service runs."""
        return trio.from_thread.run(function, *args, trio_token=self._token)

    def spend(self, source: str, counts: dict[tuple[str, Lane], int], *, ago_s: float = 30.0) -> None:
        """Let clients have spent requests at a source, evenly over the last hours; the last one `ago_s` ago."""
        last = self.service.clock.now() - timedelta(seconds=ago_s)
        self.call(partial(self.service.transaction, _spend, source, counts, last=last))

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_up.wait(WAIT_S) or self._error is not None:
            raise RuntimeError("the service did not start") from self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._token.run_sync_soon(self._told.set)
        self._thread.join(WAIT_S)
        if self._thread.is_alive():
            raise RuntimeError("the service did not stop")

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 - handed over to whoever waits for the start
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self) -> None:
        with web_place(self._data, **self._scripts) as place:
            self.place, self._token, self._told = place, trio.lowlevel.current_trio_token(), trio.Event()
            async with place.service(**self._chosen) as service:
                self.service = service
                await service.sources.directory.loaded.wait()
                self._is_up.set()
                await self._told.wait()


def _spend(connection: Connection, source: str, counts: dict[tuple[str, Lane], int], *, last: datetime) -> None:
    words = {"name": source}
    source_id = connection.execute(text("SELECT id FROM sources WHERE name = :name"), words).scalar_one()
    connection.execute(text("INSERT OR IGNORE INTO source_state (source_id) VALUES (:id)"), {"id": source_id})
    for lane in Lane:
        made = [consumer for (consumer, each), count in counts.items() if each is lane for _ in range(count)]
        for place, consumer in enumerate(made):
            at = last - timedelta(seconds=(len(made) - 1 - place) * 80_000 / max(1, len(made)))
            connection.execute(_REQUEST, _row(source_id, lane, place + 1, at, consumer))
        if made:
            state = {"id": source_id, "seq": len(made), "at": _micros(last)}
            connection.execute(text(_STATE.format(lane=lane.value)), state)


def _row(source_id: int, lane: Lane, seq: int, at: datetime, consumer: str) -> dict[str, object]:
    moment = _micros(at)
    return {"id": source_id, "lane": lane.value, "seq": seq, "at": moment, "end": moment, "consumer": consumer}


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


_REQUEST = text("INSERT INTO source_requests VALUES (:id, :lane, :seq, :at, :end, :consumer)")
_STATE = """
    UPDATE source_state SET {lane}_last_seq = :seq, {lane}_last_at = :at, {lane}_last_end_at = :at, version = version + 1
    WHERE source_id = :id
"""

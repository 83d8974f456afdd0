"""ChangeListener: reports that another process has written; one per database, fanned out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from cormorant.rules.ports import Chance
from cormorant.rules.supervision import delay_before_probe
from storage.engine.calls import DatabaseAway

LOOK_S = 0.1
"""How often one looks at what does not tell. Ten microseconds each, so that it needs no thread."""


class ChangeListener(Protocol):
    """Something that hears of changes. Its methods do not wait, but for `close`."""

    def fileno(self) -> int | None:
        """What becomes readable when there is something to hear. None: it must be asked now and then."""
        ...

    def poll(self) -> bool:
        """Whether there was anything since the last time. Raises `DatabaseAway` when it cannot hear any more."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


async def listen(
    open_listener: Callable[[], ChangeListener | None], heard: Callable[[], None], *, chance: Chance
) -> None:
    """Call `heard` whenever somebody has written, for ever. A lost connection is opened anew; what was missed counts once."""
    failures = 0
    while True:
        try:
            listener = await trio.to_thread.run_sync(open_listener)
            if listener is None:
                await trio.sleep_forever()
            failures = 0
            await _listen_with(listener, heard)
        except DatabaseAway:
            await trio.sleep(delay_before_probe(failures=failures, jitter=chance.random()))
            failures += 1


async def _listen_with(listener: ChangeListener, heard: Callable[[], None]) -> None:
    try:
        heard()
        while True:
            await _something(listener)
            if listener.poll():
                heard()
    finally:
        listener.close()


async def _something(listener: ChangeListener) -> None:
    file = listener.fileno()
    if file is None:
        await trio.sleep(LOOK_S)
    else:
        await trio.lowlevel.wait_readable(file)

"""A stand-in in a thread of its own, for commands that run in other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread

import trio

from cormorant.playground import open_playground
from cormorant.playground.http import StandInSite
from tests.bounds import WAIT_S


@contextmanager
def served_by_thread(site: StandInSite) -> Iterator[str]:
    """The address of a stand-in."""
    opened: SimpleQueue[tuple[str, trio.lowlevel.TrioToken, trio.Event]] = SimpleQueue()

    async def serve() -> None:
        async with open_playground(site) as playground:
            over = trio.Event()
            opened.put((playground.url_of(site.name), trio.lowlevel.current_trio_token(), over))
            await over.wait()

    thread = Thread(target=trio.run, args=(serve,))
    thread.start()
    url, token, over = opened.get(timeout=WAIT_S)
    try:
        yield url
    finally:
        token.run_sync_soon(over.set)
        thread.join()

"""Processes that collect prices from a site on loopback. Run as `python -m tests.chaos.price_worker`.

For each line of orders so many children are forked that work until they are killed, and their numbers are said in a line: loading
everything anew for each takes longer than the rest together.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import trio

import storage.engine.postgres
import storage.engine.sqlite  # noqa: F401 - as the line above: loaded before the first fork, not after each
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, ServiceSettings, Settings, StorageSettings
from cormorant.rules.settings.sources import SourceSettings
from supervisors.service import open_service


def settings_of(orders: dict[str, Any]) -> Settings:
    """The settings of the service: everything as fast as it may be."""
    return Settings(
        data=orders["data"],
        storage=StorageSettings(url=Secret(orders["url"])),
        service=ServiceSettings(worker_id=f"worker {os.getpid()}"),
        web=WebSettings(enabled=False),
        jobs=JobSettings(
            heartbeat_s=0.2, lock_timeout_s=orders["lock_timeout_s"], sweep_s=2.0, poll_s=0.5, concurrency=4
        ),
        sources={
            name: SourceSettings(kind="prices", url=f"{orders['shop']}/{name}", spacing_s=0.0, pace_s=0.0, in_flight=8)
            for name in ("shop", *orders.get("others", ()))
        },
    )


async def work(orders: dict[str, Any]) -> None:
    """Work until killed."""
    async with open_service(settings_of(orders)):
        await trio.sleep_forever()


def fork(orders: dict[str, Any]) -> int:
    """The number of a new process that works."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        trio.run(work, orders)
        os._exit(0)
    return child


def main() -> None:
    """Fork for each line; end all of them with the last."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need not be waited for
    children = []
    for line in sys.stdin:
        orders = json.loads(line)
        new = [fork(orders) for _ in range(orders["number"])]
        os.write(1, f"{' '.join(map(str, new))}\n".encode())
        children += new
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()

"""A process that collects prices from a site on loopback. Run as `python -m tests.chaos.price_worker ORDERS`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import trio

from cormorant.rules.secrets import Secret
from cormorant.rules.settings import JobSettings, ServiceSettings, Settings, StorageSettings
from cormorant.rules.source_settings import SourceSettings
from cormorant.rules.web_settings import WebSettings
from supervisors.service import open_service


def settings_of(orders: dict[str, Any]) -> Settings:
    """The settings of the service: everything as fast as it may be."""
    return Settings(
        data=orders["data"],
        storage=StorageSettings(url=Secret(orders["url"])),
        service=ServiceSettings(worker_id=f"worker {os.getpid()}"),
        web=WebSettings(enabled=False),
        jobs=JobSettings(heartbeat_s=0.2, lock_timeout_s=1.5, sweep_s=0.3, poll_s=0.5, concurrency=4),
        sources={
            "shop": SourceSettings(kind="prices", url=orders["shop"], spacing_s=0.0, pace_s=0.0, in_flight=8),
        },
    )


async def work(orders: dict[str, Any]) -> None:
    """Work until killed."""
    async with open_service(settings_of(orders)):
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(work, json.loads(sys.argv[1]))

"""A process that watches artists, searches and hands over: the real service against servers elsewhere. Started by `crew.py`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import JobSettings, ServiceSettings, Settings, StorageSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import ArtistOptions, TargetSettings, WatchlistSettings
from cormorant.rules.watch import handovers
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.services.watch import handover_job
from supervisors import Service
from supervisors.service import open_service
from tests.chaos.journal import CRASHED, Pen
from tests.chaos.worker import DEAD_AFTER_S, serve, tell
from tests.environments import environment_of

CHECK_S = 1.0
SERVED = {"torrents": "qbittorrent", "nzbs": "sabnzbd", "held": "hold", "resent": "resend"}
"""Whose releases go to which target."""
AT_HOME = {"peers": "slskd", "files": "folder", "programs": "command"}
"""The same, for targets that are not asked over HTTP, and for slskd."""
SEARCHED = {"sabnzbd": "usenet", "slskd": "slskd"}
"""Where finds for a target are searched, if not at the trackers."""
TAKE = 'echo "$1" >> "$0"; /bin/sleep "$2"'
"""A program that takes what it is given, and is busy for a while afterwards."""


@frozen(kw_only=True)
class WatchOrders:
    """Where everything is, and how fast it goes."""

    url: str
    journal: str
    ports: dict[str, int]
    artists: dict[str, str]
    sabnzbd_key: str
    slskd_key: str
    doubt_s: float
    linger_s: float

    def settings(self) -> Settings:
        """The settings of the service."""
        at = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        # With many at once: each process that is killed keeps its requests in flight for a while.
        free: dict[str, Any] = {"spacing_s": 0.0, "pace_s": 0.0, "per_minute": 10_000, "in_flight": 50}
        return Settings(
            data=str(Path(self.journal).parent),
            mode="live",
            storage=StorageSettings(url=Secret(self.url)),
            service=ServiceSettings(worker_id=f"watcher {os.getpid()}", stop_total_s=40.0),
            web=WebSettings(enabled=False),
            jobs=JobSettings(
                heartbeat_s=0.2,
                lock_timeout_s=DEAD_AFTER_S,
                sweep_s=2.0,
                poll_s=2.0,
                max_attempts=1_000,
                retry_base_s=0.5,
                retry_cap_s=2.0,
            ),
            sources={
                "spotify": SourceSettings(
                    kind="spotify", url=f"{at['spotify']}/v1", id="playground", key=Secret("playground-secret"), **free
                ),
                "trackers": SourceSettings(url=f"{at['indexer']}/torrents/api", **free),
                "usenet": SourceSettings(kind="newznab", url=f"{at['indexer']}/nzbs/api", **free),
                "slskd": SourceSettings(kind="slskd", url=at["slskd"], key=Secret(self.slskd_key), **free),
            },
            watchlist=WatchlistSettings(interval_s=0.5, tick_budget_s=30.0, every_s=60.0),
            targets={
                "qbittorrent": TargetSettings(url=at["qbittorrent"], username="admin", password=Secret("adminadmin")),
                "sabnzbd": TargetSettings(kind="sabnzbd", url=at["sabnzbd"], key=Secret(self.sabnzbd_key)),
                "hold": TargetSettings(kind="webhook", url=at["hold"], in_doubt="hold"),
                "resend": TargetSettings(kind="webhook", url=at["resend"], in_doubt="resend"),
                "slskd": TargetSettings(kind="slskd", source="slskd"),
                "folder": TargetSettings(kind="blackhole", folder="watched"),
                "command": TargetSettings(kind="command", command=self._command(), in_doubt="hold"),
            },
        )

    def _command(self) -> tuple[str, ...]:
        taken = Path(self.journal).parent / "taken by command"
        return ("/bin/sh", "-c", TAKE, str(taken), "{key}", str(self.linger_s), "{file}")


async def watch(orders: WatchOrders, pen: Pen) -> None:
    """Watch until killed, as somebody impatient does."""
    for module in (handovers, handover_job):
        vars(module)["DOUBT_S"] = orders.doubt_s  # nobody waits that long in a test that is short
    async with open_service(
        orders.settings(), environment=environment_of(listeners=[lambda stamped: tell(pen, stamped)])
    ) as service:
        for artist, target in orders.artists.items():
            searched = SEARCHED.get(target, "trackers")
            found = CatalogueArtist(id=artist, name=artist.upper())
            await service.artists.add_new([found], ArtistOptions(start="all", hand_to=(target,), search=(searched,)))
        await _check_on(service, orders.artists)


async def _check_on(service: Service, artists: Iterable[str]) -> None:
    while True:
        for artist in artists:
            await service.artists.check(artist)
        await trio.sleep(CHECK_S)


def run(orders: WatchOrders) -> int:
    """A whole life; the exit code."""
    pen = Pen(Path(orders.journal))
    try:
        trio.run(watch, orders, pen)
    except BaseException:  # noqa: BLE001 - the end of the process: whatever it is, the test shall see it
        pen.write(CRASHED, {"trace": traceback.format_exc()})
        return 1
    return 0


if __name__ == "__main__":
    serve(lambda orders: run(WatchOrders(**orders)))

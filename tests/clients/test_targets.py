"""What holds for every target: one interface, nothing false is given, nothing is known before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cormorant.clients.targets.blackhole import Blackhole
from cormorant.clients.targets.command import Command
from cormorant.clients.targets.download_folder import DownloadFolder
from cormorant.clients.targets.qbittorrent import Qbittorrent
from cormorant.clients.targets.sabnzbd import Sabnzbd
from cormorant.clients.targets.target import Target
from cormorant.clients.targets.webhook import Webhook
from cormorant.playground.sabnzbd import SabnzbdStandIn
from cormorant.playground.world import WebhookStandIn
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import ParcelKind, ParcelState, TargetRefused
from cormorant.testing import SimulatedClock, in_line
from tests.clients.mounted import mounted
from tests.clients.parcel_samples import HTML, parcel
from tests.environments import environment_of
from tests.stand_ins.qbittorrent import OddQbittorrent

NAMES = ("qbittorrent", "sabnzbd", "blackhole", "download", "webhook", "command")


@asynccontextmanager
async def target_called(name: str, folder: Path) -> AsyncIterator[Target]:
    sabnzbd = SabnzbdStandIn()
    qbittorrent = OddQbittorrent(api_key="key")
    answers = {"qbittorrent": qbittorrent.answer, "sabnzbd": sabnzbd.answer}
    async with mounted(answers.get(name, WebhookStandIn().answer)) as server:
        transport, environment = server.transport, environment_of(offload=in_line, clock=SimulatedClock())
        settings, with_key = TargetSettings(url=server.url), TargetSettings(url=server.url, key=Secret(sabnzbd.key))
        made: dict[str, Target] = {
            "qbittorrent": Qbittorrent(settings, transport, environment),
            "sabnzbd": Sabnzbd(with_key, transport, environment),
            "blackhole": Blackhole(folder, offload=in_line),
            "download": DownloadFolder(folder, "{title}", transport, environment, size_max_bytes=1_000_000),
            "webhook": Webhook(settings, transport, environment),
            "command": Command(("/bin/true",), timeout_s=60.0, offload=in_line),
        }
        yield made[name]


@pytest.mark.parametrize("kind", [ParcelKind.TORRENT, ParcelKind.NZB, ParcelKind.MAGNET, ParcelKind.URL])
@pytest.mark.parametrize("name", NAMES)
async def test_what_is_not_what_it_is_called_is_refused_by_all(tmp_path: Path, name: str, kind: ParcelKind) -> None:
    async with target_called(name, tmp_path) as target:
        with pytest.raises(TargetRefused, match="is none|takes no|leads neither"):
            await target.submit(parcel(kind, body=HTML, link="javascript:alert(1)"))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "qbittorrent"])
async def test_before_it_was_given_it_is_absent_or_nobody_knows(tmp_path: Path, name: str) -> None:
    async with target_called(name, tmp_path) as target:
        receipt = await target.status(parcel(next(iter(target.takes))), None)

    assert receipt.standing is (ParcelState.ABSENT if target.can_be_asked else ParcelState.UNKNOWN)

"""Targets made from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from attrs import evolve

from actors.environment import Environment
from actors.watch.handover_tracker import ConfiguredTarget
from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.blackhole import Blackhole
from cormorant.clients.targets.command import Command
from cormorant.clients.targets.download_folder import DownloadFolder
from cormorant.clients.targets.qbittorrent import Qbittorrent
from cormorant.clients.targets.sabnzbd import Sabnzbd
from cormorant.clients.targets.slskd import SlskdTarget
from cormorant.clients.targets.target import Target
from cormorant.clients.targets.webhook import Webhook
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import InDoubt

__all__ = ["targets_of"]

_CALLED: Final[Mapping[str, Callable[[TargetSettings, Transport, Environment], Target]]] = {
    "qbittorrent": Qbittorrent,
    "sabnzbd": Sabnzbd,
    "webhook": Webhook,
}


def targets_of(environment: Environment) -> dict[str, Target]:
    """The targets of the settings, by name. Nothing is reached yet."""
    return {name: _target(said, environment) for name, said in environment.settings.targets.items()}


def configured_targets(environment: Environment) -> dict[str, ConfiguredTarget]:
    """The targets with what is set for them. One that a program gives and the settings lack is held in doubt."""
    return {
        name: ConfiguredTarget(
            target=target,
            in_doubt=InDoubt(said.in_doubt),
            stalled_s=said.stalled_s,
            follow_s=said.follow_s,
        )
        for name, target in environment.clients.targets.items()
        for said in (environment.settings.targets.get(name) or TargetSettings(),)
    }


def _target(said: TargetSettings, environment: Environment) -> Target:
    """The target that settings mean."""
    data = Path(environment.settings.data)
    match said.kind:
        case "blackhole":
            return Blackhole(data / said.folder, offload=environment.offload, allows_magnets=said.magnets)
        case "command":
            return Command(said.command, timeout_s=said.timeout_s, offload=environment.offload)
        case "download":
            # The fixed part of the folder is the root, and the rest, with parts in braces, the name under it.
            fixed, template = split_template(said.folder)
            size_max_bytes = said.size_max_bytes
            return DownloadFolder(data / fixed, template, Transport(), environment, size_max_bytes=size_max_bytes)
        case "slskd":
            source = environment.settings.sources[said.source]
            said = evolve(said, url=source.url, key=source.key)
            return SlskdTarget(said, Transport(written=[said.url]), environment)
        case _:
            return _CALLED[said.kind](said, Transport(written=[said.url]), environment)


def split_template(folder: str) -> tuple[str, str]:
    """The part of a folder that is the same for all, and what differs.

    >>> split_template("podcasts/{feed}"), split_template("/srv/music"), split_template("{feed}/{title}")
    (('podcasts', '{feed}/{title}'), ('/srv/music', '{title}'), ('', '{feed}/{title}'))
    """
    parts = folder.rstrip("/").split("/")
    at = next((place for place, part in enumerate(parts) if "{" in part), len(parts))
    fixed, rest = "/".join(parts[:at]), "/".join(parts[at:])
    if "{title}" not in rest:
        rest = f"{rest}/{{title}}" if rest else "{title}"
    return fixed, rest

"""Targets made from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from actors.environment import Environment
from actors.watch.handover_tracker import ConfiguredTarget
from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.blackhole import Blackhole
from cormorant.clients.targets.command import Command, CommandOptions
from cormorant.clients.targets.download_folder import DownloadFolder, DownloadOptions
from cormorant.clients.targets.qbittorrent import Qbittorrent, QbittorrentOptions
from cormorant.clients.targets.sabnzbd import Sabnzbd, SabnzbdOptions
from cormorant.clients.targets.slskd import SlskdTarget, SlskdTargetOptions
from cormorant.clients.targets.target import Target
from cormorant.clients.targets.webhook import Webhook, WebhookOptions
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import InDoubt

__all__ = ["targets_of"]

_PAUSED_PRIORITY: Final = -2


def targets_of(environment: Environment) -> dict[str, Target]:
    """The targets of the settings, by name. Nothing is reached yet."""
    maker = _Maker(environment)
    return {name: maker.make(said) for name, said in environment.settings.targets.items()}


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


@frozen
class _Maker:
    """Makes targets."""

    environment: Environment

    def make(self, said: TargetSettings) -> Target:
        """The target that settings mean."""
        makers: Mapping[str, Callable[[TargetSettings], Target]] = {
            "qbittorrent": self._qbittorrent,
            "sabnzbd": self._sabnzbd,
            "slskd": self._slskd,
            "webhook": self._webhook,
            "blackhole": self._blackhole,
            "command": self._command,
            "download": self._download,
        }
        return makers[said.kind](said)

    def _blackhole(self, said: TargetSettings) -> Target:
        folder = self._under_data(said.folder)
        return Blackhole(folder, offload=self.environment.offload, allows_magnets=said.magnets)

    def _command(self, said: TargetSettings) -> Target:
        return Command(
            offload=self.environment.offload, options=CommandOptions(arguments=said.command, timeout_s=said.timeout_s)
        )

    def _qbittorrent(self, said: TargetSettings) -> Target:
        options = QbittorrentOptions(
            user=said.username,
            password=said.password,
            key=said.key,
            category=said.category,
            tags=said.tags,
            save_path=said.folder,
            is_stopped=said.paused,
            timeout_s=said.timeout_s,
        )
        return Qbittorrent(said.url, Transport(written=[said.url]), self.environment, options)

    def _sabnzbd(self, said: TargetSettings) -> Target:
        options = SabnzbdOptions(category=said.category, timeout_s=said.timeout_s)
        if said.paused:
            options = SabnzbdOptions(category=said.category, timeout_s=said.timeout_s, priority=_PAUSED_PRIORITY)
        return Sabnzbd(said.url, said.key, Transport(written=[said.url]), self.environment, options)

    def _slskd(self, said: TargetSettings) -> Target:
        source = self.environment.settings.sources[said.source]
        options = SlskdTargetOptions(timeout_s=said.timeout_s)
        return SlskdTarget(source.url, source.key, Transport(written=[source.url]), self.environment, options)

    def _webhook(self, said: TargetSettings) -> Target:
        options = WebhookOptions(signing_secret=said.key, timeout_s=said.timeout_s)
        return Webhook(said.url, Transport(written=[said.url]), self.environment, options)

    def _download(self, said: TargetSettings) -> Target:
        """The fixed part of the folder is the root, and the rest, with parts in braces, the name under it."""
        fixed, template = split_template(said.folder)
        options = DownloadOptions(template=template, size_max_bytes=said.size_max_bytes)
        return DownloadFolder(self._under_data(fixed), Transport(), self.environment, options)

    def _under_data(self, folder: str) -> Path:
        return Path(self.environment.settings.data) / folder


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

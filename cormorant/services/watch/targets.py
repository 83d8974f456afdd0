"""Targets made from settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from attrs import define, field, frozen

from actors.environment import Environment
from actors.watch.handover_tracker import ConfiguredTarget
from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.blackhole import Blackhole, BlackholeOptions
from cormorant.clients.targets.command import Command, CommandOptions
from cormorant.clients.targets.download_folder import DownloadFolder, DownloadOptions
from cormorant.clients.targets.qbittorrent import Qbittorrent, QbittorrentOptions
from cormorant.clients.targets.sabnzbd import Sabnzbd, SabnzbdOptions
from cormorant.clients.targets.slskd import SlskdTarget, SlskdTargetOptions
from cormorant.clients.targets.target import Target
from cormorant.clients.targets.webhook import Webhook, WebhookOptions
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import InDoubt, Parcel, ParcelKind, ParcelStatus

__all__ = ["targets_of"]

_PAUSED_PRIORITY: Final = -2


@define(eq=False)
class _Open:
    """A transport that is open while someone uses it: targets live as long as the service, connections need not."""

    transport: Transport
    _users: int = 0

    async def __aenter__(self) -> None:
        self._users += 1
        if self._users == 1:
            await self.transport.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._users == 0:
            await self.transport.__aexit__(kind, error, trace)


@define(eq=False)
class _OpenedTarget:
    """A target behind a transport."""

    target: Target
    transport: Transport
    _open: _Open = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open = _Open(self.transport)

    @property
    def takes(self) -> frozenset[ParcelKind]:
        """As the target."""
        return self.target.takes

    @property
    def can_be_asked(self) -> bool:
        """As the target."""
        return self.target.can_be_asked

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Hand it over."""
        async with self._open:
            return await self.target.submit(parcel)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:
        """What became of it."""
        async with self._open:
            return await self.target.status(parcel, receipt)

    async def test(self) -> str:
        """Try it out."""
        async with self._open:
            return await self.target.test()


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
        options = BlackholeOptions(allows_magnets=said.magnets)
        return Blackhole(self._under_data(said.folder), offload=self.environment.offload, options=options)

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
        transport = Transport(written=[said.url])
        return _OpenedTarget(
            Qbittorrent(
                said.url, transport, offload=self.environment.offload, clock=self.environment.clock, options=options
            ),
            transport,
        )

    def _sabnzbd(self, said: TargetSettings) -> Target:
        options = SabnzbdOptions(category=said.category, timeout_s=said.timeout_s)
        if said.paused:
            options = SabnzbdOptions(category=said.category, timeout_s=said.timeout_s, priority=_PAUSED_PRIORITY)
        transport = Transport(written=[said.url])
        made = Sabnzbd(
            said.url,
            said.key,
            transport,
            offload=self.environment.offload,
            clock=self.environment.clock,
            options=options,
        )
        return _OpenedTarget(made, transport)

    def _slskd(self, said: TargetSettings) -> Target:
        source = self.environment.settings.sources[said.source]
        transport = Transport(written=[source.url])
        options = SlskdTargetOptions(timeout_s=said.timeout_s)
        made = SlskdTarget(
            source.url,
            source.key,
            transport,
            offload=self.environment.offload,
            clock=self.environment.clock,
            options=options,
        )
        return _OpenedTarget(made, transport)

    def _webhook(self, said: TargetSettings) -> Target:
        options = WebhookOptions(signing_secret=said.key, timeout_s=said.timeout_s)
        transport = Transport(written=[said.url])
        made = Webhook(
            said.url, transport, offload=self.environment.offload, clock=self.environment.clock, options=options
        )
        return _OpenedTarget(made, transport)

    def _download(self, said: TargetSettings) -> Target:
        """The fixed part of the folder is the root, and the rest, with parts in braces, the name under it."""
        fixed, template = split_template(said.folder)
        options = DownloadOptions(template=template, size_max_bytes=said.size_max_bytes)
        transport = Transport()
        made = DownloadFolder(
            self._under_data(fixed),
            transport,
            offload=self.environment.offload,
            clock=self.environment.clock,
            options=options,
        )
        return _OpenedTarget(made, transport)

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

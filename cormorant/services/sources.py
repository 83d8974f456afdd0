"""Sources: add, remove, test; configured and added together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

import trio
from attrs import frozen

from actors.environment import AskCaps, Environment
from cormorant.rules.addresses import normalised
from cormorant.rules.errors import ConflictError
from cormorant.rules.search import reservations
from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.limits import SourceLimits
from cormorant.rules.search.outcomes import SourceError, SourceUnavailable
from cormorant.rules.search.priorities import TIMEOUT_S, Priority
from cormorant.rules.search.requests import Caps
from cormorant.rules.search.reservations import PROBE_GRACE_S, Reserved, SourceClosedNow, end_of
from cormorant.rules.search.source_state import SourceState
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED, SPOTIFY_URL, SourceSettings, limits_of
from cormorant.rules.units import zone_of
from storage.search import source_states, source_views, sources
from storage.search.requests import record_caps
from storage.search.source_states import ReservationRequest
from storage.search.source_views import SourceView
from storage.search.sources import CONFIGURED, SourceRecord

CONSUMER: Final = "cormorant sources test"
_TIMEOUT_S: Final = TIMEOUT_S[Priority.INTERACTIVE]
_RECORD_S: Final = 5.0


class SourceClosed(ConflictError):
    """The source may not be asked now."""


class SourceInFile(ConflictError):
    """The settings file has this source. It is changed there."""


class CapsNotAsked(ConflictError):
    """A source of this kind is not asked for its caps."""


@frozen
class Sources:
    """The sources of the settings file and those that were added by command, whether a service runs or not."""

    environment: Environment

    async def views(self) -> list[SourceView]:
        """Every source, by name."""
        now = self.environment.now()
        return await self.environment.database.read(source_views.read_all, self._configured(), now=now)

    async def view(self, name: str) -> SourceView:
        """One source, or `UnknownSource`."""
        now = self.environment.now()
        return await self.environment.database.read(source_views.read_one, name, self._configured(), now=now)

    async def add(
        self, name: str, wanted: SourceSettings, limits: SourceLimits, *, file: str = "the settings file"
    ) -> bool:
        """Add a source. Returns whether it was there before; then it goes on from what was spent.

        `file` is the settings file as a refusal names it.
        """
        self._check_new(name, wanted, file)
        record = SourceRecord(
            name=name,
            identity=normalised(wanted.url),
            kind=wanted.kind,
            url=wanted.url,
            key=wanted.key,
            proxy=wanted.proxy,
            limits=limits,
        )
        return await self.environment.database.run(source_views.add_source, record, now=self.environment.now())

    async def remove(self, name: str, *, file: str = "the settings file") -> None:
        """Ask a source no more. What was spent is kept, should it come back."""
        if (await self.view(name)).is_configured:
            what = f"{name} is a source of {file}; it cannot be removed by command"
            raise SourceInFile(f"{what}: take [sources.{name}] out of that file, or write enabled = false there")
        await self.environment.database.run(sources.remove, name, now=self.environment.now())

    async def pause(self, name: str, *, until: datetime | None = None) -> SourceView:
        """Ask a source no more, until a moment or until it is resumed."""
        return await self._change(name, partial(reservations.pause, until=until))

    async def resume(self, name: str) -> SourceView:
        """Go on asking a source."""
        return await self._change(name, reservations.resume)

    async def reset(self, name: str) -> SourceView:
        """Forget cooldown, failures and refused credentials. What was spent stays spent."""
        return await self._change(name, reservations.reset)

    async def test(self, name: str) -> Caps:
        """The caps of a source, asked now and stored. Raises `SourceClosed`, `CapsNotAsked` or the error of the source."""
        database, now = self.environment.database, self.environment.now()
        record = await database.run(source_views.upsert_configured, name, self._configured(), now=now)
        ask_caps = self.environment.clients.caps
        if record.kind not in SEARCHED or ask_caps is None:
            raise CapsNotAsked(_untested(record))
        wanted = ReservationRequest(
            priority=Priority.INTERACTIVE, lease_s=_TIMEOUT_S + PROBE_GRACE_S, consumer=CONSUMER
        )
        answer, _ = await database.run(source_states.reserve, record.id, wanted, configured=record.limits, now=now)
        if isinstance(answer, SourceClosedNow):
            raise await self._closed(name)
        return await self._ask(record, ask_caps, answer)

    async def _closed(self, name: str) -> SourceClosed:
        zone = zone_of(self.environment.settings.time_zone)
        lines = (await self.view(name)).explain(Priority.INTERACTIVE, zone=zone).lines
        return SourceClosed(f"{name} may not be asked now and was not: {'; '.join(lines)}")

    async def _ask(self, record: SourceRecord, ask_caps: AskCaps, reserved: Reserved) -> Caps:
        caps: Caps | None = None
        end = end_of(KeyboardInterrupt())  # whatever cuts it short is ours
        try:
            with trio.move_on_after(_TIMEOUT_S):
                caps = await ask_caps(record)
            if caps is None:
                raise SourceUnavailable(f"it did not answer within {_TIMEOUT_S:g} s")
            end = end_of(None)
        except SourceError as error:
            end = end_of(error)
            raise
        finally:
            with trio.move_on_after(_RECORD_S, shield=True):
                await self.environment.database.run(
                    record_caps,
                    record,
                    reserved.permit,
                    end,
                    None if caps is None else dump_caps(caps),
                    now=self.environment.now(),
                )
        return caps

    async def _change(self, name: str, rule: Callable[[SourceState], SourceState]) -> SourceView:
        now = self.environment.now()
        await self.environment.database.run(source_views.change_state, name, rule, self._configured(), now=now)
        return await self.view(name)

    def _configured(self) -> list[SourceRecord]:
        return configured_sources(self.environment.settings)

    def _check_new(self, name: str, wanted: SourceSettings, file: str) -> None:
        configured = self.environment.settings.sources
        if name in configured:
            raise SourceInFile(f"{file} has a source {name} already; change it there, or choose another name")
        for other, source in configured.items():
            if source.url and normalised(source.url) == normalised(wanted.url):
                raise SourceInFile(f"{file} has this address already as {other}; one account has one source")


def _untested(record: SourceRecord) -> str:
    tries = "watchlist add ARTIST" if record.kind == "spotify" else f"search WORDS --source {record.name}"
    return f"{record.name} is of kind {record.kind} and not asked what it can do; cormorant {tries} tries it"


def configured_sources(settings: Settings) -> list[SourceRecord]:
    """The sources of the settings file that are in use."""
    return [
        SourceRecord(
            name=name,
            identity=_identity(source),
            kind=source.kind,
            url=_address(source),
            key=_key(source),
            proxy=source.proxy,
            limits=limits_of(source, settings.limits),
            origin=CONFIGURED,
        )
        for name, source in sorted(settings.sources.items())
        if source.enabled and _address(source)
    ]


def _address(source: SourceSettings) -> str:
    return source.url or (SPOTIFY_URL if source.kind == "spotify" else "")


def _identity(source: SourceSettings) -> str:
    """Spotify counts by app, and all apps have one address."""
    return normalised(_address(source)) + (f"#{source.id}" if source.kind == "spotify" else "")


def _key(source: SourceSettings) -> Secret:
    return Secret(f"{source.id}:{source.key.reveal()}") if source.kind == "spotify" else source.key

"""What the commands `cormorant sources` and `explain` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click
from attrs import frozen

from actors.environment import Environment
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.actions.source_json import explanation_json, source_json, sources_json
from cormorant.cli.actions.source_text import SourceText, caps_lines, host_of, sentence_of, state_of
from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused, display_path
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.rules.addresses import normalised
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.search import reservations
from cormorant.rules.search.caps import dump_caps
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.source_state import SourceState
from cormorant.rules.secrets import redact_secrets
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED, SourceSettings, limits_of
from cormorant.rules.units import clock_time, zone_of
from cormorant.services.source_clients import SourceClients
from cormorant.services.sources import SourceClosed, test_source
from storage.database import Database
from storage.search import source_views, sources
from storage.search.source_views import SourceView
from storage.search.sources import CONFIGURED, SourceExists, SourceRecord, UnknownSource
from supervisors.search_assembly import configured_sources

__all__ = ["SourceActions", "run_source_action"]

Rule = Callable[[SourceState], SourceState]


@frozen(kw_only=True)
class SourceActions:
    """Where the commands meet the database."""

    settings: Settings
    config: str
    database: Database
    as_json: bool

    async def list_sources(self) -> int:
        """All sources."""
        looks = await self.database.read(source_views.read_all, self._configured(), now=_now())
        return self._tell(sources_json(looks), self._words().listed(looks))

    async def explain(self, name: str, priority: Priority, lane: Lane) -> int:
        """The gates of one source."""
        look = await self._look(name)
        return self._tell(explanation_json(look, priority, lane), self._words().explained(look, priority, lane))

    async def add(self, name: str, wanted: SourceSettings) -> int:
        """Take a source in."""
        self._check_new(name, wanted)
        record = SourceRecord(
            name=name,
            identity=normalised(wanted.url),
            kind=wanted.kind,
            url=wanted.url,
            key=wanted.key,
            proxy=wanted.proxy,
            limits=self._limits_of(wanted),
        )
        was_known = await self.database.run(source_views.add_source, record, now=_now())
        look = await self._look(name)
        told = [f"{name} is added: {record.kind} at {host_of(record.url)}", f"try it: cormorant sources test {name}"]
        if was_known:
            state = state_of(look.explain(Priority.INTERACTIVE, zone=self._zone))
            spent = f"queries in the last 24 hours: {look.queries_today:,}"
            told.insert(1, f"it was here before and goes on from what was spent ({spent}); {sentence_of(state)}")
        return self._tell({"added": source_json(look), "was_known": was_known}, told)

    async def remove(self, name: str) -> int:
        """Ask a source no more."""
        look = await self._look(name)
        if look.is_configured:
            what = f"{name} is a source of {self._file}; it cannot be removed by command"
            raise CommandFailed(f"{what}: take [sources.{name}] out of that file, or write enabled = false there")
        await self.database.run(sources.remove, name, now=_now())
        told = f"{name} is removed; what was spent there is remembered, should it come back"
        return self._tell({"removed": name}, [told])

    async def pause(self, name: str, for_s: float | None) -> int:
        """Ask a source no more for a while, or until it is resumed."""
        until = None if for_s is None else _now() + timedelta(seconds=for_s)
        look = await self._change(name, partial(reservations.pause, until=until))
        end = f"until cormorant sources resume {name}"
        if until is not None:
            end = f"until {clock_time(until, look.now, self._zone)}"
        told = f"{name} is paused {end}, for every process that shares the database; a request under way goes on"
        return self._tell({"source": name, "paused": True, "until": until}, [told])

    async def resume(self, name: str) -> int:
        """Go on asking a source."""
        was_paused = (await self._look(name)).known.state.is_paused
        look = await self._change(name, reservations.resume)
        told = f"{name} is no longer paused" if was_paused else f"{name} was not paused"
        return self._tell_state(look, told, {"paused": False, "changed": was_paused})

    async def reset(self, name: str) -> int:
        """Forget the trouble with a source."""
        look = await self._change(name, reservations.reset)
        told = f"{name}: cooldown, failures and refused credentials are forgotten; what was spent stays spent"
        return self._tell_state(look, told, {"reset": True})

    async def test(self, name: str) -> int:
        """Ask a source what it can do."""
        record = await self.database.run(source_views.upsert_configured, name, self._configured(), now=_now())
        if record.kind not in SEARCHED:
            tries = "watchlist add ARTIST" if record.kind == "spotify" else f"search WORDS --source {name}"
            raise CommandFailed(
                f"{name} is of kind {record.kind} and not asked what it can do; cormorant {tries} tries it"
            )
        try:
            caps = await test_source(self.database, record, SourceClients(Environment(self.settings)).caps)
        except SourceClosed:
            look = await self._look(name)
            lines = look.explain(Priority.INTERACTIVE, zone=self._zone).lines
            raise CommandFailed(f"{name} may not be asked now and was not: {'; '.join(lines)}") from None
        except SourceError as error:
            raise CommandFailed(self._trouble(record, error)) from None
        note = "  a wrong key shows at the first search: many sites do not look at it here" if record.key else ""
        return self._tell({"source": name, "caps": dump_caps(caps)}, filter(None, [*caps_lines(name, caps), note]))

    def _trouble(self, record: SourceRecord, error: SourceError) -> str:
        said = redact_secrets(" ".join(str(error).split()), [record.key, record.proxy])
        if not isinstance(error, CredentialsRefused):
            return f"{record.name}: {said}; what follows for it: cormorant explain {record.name}"
        if record.origin == CONFIGURED:
            remedy = f"correct sources.{record.name}.key in {self._file}, then: cormorant sources reset {record.name}"
        else:
            remedy = f"cormorant sources remove {record.name}, then add it with the right key"
        return f"{record.name}: {said.partition(';')[0]}; it is stopped until that is put right: {remedy}"

    async def _look(self, name: str) -> SourceView:
        return await self.database.read(source_views.read_one, name, self._configured(), now=_now())

    async def _change(self, name: str, rule: Rule) -> SourceView:
        await self.database.run(source_views.change_state, name, rule, self._configured(), now=_now())
        return await self._look(name)

    def _configured(self) -> list[SourceRecord]:
        return configured_sources(self.settings)

    def _check_new(self, name: str, wanted: SourceSettings) -> None:
        if name in self.settings.sources:
            raise CommandFailed(f"{self._file} has a source {name} already; change it there, or choose another name")
        for other, source in self.settings.sources.items():
            if source.url and normalised(source.url) == normalised(wanted.url):
                raise CommandFailed(f"{self._file} has this address already as {other}; one account has one source")

    def _limits_of(self, wanted: SourceSettings) -> Any:
        try:
            return limits_of(wanted, self.settings.limits)
        except ValueError as error:
            raise UsageRefused(f"--limits: {error}") from None

    def _words(self) -> SourceText:
        return SourceText(zone=self._zone, config=self._file)

    @property
    def _zone(self) -> Any:
        return zone_of(self.settings.time_zone)

    @property
    def _file(self) -> str:
        return display_path(self.config)

    def _tell_state(self, look: SourceView, told: str, facts: dict[str, Any]) -> int:
        state = state_of(look.explain(Priority.INTERACTIVE, zone=self._zone))
        return self._tell({"source": look.record.name, "state": state, **facts}, [f"{told}; {sentence_of(state)}"])

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def run_source_action(
    config: str, action: Callable[[SourceActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        return await action(SourceActions(settings=settings, config=config, database=database, as_json=as_json))

    try:
        return with_database(settings, run, may_make=may_make)
    except (SourceExists, UnknownSource) as error:
        raise CommandFailed(str(error)) from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; `cormorant sources list` shows it") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted") from None


def _now() -> datetime:
    return datetime.now(UTC)

"""A command's access to settings, database and services; one error mapping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from random import SystemRandom
from typing import Any, TypeVar

import outcome
import trio
from attrs import define, evolve

from actors.environment import NOT_GIVEN, Environment
from cormorant.cli.console.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    CommandFailed,
    CommandInterrupted,
    UsageRefused,
    display_path,
)
from cormorant.cli.console.output import show
from cormorant.cli.console.preflight import (
    StartProblem,
    database_problem,
    display_database,
    inspect_database,
    load_or_refuse,
    make_data_folder,
    refuse,
    refuse_what_cannot_work,
)
from cormorant.rules.errors import CommitUnknown, CormorantError, StorageUnavailable
from cormorant.rules.ports import ignore
from cormorant.rules.secrets import redact_secrets
from cormorant.rules.settings.keys import secrets_in
from cormorant.rules.settings.settings import Settings
from cormorant.rules.units import zone_of
from cormorant.services.event_bus import EventBus
from cormorant.services.sources import Sources, configured_sources
from storage import pauses
from storage.database import Database, Mode, SchemaState, SystemClock
from storage.jobs import workers
from storage.search import sources
from storage.search.sources import SourceRecord
from supervisors.assembly import ServiceAssembly, complete, storage_options

T = TypeVar("T")

HOLD_S = 5.0
"""A person waits for an answer: a database that is away longer than this is told, not waited out."""


@define(eq=False, kw_only=True)
class CommandSession:
    """What a command works with: the settings, the database and the services, none of which is started."""

    settings: Settings
    config: str
    """The path of the settings file."""
    as_json: bool
    database: Database = NOT_GIVEN

    @cached_property
    def environment(self) -> Environment:
        """The environment of the services."""
        return complete(Environment(self.settings, database=self.database), EventBus(SystemClock()))

    @cached_property
    def assembly(self) -> ServiceAssembly:
        """The services."""
        return ServiceAssembly(self.environment)

    @property
    def sources(self) -> Sources:
        """What a program does with sources. It needs no assembly, which refuses some settings of the watchlist."""
        return Sources(self.environment)

    @property
    def file(self) -> str:
        """The settings file as it is shown."""
        return display_path(self.config)

    @property
    def now(self) -> datetime:
        """The time."""
        return datetime.now(UTC)

    @property
    def zone(self) -> tzinfo:
        """The zone in which times are shown."""
        return zone_of(self.settings.time_zone)

    def show(self, facts: Any, lines: Iterable[str]) -> int:
        """Show the facts as JSON, or the lines. Returns the exit code."""
        show(facts, lines, as_json=self.as_json)
        return EXIT_OK

    def is_database_there(self) -> bool:
        """Whether there is a database already."""
        return inspect_database(self.settings) is not None

    async def at_database(self, action: Callable[[CommandSession], Awaitable[T]], *, may_make: bool = False) -> T:
        """Open the database of a session that was begun without one, and run an action there."""
        check_database(self.settings, may_make=may_make)
        return await _run(self.settings, lambda database: action(evolve(self, database=database)))

    async def is_served(self) -> bool:
        """Whether a service runs on the database."""
        silent = self.now - timedelta(seconds=self.settings.jobs.lock_timeout_s)
        found = await self.database.read(workers.all_workers)
        return any(each.dead_at is None and each.beat_at > silent for each in found)

    async def service_hint(self) -> list[str]:
        """Why what is due is not checked now: lines for people."""
        if not await self.is_served():
            return ["no service runs on this database: it is checked when one is started, cormorant run"]
        if await self.is_paused():
            return ["everything is paused: it is checked after cormorant jobs resume"]
        return []

    async def source_records(self) -> list[SourceRecord]:
        """The sources of the settings file, and those that were added by command."""
        ours = configured_sources(self.settings)
        names = {each.name for each in ours}
        others = await self.database.read(sources.usable_sources, ours)
        return [*ours, *(each for each in others if each.name not in names)]

    async def is_paused(self) -> bool:
        """Whether everything is paused."""
        return await self.database.read(pauses.is_all_paused)


def run_in_session(
    config: str,
    work: Callable[[CommandSession], Awaitable[int]],
    *,
    as_json: bool,
    may_make: bool = False,
    has_database: bool = True,
    **told: str,
) -> int:
    """Run the work of a command at the database of a settings file. Returns the exit code.

    Without `has_database` the work opens the database itself, when it needs it. `told` is that of `refusals`.
    """
    settings = load_or_refuse(config)
    session = CommandSession(settings=settings, config=config, as_json=as_json)
    with refusals(settings, **told):
        if not has_database:
            return trio.run(work, session, restrict_keyboard_interrupt_to_checkpoints=True)
        return with_database(settings, lambda database: work(evolve(session, database=database)), may_make=may_make)


@contextmanager
def refusals(
    settings: Settings,
    *,
    in_doubt: str = "look whether it happened before you repeat it",
    interrupted: str = "interrupted; nothing was changed",
) -> Iterator[None]:
    """End the command with the exit code that the class of an error states.

    `in_doubt` says what to do when nobody knows whether a COMMIT happened.
    """
    try:
        yield
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; {in_doubt}") from None
    except CormorantError as error:
        refusal = CommandFailed if error.exit_code == EXIT_FAILED else UsageRefused
        raise refusal(redact_secrets(str(error), secrets_in(settings))) from None
    except (KeyboardInterrupt, BaseExceptionGroup) as ended:
        if isinstance(ended, BaseExceptionGroup) and ended.split(KeyboardInterrupt)[1] is not None:
            raise
        raise CommandInterrupted(interrupted) from None


def with_database(settings: Settings, action: Callable[[Database], Awaitable[T]], *, may_make: bool = False) -> T:
    """Run an action at the database and return what it returns; `UsageRefused` if the database cannot be used as it is.

    `may_make` is for what people do before the first start: a database that is not there yet, or empty, is made.

    It goes through the gateway, so that it takes its turn among the processes that write to a SQLite file.
    """
    check_database(settings, may_make=may_make)
    # Ctrl-C is for whoever waits for the action; in the middle of the gateway's work it would break things.
    return trio.run(_run, settings, action, restrict_keyboard_interrupt_to_checkpoints=True)


def check_database(settings: Settings, *, may_make: bool) -> None:
    """Raise `UsageRefused` if the database cannot be used as it is. `may_make` prepares one that is not there yet."""
    state = inspect_database(settings)
    is_made_here = may_make and (state is None or (state.is_reachable and not state.schema_version))
    if is_made_here:
        refuse_what_cannot_work(settings)
        make_data_folder(settings)
    else:
        refuse(database_problem(settings, state) or schema_problem(settings, state))


def schema_problem(settings: Settings, state: SchemaState | None) -> StartProblem | None:
    """Why a database that can be reached has not what the commands need."""
    name = display_database(settings)
    if state is None:
        remedy = "`cormorant run` makes it at its first start; if it is elsewhere, --config names the settings file"
        return StartProblem(f"there is no database {name} yet", remedy)
    if state.pending:
        if not state.schema_version:
            return StartProblem(f"the database {name} is empty", "start `cormorant run` once: it makes the tables")
        has = f"has schema version {state.schema_version}, this Cormorant needs {state.code_version}"
        remedy = "start `cormorant run` once: it brings the database up to date, a SQLite file after a backup"
        return StartProblem(f"the database {name} {has}", remedy)
    return None


async def _run(settings: Settings, action: Callable[[Database], Awaitable[T]]) -> T:
    options = evolve(storage_options(settings), hold_s=HOLD_S)
    # In threads: inside SQLite's own callbacks a Ctrl-C would get lost.
    database = Database(options, mode=Mode.THREADS, emit=ignore, chance=SystemRandom(), clock=SystemClock())
    async with trio.open_nursery() as nursery:
        await nursery.start(database)
        # Taken out of the nursery as it is: a group around one error would only hide its name.
        answer = await outcome.acapture(action, database)
        database.stop()
    try:
        return answer.unwrap()
    except StorageUnavailable as error:
        raise UsageRefused(
            f"the database {display_database(settings)} did not do it, nothing was changed: {error}"
        ) from None

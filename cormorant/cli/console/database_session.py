"""A command's access to settings, database and services; one error mapping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import TypeVar

import outcome
import trio
from attrs import evolve

from cormorant.cli.console.command_line import UsageRefused
from cormorant.cli.console.preflight import (
    StartProblem,
    database_problem,
    display_database,
    inspect_database,
    make_data_folder,
    refuse_what_cannot_work,
)
from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.ports import ignore
from cormorant.rules.settings.settings import Settings
from storage.database import Database, Mode, SchemaState, SystemClock
from supervisors.assembly import storage_options

__all__ = ["schema_problem", "with_database"]

T = TypeVar("T")

HOLD_S = 5.0
"""A person waits for an answer: a database that is away longer than this is told, not waited out."""


def with_database(settings: Settings, action: Callable[[Database], Awaitable[T]], *, may_make: bool = False) -> T:
    """Run an action at the database and return what it returns; `UsageRefused` if the database cannot be used as it is.

    `may_make` is for what people do before the first start: a database that is not there yet, or empty, is made.

    It goes through the gateway, so that it takes its turn among the processes that write to a SQLite file.
    """
    state = inspect_database(settings)
    is_made_here = may_make and (state is None or (state.is_reachable and not state.schema_version))
    if is_made_here:
        refuse_what_cannot_work(settings)
        make_data_folder(settings)
    problem = None if is_made_here else database_problem(settings, state) or schema_problem(settings, state)
    if problem:
        raise UsageRefused(f"{problem.found}; {problem.remedy}")
    try:
        # Ctrl-C is for whoever waits for the action; in the middle of the gateway's work it would break things.
        return trio.run(_run, settings, action, restrict_keyboard_interrupt_to_checkpoints=True)
    except StorageUnavailable as error:
        raise UsageRefused(
            f"the database {display_database(settings)} did not do it, nothing was changed: {error}"
        ) from None


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
    return answer.unwrap()

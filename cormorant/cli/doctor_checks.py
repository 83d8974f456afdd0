"""Which things does the doctor look at, and what does it make of them? Looks only; every finding names its remedy."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from importlib.metadata import version
from pathlib import Path

from attrs import frozen

from cormorant import __version__
from cormorant.cli.console.command_line import shown_path
from cormorant.cli.console.preflight import (
    database_problem,
    folder_problem,
    look_at_database,
    mode_problems,
    nearest_existing,
    port_problem,
    running_at,
    settled,
    shown_database,
)
from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.settings import Settings
from cormorant.services.data_folder import data_folder
from cormorant.settings import load_settings
from storage.database import SchemaState

__all__ = ["Check", "Status", "clock_check", "disk_check", "examine"]

_DISK_WARN_BYTES = 10**9
_DISK_FAIL_BYTES = 10**8
_SKEW_WARN_S = 2.0
_SKEW_FAIL_S = 60.0
_SQLITE_MIN = (3, 35, 0)


class Status(Enum):
    """How a check came out, as it is printed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@frozen
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"name": self.name, "status": self.status.value.lower(), "found": self.found, "remedy": self.remedy}


def examine(config: str) -> Iterator[Check]:
    """All checks, in the order they build on each other."""
    try:
        settings = settled(load_settings(config))
    except SettingsError as error:
        for problem in error.problems:
            yield Check("settings", Status.FAIL, problem)
        return
    yield Check("settings", Status.OK, f"{config}, mode {stat.S_IMODE(Path(config).stat().st_mode):04o}")
    if settings.playground.enabled:
        yield Check("play", Status.OK, "the playground: its sites are invented; `cormorant init` leads to real ones")
    yield _folder_check(settings)
    yield from _mode_checks(settings, config)
    yield from _port_checks(settings)
    yield disk_check(shutil.disk_usage(nearest_existing(settings.data)).free)
    asked_at = datetime.now(UTC)
    state = look_at_database(settings)
    yield from _database_checks(settings, state)
    if state and state.server_time:
        yield clock_check(state.server_time, asked_at, datetime.now(UTC))
    yield _versions_check()


def _folder_check(settings: Settings) -> Check:
    problem = folder_problem(settings.data)
    if problem:
        return Check("data", Status.FAIL, problem.found, problem.remedy)
    here = nearest_existing(settings.data)
    will = "" if str(here) == settings.data else ", will be made at the first start"
    return Check("data", Status.OK, f"{shown_path(settings.data)}{will}")


def _mode_checks(settings: Settings, config: str) -> Iterator[Check]:
    problems = mode_problems(settings, config)
    for problem in problems:
        yield Check("modes", Status.WARN, problem.found, problem.remedy)
    ours = [each for each in data_folder(settings).wrong_modes() if each.is_corrected]
    if ours:
        names = ", ".join(f"{shown_path(str(each.path))} ({each.mode:04o})" for each in ours)
        yield Check("modes", Status.OK, f"the next start corrects the modes of {names}")
    elif not problems:
        yield Check("modes", Status.OK, "the data folder is closed to other users")


def _port_checks(settings: Settings) -> Iterator[Check]:
    running = running_at(settings)
    if running:
        yield Check("port", Status.OK, f"Cormorant is running at {running}")
        return
    problem = port_problem(settings)
    if problem:
        yield Check("port", Status.FAIL, problem.found, problem.remedy)
    elif settings.web.enabled and settings.web.address.port:
        yield Check("port", Status.OK, f"{settings.web.address.shown} is free")


def disk_check(free_bytes: int) -> Check:
    """Whether there is room for the database to grow."""
    found = f"{free_bytes / 10**9:.1f} GB free"
    if free_bytes < _DISK_FAIL_BYTES:
        return Check("disk", Status.FAIL, found, "make room now: the database cannot grow")
    if free_bytes < _DISK_WARN_BYTES:
        return Check("disk", Status.WARN, found, "make room soon")
    return Check("disk", Status.OK, found)


def _database_checks(settings: Settings, state: SchemaState | None) -> Iterator[Check]:
    problem = database_problem(settings, state)
    if problem:
        yield Check("database", Status.FAIL, problem.found, problem.remedy)
        return
    if state is None:
        yield Check("database", Status.OK, f"{shown_database(settings)}, will be made at the first start")
        return
    yield Check("database", Status.OK, shown_database(settings))
    if state.pending:
        steps = ", ".join(state.pending)
        yield Check("schema", Status.OK, f"version {state.schema_version}; the next start will run {steps}")
    elif state.schema_version > state.code_version:
        newer = f"version {state.schema_version} is newer than this code ({state.code_version}), which can work with it"
        yield Check("schema", Status.WARN, newer, "upgrade Cormorant here, too")
    else:
        yield Check("schema", Status.OK, f"version {state.schema_version}, nothing to migrate")


def clock_check(server: datetime, before: datetime, after: datetime) -> Check:
    """How far this clock and the database's are apart. The answer took a while, so half of that is allowed for."""
    skew_s = abs(server - (before + (after - before) / 2)) - (after - before) / 2
    apart_s = max(skew_s, timedelta()).total_seconds()
    found = f"{apart_s:.1f} s apart from the database's"
    remedy = "set both by NTP (timedatectl set-ntp true)"
    if apart_s > _SKEW_FAIL_S:
        return Check("clock", Status.FAIL, found, remedy)
    return Check("clock", Status.WARN, found, remedy) if apart_s > _SKEW_WARN_S else Check("clock", Status.OK, found)


def _versions_check() -> Check:
    found = (
        f"cormorant {__version__}, python {platform.python_version()}, trio {version('trio')}, "
        f"sqlite {sqlite3.sqlite_version}"
    )
    if sqlite3.sqlite_version_info < _SQLITE_MIN:
        return Check("versions", Status.FAIL, found, "SQLite 3.35 or newer is needed: use a newer Python build")
    return Check("versions", Status.OK, found)

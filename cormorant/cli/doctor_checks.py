"""What doctor checks."""

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
from cormorant.cli.console.command_line import display_path
from cormorant.cli.console.preflight import (
    StartProblem,
    database_problem,
    display_database,
    folder_problem,
    inspect_database,
    mode_problems,
    nearest_existing,
    port_problem,
    running_at,
    settled,
)
from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.settings import Settings
from cormorant.services.data_folder import data_folder
from cormorant.settings import load_settings
from storage.database import SchemaState
from supervisors import open_service

__all__ = ["DoctorCheck", "DoctorStatus", "clock_check", "disk_check", "examine"]

_DISK_WARN_BYTES = 10**9
_DISK_FAIL_BYTES = 10**8
_SKEW_WARN_S = 2.0
_SKEW_FAIL_S = 60.0
_SQLITE_MIN = (3, 35, 0)
_WILL_BE_MADE = ", will be made at the first start"


class DoctorStatus(Enum):
    """How a check came out, as it is printed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@frozen
class DoctorCheck:
    """One thing that was looked at."""

    name: str
    status: DoctorStatus
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The same for programs."""
        return {"name": self.name, "status": self.status.value.lower(), "found": self.found, "remedy": self.remedy}


def examine(config: str) -> Iterator[DoctorCheck]:
    """All checks, in the order they build on each other."""
    try:
        settings = settled(load_settings(config))
        open_service(settings)  # the tree refuses what it cannot do; nothing is started
    except SettingsError as error:
        for problem in error.problems:
            yield DoctorCheck("settings", DoctorStatus.FAIL, problem)
        return
    yield DoctorCheck("settings", DoctorStatus.OK, f"{config}, mode {stat.S_IMODE(Path(config).stat().st_mode):04o}")
    if settings.playground.enabled:
        yield DoctorCheck(
            "play", DoctorStatus.OK, "the playground: its sites are invented; `cormorant init` leads to real ones"
        )
    yield _folder_check(settings)
    yield from _mode_checks(settings, config)
    yield from _port_checks(settings)
    yield disk_check(shutil.disk_usage(nearest_existing(settings.data)).free)
    asked_at = datetime.now(UTC)
    state = inspect_database(settings)
    yield from _database_checks(settings, state)
    if state and state.server_time:
        yield clock_check(state.server_time, asked_at, datetime.now(UTC))
    yield _versions_check()


def _checked(name: str, problem: StartProblem | None, found: str) -> DoctorCheck:
    """The failure that is a problem of a start, or what was found in order."""
    if problem:
        return DoctorCheck(name, DoctorStatus.FAIL, problem.found, problem.remedy)
    return DoctorCheck(name, DoctorStatus.OK, found)


def _folder_check(settings: Settings) -> DoctorCheck:
    is_there = str(nearest_existing(settings.data)) == settings.data
    found = display_path(settings.data) + ("" if is_there else _WILL_BE_MADE)
    return _checked("data", folder_problem(settings.data), found)


def _mode_checks(settings: Settings, config: str) -> Iterator[DoctorCheck]:
    problems = mode_problems(settings, config)
    for problem in problems:
        yield DoctorCheck("modes", DoctorStatus.WARN, problem.found, problem.remedy)
    ours = [each for each in data_folder(settings).wrong_modes() if each.is_corrected]
    if ours:
        names = ", ".join(f"{display_path(str(each.path))} ({each.mode:04o})" for each in ours)
        yield DoctorCheck("modes", DoctorStatus.OK, f"the next start corrects the modes of {names}")
    elif not problems:
        yield DoctorCheck("modes", DoctorStatus.OK, "the data folder is closed to other users")


def _port_checks(settings: Settings) -> Iterator[DoctorCheck]:
    running = running_at(settings)
    if running:
        yield DoctorCheck("port", DoctorStatus.OK, f"Cormorant is running at {running}")
        return
    problem = port_problem(settings)
    if problem or (settings.web.enabled and settings.web.address.port):
        yield _checked("port", problem, f"{settings.web.address.shown} is free")


def disk_check(free_bytes: int) -> DoctorCheck:
    """Whether there is room for the database to grow."""
    found = f"{free_bytes / 10**9:.1f} GB free"
    if free_bytes < _DISK_FAIL_BYTES:
        return DoctorCheck("disk", DoctorStatus.FAIL, found, "make room now: the database cannot grow")
    if free_bytes < _DISK_WARN_BYTES:
        return DoctorCheck("disk", DoctorStatus.WARN, found, "make room soon")
    return DoctorCheck("disk", DoctorStatus.OK, found)


def _database_checks(settings: Settings, state: SchemaState | None) -> Iterator[DoctorCheck]:
    problem = database_problem(settings, state)
    yield _checked("database", problem, display_database(settings) + ("" if state else _WILL_BE_MADE))
    if problem or state is None:
        return
    if state.pending:
        steps = ", ".join(state.pending)
        yield DoctorCheck("schema", DoctorStatus.OK, f"version {state.schema_version}; the next start will run {steps}")
    elif state.schema_version > state.code_version:
        newer = f"version {state.schema_version} is newer than this code ({state.code_version}), which can work with it"
        yield DoctorCheck("schema", DoctorStatus.WARN, newer, "upgrade Cormorant here, too")
    else:
        yield DoctorCheck("schema", DoctorStatus.OK, f"version {state.schema_version}, nothing to migrate")


def clock_check(server: datetime, before: datetime, after: datetime) -> DoctorCheck:
    """How far this clock and the database's are apart. The answer took a while, so half of that is allowed for."""
    skew_s = abs(server - (before + (after - before) / 2)) - (after - before) / 2
    apart_s = max(skew_s, timedelta()).total_seconds()
    found = f"{apart_s:.1f} s apart from the database's"
    remedy = "set both by NTP (timedatectl set-ntp true)"
    if apart_s <= _SKEW_WARN_S:
        return DoctorCheck("clock", DoctorStatus.OK, found)
    return DoctorCheck("clock", DoctorStatus.FAIL if apart_s > _SKEW_FAIL_S else DoctorStatus.WARN, found, remedy)


def _versions_check() -> DoctorCheck:
    found = (
        f"cormorant {__version__}, python {platform.python_version()}, trio {version('trio')}, "
        f"sqlite {sqlite3.sqlite_version}"
    )
    is_too_old = sqlite3.sqlite_version_info < _SQLITE_MIN
    needed = "SQLite 3.35 or newer is needed: use a newer Python build"
    return _checked("versions", StartProblem(found, needed) if is_too_old else None, found)

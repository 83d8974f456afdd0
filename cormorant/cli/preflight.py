"""Can it start here? What is looked at before anything is touched; `run` refuses by it, `doctor` reports it."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from attrs import frozen

from cormorant.cli.words import Refused, shown_path
from cormorant.rules.errors import SettingsError
from cormorant.rules.secrets import hide_passwords
from cormorant.rules.settings import Settings
from cormorant.settings import load_settings
from storage.database import SchemaState, inspect

__all__ = [
    "Problem",
    "database_problem",
    "folder_problem",
    "load_or_refuse",
    "look_at_database",
    "nearest_existing",
    "prepare",
    "shown_database",
]

_ELSEWHERE = "give the right to it, or set {key} to another path"


@frozen
class Problem:
    """Why it cannot start, with the key it depends on, and what to do."""

    found: str
    remedy: str


def load_or_refuse(config: str) -> Settings:
    """The settings, or a refusal that lists everything wrong in them."""
    try:
        return load_settings(config)
    except SettingsError as error:
        count = len(error.problems)
        mistakes = "is a mistake" if count == 1 else f"are {count} mistakes"
        raise Refused(f"there {mistakes} in the settings; nothing was started", error.problems) from None


def prepare(settings: Settings) -> None:
    """Refuse what cannot work; otherwise make the data folder."""
    problem = folder_problem(settings.data) or database_problem(settings, look_at_database(settings))
    if problem:
        raise Refused(f"{problem.found}; {problem.remedy}")
    try:
        Path(settings.data).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"data: {settings.data} cannot be made: {error.strerror}"
        raise Refused(f"{why}; set data to another path") from None


def folder_problem(data: str) -> Problem | None:
    """Why the data folder cannot be used or made. Writes nothing to find out."""
    existing = nearest_existing(data)
    if not existing.is_dir():
        return Problem(f"data: {existing} is not a folder", "move it away, or set data to another path")
    return _right_problem("data", existing)


def nearest_existing(path: str) -> Path:
    """The folder itself, or the first above it that is there."""
    folder = Path(path)
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def look_at_database(settings: Settings) -> SchemaState | None:
    """What can be seen of the database without changing it. None: a SQLite file that the first start makes."""
    file = _sqlite_file(settings)
    if file and not file.exists():
        return None
    return inspect(settings.database_url.reveal())


def database_problem(settings: Settings, state: SchemaState | None) -> Problem | None:
    """Why this database cannot be used."""
    if state and (state.problem or not state.is_reachable):
        why = hide_passwords(" ".join((state.problem or "it does not answer").split()))
        doubt = "look at storage.url, and whether the database is running"
        remedy = "do that, or name another database in storage.url" if state.is_reachable else doubt
        return Problem(f"storage.url: the database {shown_database(settings)} cannot be used: {why}", remedy)
    file = _sqlite_file(settings)
    if file is None or (state is None and file.parent == Path(settings.data)):
        return None  # the data folder is looked at by itself
    if not file.parent.is_dir():
        return Problem(f"storage.url: there is no folder {file.parent}", "make it, or name another file")
    return _right_problem("storage.url", file.parent) or (_right_problem("storage.url", file) if state else None)


def _right_problem(key: str, path: Path) -> Problem | None:
    if os.access(path, os.W_OK | os.X_OK if path.is_dir() else os.W_OK):
        return None
    return Problem(f"{key}: {getpass.getuser()} may not write {path}", _ELSEWHERE.format(key=key))


def shown_database(settings: Settings) -> str:
    """Where the database is, for people: a path, or an address without its password."""
    file = _sqlite_file(settings)
    return shown_path(str(file)) if file else hide_passwords(settings.database_url.reveal())


def _sqlite_file(settings: Settings) -> Path | None:
    kind, _, path = settings.database_url.reveal().partition(":///")
    return Path(path) if kind.startswith("sqlite") and path not in {"", ":memory:"} else None

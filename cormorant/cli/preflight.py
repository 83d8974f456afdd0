"""Can it start here? What is looked at before anything is touched; `run` refuses by it, `doctor` reports it."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from cormorant.cli.tables import printable
from cormorant.cli.words import Refused, shown_path
from cormorant.rules.addresses import shown_address, sqlite_file
from cormorant.rules.catalogue import secrets_in
from cormorant.rules.errors import CannotListen, SettingsError, StorageMisconfigured
from cormorant.rules.listen_addresses import ListenAddress, parse_listen_address
from cormorant.rules.secrets import hide_secrets
from cormorant.rules.settings import Settings
from cormorant.settings import load_settings
from cormorant.web.listening import bound, is_cormorant
from storage.database import SchemaState, inspect
from supervisors.data_folder import prepare_data, wrong_modes

__all__ = [
    "Problem",
    "database_problem",
    "folder_problem",
    "load_or_refuse",
    "look_at_database",
    "make_data_folder",
    "mode_problems",
    "nearest_existing",
    "port_problem",
    "refuse_busy_ports",
    "refuse_what_cannot_work",
    "running_at",
    "settled",
    "shown_database",
]

_OTHERS = 0o077
_SECRET_MIN = 4
_ELSEWHERE = "give the right to it, or set {key} to another path"


@frozen
class Problem:
    """Why it cannot start, with the key it depends on, and what to do."""

    found: str
    remedy: str


def load_or_refuse(config: str) -> Settings:
    """The settings, or a refusal that lists everything wrong in them."""
    try:
        return settled(load_settings(config))
    except SettingsError as error:
        count = len(error.problems)
        mistakes = "is a mistake" if count == 1 else f"are {count} mistakes"
        raise Refused(f"there {mistakes} in the settings; nothing was started", error.problems) from None


def settled(settings: Settings) -> Settings:
    """The settings as they are used: those of a playground have its sites and a data folder of their own."""
    if not settings.playground.enabled:
        return settings
    from cormorant.playground.town import with_playground  # noqa: PLC0415 - only a playground need wait for it

    return with_playground(settings)


def refuse_what_cannot_work(settings: Settings) -> None:
    """Raise `Refused` when the data folder or the database cannot be used. Changes nothing."""
    problem = folder_problem(settings.data) or database_problem(settings, look_at_database(settings))
    if problem:
        raise Refused(f"{problem.found}; {problem.remedy}")


def refuse_busy_ports(settings: Settings) -> None:
    """Raise `Refused` when `run` cannot listen where it should. Changes nothing."""
    problem = port_problem(settings)
    if problem:
        raise Refused(f"{problem.found}; {problem.remedy}")


def port_problem(settings: Settings) -> Problem | None:
    """Why `run` cannot listen at `web.listen` or, with a playground, at `playground.listen`."""
    wanted = [("web.listen", settings.web.address)] if settings.web.enabled else []
    if settings.playground.enabled:
        wanted.append(("playground.listen", parse_listen_address(settings.playground.listen)))
    problems = (_port_problem(key, address, settings.web.url_base) for key, address in wanted if address.port)
    return next((problem for problem in problems if problem), None)


def running_at(settings: Settings) -> str | None:
    """The address of a Cormorant that runs with these settings; None: none answers."""
    web = settings.web
    is_there = web.enabled and web.address.port and is_cormorant(web.address, web.url_base)
    return f"http://{web.address.shown}{web.url_base}" if is_there else None


def _port_problem(key: str, address: ListenAddress, url_base: str) -> Problem | None:
    try:
        bound(address).close()
    except CannotListen as error:
        if is_cormorant(address, url_base):
            return Problem(f"{key}: Cormorant is running already at {address.shown}", f"stop it, or set another {key}")
        return Problem(
            f"{key}: cannot listen on {address.shown}: {error.why}", f"end what uses it, or set another {key}"
        )
    return None


def make_data_folder(settings: Settings) -> None:
    """The first thing that is changed, when nothing is left to check."""
    try:
        prepare_data(settings)
    except StorageMisconfigured as error:
        raise Refused(printable(str(error))) from None


def mode_problems(settings: Settings, config: str) -> list[Problem]:
    """Files and folders that other users can open although they may have keys, and that a start does not correct."""
    left = [each for each in wrong_modes(settings) if not each.is_ours]
    found = [_mode_problem(each.path, each.mode, each.wanted) for each in left]
    return [*found, *_settings_file_problem(settings, Path(config))]


def _settings_file_problem(settings: Settings, config: Path) -> Iterator[Problem]:
    """The settings file is never changed."""
    try:
        mode, text = stat.S_IMODE(config.stat().st_mode), config.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    has_secret = any(len(each.reveal()) >= _SECRET_MIN and each.reveal() in text for each in secrets_in(settings))
    if has_secret and mode & _OTHERS:
        yield _mode_problem(config, mode, mode & ~_OTHERS)


def _mode_problem(path: Path, mode: int, wanted: int) -> Problem:
    found = f"other users can open {shown_path(str(path))} (mode {mode:04o}), which may have keys"
    return Problem(found, f"chmod {wanted & 0o777:o} {shlex.quote(str(path))}")


def folder_problem(data: str) -> Problem | None:
    """Why the data folder cannot be used or made. Writes nothing to find out."""
    existing = nearest_existing(data)
    if not existing.is_dir():
        return Problem(f"data: {printable(str(existing))} is not a folder", "move it away, or set data to another path")
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
        why = " ".join(hide_secrets(state.problem or "it does not answer", secrets_in(settings)).split())
        doubt = "look at storage.url, and whether the database is running"
        remedy = "do that, or name another database in storage.url" if state.is_reachable else doubt
        return Problem(f"storage.url: the database {shown_database(settings)} cannot be used: {why}", remedy)
    file = _sqlite_file(settings)
    if file is None or (state is None and file.parent == Path(settings.data)):
        return None  # the data folder is looked at by itself
    if not file.parent.is_dir():
        return Problem(
            f"storage.url: there is no folder {printable(str(file.parent))}", "make it, or name another file"
        )
    return _right_problem("storage.url", file.parent) or (_right_problem("storage.url", file) if state else None)


def _right_problem(key: str, path: Path) -> Problem | None:
    if os.access(path, os.W_OK | os.X_OK if path.is_dir() else os.W_OK):
        return None
    return Problem(f"{key}: {_user()} may not write {printable(str(path))}", _ELSEWHERE.format(key=key))


def _user() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that was given a user and no name for it
        return f"uid {number}"


def shown_database(settings: Settings) -> str:
    """Where the database is, for people: a path, or an address without its password."""
    file = _sqlite_file(settings)
    return shown_path(str(file)) if file else shown_address(settings.database_url.reveal())


def _sqlite_file(settings: Settings) -> Path | None:
    path = sqlite_file(settings.database_url.reveal())
    return None if path is None else Path(path)

"""Whether the service can start here."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from cormorant.cli.console.command_line import UsageRefused, display_path
from cormorant.cli.console.output import printable
from cormorant.rules.addresses import ListenAddress, parse_listen_address, shown_address, sqlite_file
from cormorant.rules.errors import CannotListen, SettingsError, StorageMisconfigured
from cormorant.rules.secrets import Secret, keys_in, redact_secrets
from cormorant.rules.settings.keys import secrets_in
from cormorant.rules.settings.settings import Settings
from cormorant.services.data_folder import data_folder, prepare_data, remove_database
from cormorant.settings import load_settings
from cormorant.web.listener import bound, is_cormorant
from storage.database import SchemaState, inspect
from storage.engine.data_files import WrongMode

__all__ = [
    "StartProblem",
    "database_problem",
    "display_database",
    "folder_problem",
    "inspect_database",
    "load_or_refuse",
    "make_data_folder",
    "mistakes_refused",
    "mode_problems",
    "nearest_existing",
    "port_problem",
    "refuse",
    "refuse_what_cannot_work",
    "running_at",
    "settled",
]

_NOT_OWNER = 0o077
_OTHERS = 0o007
_SECRET_MIN = 4
"""A shorter one may be in the file for another reason."""
_ELSEWHERE = "give the right to it, or set {key} to another path"


@frozen
class StartProblem:
    """Why it cannot start, with the key it depends on, and what to do."""

    found: str
    remedy: str

    @property
    def told(self) -> str:
        """The problem and its remedy in one line."""
        return f"{self.found}; {self.remedy}"


def refuse(problem: StartProblem | None) -> None:
    """Raise `UsageRefused` if there is a problem."""
    if problem:
        raise UsageRefused(problem.told)


def load_or_refuse(config: str) -> Settings:
    """The settings, or a refusal that lists everything wrong in them."""
    with mistakes_refused():
        return settled(load_settings(config))


@contextmanager
def mistakes_refused() -> Iterator[None]:
    """Turn what is wrong in the settings into a refusal that lists it."""
    try:
        yield
    except SettingsError as error:
        count = len(error.problems)
        mistakes = "is a mistake" if count == 1 else f"are {count} mistakes"
        raise UsageRefused(f"there {mistakes} in the settings; nothing was started", error.problems) from None


def settled(settings: Settings) -> Settings:
    """The settings as they are used: those of a playground have its sites and a data folder of their own."""
    if not settings.playground.enabled:
        return settings
    from cormorant.playground.world import with_playground  # noqa: PLC0415 - only a playground need wait for it

    return with_playground(settings)


def refuse_what_cannot_work(settings: Settings) -> None:
    """Raise `UsageRefused` when the data folder or the database cannot be used. Changes nothing."""
    refuse(folder_problem(settings.data) or database_problem(settings, inspect_database(settings)))


def port_problem(settings: Settings) -> StartProblem | None:
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


def _port_problem(key: str, address: ListenAddress, url_base: str) -> StartProblem | None:
    try:
        bound(address).close()
    except CannotListen as error:
        if is_cormorant(address, url_base):
            return StartProblem(
                f"{key}: Cormorant is running already at {address.shown}", f"stop it, or set another {key}"
            )
        remedy = f"end what uses it, or set another {key}" if error.is_in_use else f"set another {key}"
        return StartProblem(f"{key}: cannot listen on {address.shown}: {error.why}", remedy)
    return None


def make_data_folder(settings: Settings) -> None:
    """The first thing that is changed, when nothing is left to check. Also removes a database that the start replaces."""
    file = _sqlite_file(settings)
    try:
        if file and file.exists() and inspect_database(settings) is None:
            remove_database(file)
        prepare_data(settings)
    except StorageMisconfigured as error:
        raise UsageRefused(printable(str(error))) from None


def mode_problems(settings: Settings, config: str) -> list[StartProblem]:
    """Modes that endanger keys or shut out a target, and that a start does not correct."""
    left = [each for each in data_folder(settings).wrong_modes() if not each.is_corrected]
    return [*map(_mode_problem, left), *_settings_file_problem(settings, Path(config))]


def _mode_problem(wrong: WrongMode) -> StartProblem:
    where, path = display_path(str(wrong.path)), shlex.quote(str(wrong.path))
    what = "other users can open" if wrong.is_too_open else "programs that need it cannot open"
    found = f"{what} {where} (mode {wrong.mode:04o})"
    if wrong.is_owned:
        return StartProblem(found, f"chmod {wrong.wanted:o} {path}")
    # Without the right owner another mode could shut this process out.
    return StartProblem(found, f'as root: chown {_user()} {path}; for several users set data_mode = "0660"')


def _settings_file_problem(settings: Settings, config: Path) -> Iterator[StartProblem]:
    """A settings file that has keys and that other users can read. The group of a file of another owner is ours."""
    try:
        found, text = config.stat(), config.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    is_owned, mode = found.st_uid == os.geteuid(), stat.S_IMODE(found.st_mode)
    is_open = bool(mode & (_NOT_OWNER if is_owned else _OTHERS))
    if is_open and any(each.reveal() in text for each in _written_secrets(settings)):
        where, path = display_path(str(config)), shlex.quote(str(config))
        remedy = f"chmod {mode & ~_NOT_OWNER:o} {path}" if is_owned else f"as root: chmod o-rwx {path}"
        yield StartProblem(f"other users can read the keys in {where} (mode {mode:04o})", remedy)


def _written_secrets(settings: Settings) -> Iterator[Secret]:
    """Every secret that a settings file can have, also those in addresses of feeds, sources and targets."""
    feeds, sources, targets = settings.feeds.values(), settings.sources.values(), settings.targets.values()
    addresses = (*(each.url for each in feeds), *(each.url for each in sources), *(each.url for each in targets))
    in_addresses = (secret for address in addresses for secret in keys_in(address))
    yield from (each for each in (*secrets_in(settings), *in_addresses) if len(each.reveal()) >= _SECRET_MIN)


def folder_problem(data: str) -> StartProblem | None:
    """Why the data folder cannot be used or made. Writes nothing to find out."""
    existing = nearest_existing(data)
    if not existing.is_dir():
        return StartProblem(
            f"data: {printable(str(existing))} is not a folder", "move it away, or set data to another path"
        )
    return _right_problem("data", existing)


def nearest_existing(path: str) -> Path:
    """The folder itself, or the first above it that is there."""
    folder = Path(path)
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def inspect_database(settings: Settings) -> SchemaState | None:
    """What can be seen of the database without changing it. None: a SQLite file that the next start makes.

    In a playground the start makes it also in place of a pre-release database: all that is in that one is invented.
    """
    file = _sqlite_file(settings)
    if file and not file.exists():
        return None
    state = inspect(settings.database_url.reveal())
    return None if settings.playground.enabled and state.is_pre_release else state


def database_problem(settings: Settings, state: SchemaState | None) -> StartProblem | None:
    """Why this database cannot be used."""
    if state and (state.problem or not state.is_reachable):
        why = " ".join(redact_secrets(state.problem or "it does not answer", secrets_in(settings)).split())
        doubt = "look at storage.url, and whether the database is running"
        remedy = "do that, or name another database in storage.url" if state.is_reachable else doubt
        return StartProblem(f"storage.url: the database {display_database(settings)} cannot be used: {why}", remedy)
    file = _sqlite_file(settings)
    if file is None or (state is None and file.parent == Path(settings.data)):
        return None  # the data folder is looked at by itself
    if not file.parent.is_dir():
        return StartProblem(
            f"storage.url: there is no folder {printable(str(file.parent))}", "make it, or name another file"
        )
    return _right_problem("storage.url", file.parent) or (_right_problem("storage.url", file) if state else None)


def _right_problem(key: str, path: Path) -> StartProblem | None:
    if os.access(path, os.W_OK | os.X_OK if path.is_dir() else os.W_OK):
        return None
    return StartProblem(f"{key}: {_user()} may not write {printable(str(path))}", _ELSEWHERE.format(key=key))


def _user() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # as in a container that was given a user and no name for it
        return f"uid {number}"


def display_database(settings: Settings) -> str:
    """Where the database is, for people: a path, or an address without its password."""
    file = _sqlite_file(settings)
    return display_path(str(file)) if file else shown_address(settings.database_url.reveal())


def _sqlite_file(settings: Settings) -> Path | None:
    path = sqlite_file(settings.database_url.reveal())
    return None if path is None else Path(path)

"""Loads config.toml and the environment; reports all mistakes at once.

Every setting has a name in the environment: `CORMORANT_`, then its key in capitals with `__` for each dot, so that
`storage.statement_timeout` is `CORMORANT_STORAGE__STATEMENT_TIMEOUT`. Some have an older name besides. An empty variable
counts as not set. In tables by name, such as `[sources.cross-seed]`, the environment refines what the file names; there a
`-` is written `_`. A relative path counts from the folder of the file, wherever it is written. Nothing is created.

`python -m cormorant.settings > docs/settings.md` writes the reference.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import attrs
import cattrs
from attrs import frozen
from cattrs.errors import (
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from cormorant.rules.addresses import read_address, sqlite_address, sqlite_file
from cormorant.rules.errors import SettingsError
from cormorant.rules.notices import QuietHours
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import DATABASE, PATH, SECRETS, ZONE, Setting, name_problem
from cormorant.rules.settings.keys import (
    key_of,
    known_settings,
    referenced,
    suggestion,
    unknown_in,
    values_in,
    with_names,
)
from cormorant.rules.settings.service import APPRISE, WebSettings
from cormorant.rules.settings.settings import Settings, SettingsConflict
from cormorant.rules.units import TimeOfDay, as_written, zone_of

__all__ = ["CONFIG_VARIABLE", "Settings", "WebSettings", "load", "load_settings"]

CONFIG_VARIABLE = "CORMORANT_CONFIG"
"""Names the settings file for the command line; it is no setting."""

_FILE_BYTES_MAX = 1_000_000
_SECRET_BYTES_MAX = 10_000

T = TypeVar("T")


def load_settings(file: str | Path = "config.toml", environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a file and the environment, or one SettingsError that lists everything wrong in them."""
    return load(Settings, file, os.environ if environ is None else environ)


def load(cls: type[T], file: str | Path, environ: Mapping[str, str]) -> T:
    """The same for any attrs class of settings whose defaults are complete."""
    known = list(known_settings(cls()))
    written, problems = _read(Path(file))
    allowed = {*referenced(written), CONFIG_VARIABLE}
    problems += list(unknown_in(environ, known, written=None if problems else written, allowed=allowed))
    given = values_in(environ, with_names(known, written))
    builder = _Builder(cls, _SettingsReader(Path(file).absolute().parent, environ))

    # The file is looked at by itself first: what the environment wins over may still be wrong in it.
    in_file = [mistake for mistake in builder.mistakes_in(written) if mistake.counts_beside(given)]
    tables = _without(written, in_file)
    for key, variable in given.items():
        _overlay(tables, key, variable.value)
    elsewhere = builder.mistakes_in(tables)
    if elsewhere:
        told = {key for mistake in elsewhere for key in mistake.keys}
        hidden = builder.mistakes_in(_without(tables, elsewhere))
        elsewhere += [mistake for mistake in hidden if not mistake.is_about(told)]
    wrong = {mistake.key for mistake in in_file + elsewhere if not mistake.is_conflict}

    problems += [f"{file}: {mistake.key}: {mistake.text}" for mistake in in_file]
    for mistake in elsewhere:
        if mistake.is_conflict and mistake.is_about(wrong):
            continue  # it may go away with the other mistake
        where = given[mistake.key].name if mistake.key in given else f"{file}: {mistake.key}"
        problems.append(f"{where}: {mistake.text}")
    if problems:
        raise SettingsError(list(dict.fromkeys(problems)))
    return builder.build(tables)


def _read(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What the file says, and what is wrong with it as a file."""
    try:
        return tomllib.loads(_read_text(path, bytes_max=_FILE_BYTES_MAX)), []
    except FileNotFoundError:
        remedy = "go to its folder or name it with --config (an empty file will do: everything has a default)"
        return {}, [f"{path}: there is no such file; {remedy}"]
    except OSError as error:
        return {}, [f"{path}: cannot be read: {error.strerror}"]
    except tomllib.TOMLDecodeError as error:
        what, is_placed, where = str(error).removesuffix(")").rpartition(" (at ")
        return {}, [f"{path}, {where}: not valid TOML: {what}" if is_placed else f"{path}: not valid TOML: {error}"]
    except (ValueError, RecursionError) as error:
        return {}, [f"{path}: not valid TOML: {error}"]


def _overlay(written: dict[str, Any], key: str, value: object) -> None:
    *tables, last = key.split(".")
    table: Any = written
    for name in tables:
        table = table.setdefault(name, {})
    table[last] = value


@frozen
class _Mistake:
    """What is wrong at a key; a conflict is between several."""

    paths: tuple[tuple[str, ...], ...]
    text: str
    is_out_of_reach: bool = False

    @property
    def keys(self) -> list[str]:
        """Every key it is about; it is told under the first."""
        return [".".join(path) for path in self.paths]

    @property
    def key(self) -> str:
        """The key it is told under."""
        return self.keys[0]

    @property
    def is_conflict(self) -> bool:
        """Whether each of the settings would be right without the others."""
        return len(self.paths) > 1

    def is_about(self, keys: Container[str]) -> bool:
        """Whether it is about one of these keys, or about something in a table that is one of them."""
        return any(".".join(path[:end]) in keys for path in self.paths for end in range(1, len(path) + 1))

    def counts_beside(self, given: Container[str]) -> bool:
        """Whether it is wrong in the file, whatever the environment says."""
        return not self.is_conflict and not (self.is_out_of_reach and self.key in given)


class _UnreadableFile(ValueError):
    """The place that a setting refers to has no value now. The setting itself is written as it should be."""


def _without(tables: dict[str, Any], mistakes: Iterable[_Mistake]) -> dict[str, Any]:
    """A copy of the tables without what is wrong in them."""
    cleaned = _copied(tables)
    for mistake in mistakes:
        for *above, last in mistake.paths:
            table: Any = cleaned
            for name in above:
                table = table.get(name, {})
            table.pop(last, None)
    return cleaned


def _copied(tables: dict[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, dict) else value for name, value in tables.items()}


@frozen
class _SettingsReader:
    """What a value may need from outside: other files, other variables."""

    folder: Path
    environ: Mapping[str, str]

    def convert(self, setting: Setting, value: object) -> object:
        """The value of what was written, or a ValueError."""
        if setting.kind in {*SECRETS, APPRISE} and isinstance(value, dict):
            value = self._fetch(value)
        parsed = setting.parse(value)
        if setting.kind is ZONE:
            _check_zone(parsed)
        if isinstance(parsed, TimeOfDay | QuietHours):
            _check_zone(parsed.zone)
        if setting.kind is APPRISE:
            _check_notified(parsed)
        return parsed

    def absolute(self, path: str) -> str:
        """A path counted from the folder of the file."""
        # Not Path.expanduser: it raises where there is no such home.
        return os.path.normpath(self.folder / os.path.expanduser(path))  # noqa: PTH111 - see above

    def _fetch(self, reference: dict[str, object]) -> object:
        match reference:
            case {"env": str(name), **rest} if not rest:
                if not self.environ.get(name):
                    raise _UnreadableFile(f"the environment variable {name} is not set; set it to the secret")
                return self.environ[name]
            case {"file": str(name), **rest} if not rest:
                return _secret_in(Path(self.absolute(name)))
        return reference


def _read_text(path: Path, *, bytes_max: int) -> str:
    """The text of a file that is not too long. Raises OSError or ValueError."""
    with path.open("rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return content.decode()


def _secret_in(path: Path) -> str:
    try:
        content = _read_text(path, bytes_max=_SECRET_BYTES_MAX).strip()
    except OSError as error:
        raise _UnreadableFile(f"the file {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise _UnreadableFile(f"the file {path} is not text of at most {_SECRET_BYTES_MAX} bytes") from None
    if not content:
        raise _UnreadableFile(f"the file {path} is empty")
    return content


def _check_zone(name: str) -> None:
    try:
        zone_of(name)
    except (OSError, ValueError, KeyError):
        from zoneinfo import available_timezones  # noqa: PLC0415  # few need it, all would wait for it

        meant = suggestion(name, available_timezones()) or '; write one like "Europe/Berlin" or "UTC"'
        raise ValueError(f"{as_written(name)} is not a time zone{meant}") from None


def _check_notified(addresses: Secret) -> None:
    if not addresses:
        return
    from cormorant.clients.apprise import address_problem  # noqa: PLC0415  # Apprise takes long to load, and few need it

    problems = [address_problem(each) for each in addresses.reveal().split()]
    found = [f"address {number}: {problem}" for number, problem in enumerate(problems, 1) if problem]
    if found:
        raise ValueError("; ".join(found))


class _Builder(Generic[T]):
    """Makes settings of what was written."""

    def __init__(self, cls: type[T], border: _SettingsReader) -> None:
        self._cls = cls
        self._border = border
        self._converter = _converter(border)

    def mistakes_in(self, tables: dict[str, Any]) -> list[_Mistake]:
        """All that is wrong. What conflicts is found only where each setting is right by itself."""
        try:
            self.build(tables)
        except ClassValidationError as error:
            keys = [known.key for known in known_settings(self._cls())]
            return list(_mistakes(error, (), keys))
        return []

    def build(self, tables: dict[str, Any]) -> T:
        """The settings, with every path absolute."""
        return _anchored(self._converter.structure(tables, self._cls), self._border)


def _converter(border: _SettingsReader) -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)

    def hook(setting: Setting) -> Callable[[object, object], object]:
        return lambda value, _: border.convert(setting, value)

    def of_named(field: attrs.Attribute[Any]) -> Callable[[object, object], object]:
        item, reserved = field.metadata[Setting.ITEM], field.metadata[Setting.RESERVED]
        return lambda tables, _: _structured_by_name(tables, lambda table: converter.structure(table, item), reserved)

    def of_class(cls: type) -> Callable[[object, object], object]:
        settings = [(field.name, field.metadata.get(Setting.KEY)) for field in attrs.fields(cls)]
        changed: dict[str, Any] = {
            name: override(rename=each.key(name), struct_hook=hook(each)) for name, each in settings if each
        }
        changed |= {
            field.name: override(struct_hook=of_named(field))
            for field in attrs.fields(cls)
            if Setting.ITEM in field.metadata
        }
        structure: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, converter, **changed)

        def of_table(value: object, _: object) -> object:
            if not isinstance(value, dict):
                raise _NotTable
            return structure(value, cls)

        return of_table

    converter.register_structure_hook_factory(attrs.has, of_class)
    return converter


def _structured_by_name(tables: object, structure: Callable[[Any], T], reserved: tuple[str, ...]) -> dict[str, T]:
    """Tables by name, or one error that holds every wrong name and every wrong table."""
    if not isinstance(tables, dict):
        raise _NotTable
    made: dict[str, T] = {}
    wrong: list[Exception] = []
    for name, table in tables.items():
        found: list[Exception] = []
        problem = name_problem(name, reserved)
        if problem:
            found.append(ValueError(problem))
        try:
            made[name] = structure(table)
        except (ValueError, ClassValidationError) as error:
            found.append(error)
        for each in found:
            each.add_note(IterableValidationNote(f"in {name}", name, type(table)))
        wrong += found
    if wrong:
        raise IterableValidationError("some tables are wrong", wrong, dict)
    return made


class _NotTable(ValueError):
    """Something else stands where a table belongs. It is not shown: it may be the address that belongs inside."""


def _mistakes(error: Exception, at: tuple[str, ...], keys: list[str]) -> Iterator[_Mistake]:
    """Each single mistake, with the key that leads to it."""
    if isinstance(error, ClassValidationError):
        noted, bare = error.group_exceptions()
        for cause, note in noted:
            yield from _mistakes(cause, (*at, key_of(error.cl, note.name)), keys)
        for cause in bare:
            yield from _mistakes(cause, at, keys)
    elif isinstance(error, IterableValidationError):
        for cause, index in error.group_exceptions()[0]:
            yield from _mistakes(cause, (*at, str(index.index)), keys)
    else:
        yield from _single_mistakes(error, at, keys)


def _single_mistakes(error: Exception, at: tuple[str, ...], keys: list[str]) -> Iterator[_Mistake]:
    if isinstance(error, ForbiddenExtraKeysError):
        beside = [".".join((*at, key_of(error.cl, field.name))) for field in attrs.fields(error.cl)]
        for path in sorted((*at, extra) for extra in error.extra_fields):
            yield _Mistake((path,), f"there is no such setting{suggestion('.'.join(path), beside + keys)}")
    elif isinstance(error, SettingsConflict):
        for conflict in error.conflicts:
            yield _Mistake(tuple(tuple(key.split(".")) for key in conflict.keys), conflict.text)
    elif isinstance(error, _NotTable):
        yield _Mistake((at,), f"it is not a table of settings; write [{'.'.join(at)}] and its settings below")
    else:
        yield _Mistake((at,), str(error), is_out_of_reach=isinstance(error, _UnreadableFile))


def _anchored(settings: T, border: _SettingsReader) -> T:
    """The same settings with every path absolute, defaults included."""
    changed: dict[str, Any] = {}
    for field in attrs.fields(type(settings)):  # type: ignore[arg-type]  # attrs all the way down
        value = getattr(settings, field.name)
        if Setting.ITEM in field.metadata:
            changed[field.name] = {name: _anchored(table, border) for name, table in value.items()}
        elif Setting.KEY not in field.metadata:
            changed[field.name] = _anchored(value, border)
        elif field.metadata[Setting.KEY].kind is PATH:
            changed[field.name] = border.absolute(value)
        elif field.metadata[Setting.KEY].kind is DATABASE:
            changed[field.name] = _with_absolute_file(value, border)
    return attrs.evolve(settings, **changed)  # type: ignore[misc]  # as above


def _with_absolute_file(address: Secret, border: _SettingsReader) -> Secret:
    read, file = read_address(address.reveal()), sqlite_file(address.reveal())
    if read is None or file is None:
        return address
    return Secret(sqlite_address(border.absolute(file), kind=read.kind))


if __name__ == "__main__":
    from cormorant.reference import settings_reference

    print(settings_reference(), end="")  # noqa: T201  # printing is what this is for

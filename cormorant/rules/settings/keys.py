"""All settings by key and environment name; the nearest to a typo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import attrs
from attrs import evolve, frozen

from cormorant.rules.addresses import passwords_in
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import Setting

PREFIX = "CORMORANT_"
NAME = "NAME"
"""Stands in a key for a name of the user's choice."""

# Kubernetes and Docker put these into the environment by themselves when a service beside us is called cormorant.
_INJECTED = re.compile(rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?|NAME|ENV_\w+)")


@frozen
class KnownSetting:
    """One setting: its key in the file, what it is, and its default."""

    key: str
    setting: Setting
    default: object

    @property
    def variable(self) -> str | None:
        """Its name in the environment; none inside tables by name before the name is known."""
        return None if NAME in self.key.split(".") else variable_of(self.key)


def variable_of(key: str) -> str:
    """The name in the environment for a key of the file.

    >>> variable_of("storage.statement_timeout")
    'CORMORANT_STORAGE__STATEMENT_TIMEOUT'
    """
    return PREFIX + key.replace(".", "__").replace("-", "_").upper()


def known_settings(defaults: object, above: str = "") -> Iterator[KnownSetting]:
    """Every setting of an attrs object that holds the defaults, tables after plain settings of the same level."""
    tables: list[tuple[str, object]] = []
    for field in attrs.fields(type(defaults)):  # type: ignore[arg-type]  # known to be attrs by construction
        value = getattr(defaults, field.name)
        if Setting.KEY in field.metadata:
            setting = field.metadata[Setting.KEY]
            yield KnownSetting(above + setting.key(field.name), setting, value)
        elif Setting.ITEM in field.metadata:
            tables.append((f"{above}{field.name}.{NAME}.", field.metadata[Setting.ITEM]()))
        else:
            tables.append((f"{above}{field.name}.", value))
    for name, table in tables:
        yield from known_settings(table, name)


def key_of(cls: type, attribute: str) -> str:
    """The key in the file for an attribute of a class of settings."""
    setting = getattr(attrs.fields(cls), attribute).metadata.get(Setting.KEY)
    return setting.key(attribute) if setting else attribute


def nearest(wrong: str, right: Iterable[str]) -> str | None:
    """What was probably meant: the same word in another table, or something written almost alike.

    >>> nearest("storage.statment_timeout", ["storage.hold", "storage.statement_timeout"])
    'storage.statement_timeout'
    >>> nearest("level", ["log.format", "log.level"])
    'log.level'
    """
    right = list(right)
    elsewhere = [key for key in right if key.rpartition(".")[2] == wrong.rpartition(".")[2]]
    alike = get_close_matches(wrong, right, n=1, cutoff=0.6)
    return next(iter(alike + elsewhere), None)


def suggestion(wrong: str, right: Iterable[str]) -> str:
    """The end of a sentence that says what was probably meant, if anything."""
    near = nearest(wrong, right)
    return f"; did you mean {near}?" if near else ""


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Variables that begin like ours and are none: most likely a typo that would otherwise be ignored in silence."""
    ours = set(known)
    return sorted(
        name for name in environ if name.startswith(PREFIX) and name not in ours and not _INJECTED.fullmatch(name)
    )


def secrets_in(settings: object) -> Iterator[Secret]:
    """Every secret that is set, and the passwords in each that is an address: they may show up alone."""
    for field in attrs.fields(type(settings)):  # type: ignore[arg-type]  # as in `known_settings`
        value = getattr(settings, field.name)
        if Setting.ITEM in field.metadata:
            for table in value.values():
                yield from secrets_in(table)
        elif Setting.KEY not in field.metadata:
            yield from secrets_in(value)
        elif isinstance(value, Secret) and value:
            yield value
            yield from passwords_in(value.reveal())


@frozen
class Variable:
    """A variable of the environment that sets something, and its value as the file would have it."""

    name: str
    value: object


def with_names(known: Iterable[KnownSetting], written: Mapping[str, Any]) -> list[KnownSetting]:
    """The same settings, and those of tables by name once for each name in the file."""
    found = []
    for each in known:
        above, is_named, below = each.key.partition(f".{NAME}.")
        if is_named:
            found += [evolve(each, key=f"{above}.{name}.{below}") for name in _names_in(written, above)]
        else:
            found.append(each)
    return found


def _names_in(written: Mapping[str, Any], above: str) -> list[str]:
    table: Any = written
    for name in above.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    # What holds a dot is no name, and would not be found again under its key.
    return [name for name in table if "." not in name] if isinstance(table, dict) else []


def values_in(environ: Mapping[str, str], known: Iterable[KnownSetting]) -> dict[str, Variable]:
    """The variables that set something, by key. Our own name wins over an older one."""
    given = {}
    for each in known:
        kind = each.setting.kind
        for alias in each.setting.aliases:
            if environ.get(alias.name):
                value = kind.from_environment(alias.written(environ[alias.name]))
                given[each.key] = Variable(alias.name, value)
        if each.variable and environ.get(each.variable):
            given[each.key] = Variable(each.variable, kind.from_environment(environ[each.variable]))
    return given


def unknown_in(
    environ: Mapping[str, str],
    known: Sequence[KnownSetting],
    *,
    written: Mapping[str, Any] | None,
    allowed: Iterable[str],
) -> Iterator[str]:
    """What is wrong with each variable that begins like ours and sets nothing. `written` is None: no file could be read."""
    names = [each.variable for each in with_names(known, written or {}) if each.variable]
    for strange in unknown_variables(environ, {*names, *allowed}):
        table = _table_meant(strange, known)
        if table is None:
            yield f"{strange}: there is no such setting{suggestion(strange, names)}"
        elif written is not None:
            above, _, name = table.rpartition(".")
            near = nearest(name, _names_in(written, above))
            meant = f"; did you mean {above}.{near}?" if near else ""
            yield f"{strange}: the file has no table [{table}]; write it there, the environment only refines it{meant}"


def _table_meant(variable: str, known: Iterable[KnownSetting]) -> str | None:
    """The table by name in which a variable would set something, were there such a table."""
    for each in known:
        above, is_named, below = each.key.partition(f".{NAME}.")
        begin, end = f"{variable_of(above)}__", f"__{below.replace('.', '__').upper()}"
        name = variable.removeprefix(begin).removesuffix(end)
        if is_named and name and variable == f"{begin}{name}{end}":
            return f"{above}.{name.lower()}"
    return None


def referenced(written: object) -> set[str]:
    """The variables that the file itself names: `{ env = "NAME" }`."""
    if not isinstance(written, dict):
        return set()
    below = [referenced(value) for value in written.values()]
    return {name for key, name in written.items() if key == "env" and isinstance(name, str)}.union(*below)

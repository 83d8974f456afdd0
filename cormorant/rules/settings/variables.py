"""Which variables of the environment set something, and which were probably meant to?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from cormorant.rules.settings.keys import NAME, KnownSetting, nearest, strange_variables, suggestion, variable_of

__all__ = ["Variable", "referenced", "strange_in", "values_in", "with_names"]


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


def strange_in(
    environ: Mapping[str, str],
    known: Sequence[KnownSetting],
    *,
    written: Mapping[str, Any] | None,
    allowed: Iterable[str],
) -> Iterator[str]:
    """What is wrong with each variable that begins like ours and sets nothing. `written` is None: no file could be read."""
    names = [each.variable for each in with_names(known, written or {}) if each.variable]
    for strange in strange_variables(environ, {*names, *allowed}):
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

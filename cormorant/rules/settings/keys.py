"""Which settings are there, and what are they called? Keys in the file, names in the environment, the nearest to a typo."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

import attrs
from attrs import frozen

from cormorant.rules.addresses import passwords_in
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import Setting

__all__ = [
    "NAME",
    "KnownSetting",
    "key_of",
    "known_settings",
    "nearest",
    "secrets_in",
    "strange_variables",
    "suggestion",
    "variable_of",
]

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


def strange_variables(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
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

"""How one setting is described, parsed and checked; conflicts between settings.

Each function at the end makes an attrs field: `hold_s: float = duration(30.0, "How long …", low_s=0, high_s=3600)`.
A table is a field of its class: `field(factory=StorageSettings)`; tables under names of the user's choice are `named(...)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import attrs
from attrs import frozen

from cormorant.rules.addresses import (
    address_problem,
    parse_listen_address,
    parse_url_base,
    proxy_problem,
    web_address_problem,
)
from cormorant.rules.secrets import Secret
from cormorant.rules.units import (
    as_written,
    format_duration,
    format_share,
    format_size,
    format_time_of_day,
    parse_duration,
    parse_share,
    parse_size,
    parse_time_of_day,
)

_TEXT_MAX = 1000
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@frozen
class Alias:
    """An environment variable of an older document that also sets this. Its bare numbers count in `unit`.

    >>> Alias("WATCHLIST_TICK_BUDGET_MS", "ms").written("8000"), Alias("WATCHLIST_JITTER_PCT", "%", 100).written("0.2")
    ('8000ms', '20%')
    """

    name: str
    unit: str = ""
    factor: int = 1

    def written(self, value: str) -> str:
        """The value as our own settings write it; what is no bare number stays as it is."""
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", value.strip()):
            return value
        scaled = float(value) * self.factor
        return f"{scaled:g}{self.unit}" if self.factor != 1 else f"{value.strip()}{self.unit}"


@frozen(kw_only=True)
class Kind:
    """A way to write a value. `suffix` is the unit that the attribute's name has and the written key has not."""

    name: str
    parse: Callable[[object], Any]
    _write: Callable[[Any], str] = as_written
    suffix: str = ""
    from_environment: Callable[[str], object] = str

    def write(self, value: Any) -> str:
        """The value as people write it; nothing for one that is not set."""
        return "" if value is None else self._write(value)


@frozen(kw_only=True)
class Setting:
    """All that is known of one setting besides its name and its default."""

    KEY: ClassVar[str] = "setting"
    """Where it stands in the metadata of an attrs field."""

    ITEM: ClassVar[str] = "item"
    """Where the class of named tables stands there."""

    RESERVED: ClassVar[str] = "reserved"
    """Where the names stand there that such a table cannot have."""

    kind: Kind
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()

    def parse(self, value: object) -> Any:
        """The value of what was written, or a ValueError that says what is allowed."""
        try:
            parsed = self.kind.parse(value)
        except ValueError as error:
            limited = self.choices or self.low is not None or self.high is not None
            raise ValueError(f"{error}; allowed: {self.allowed()}" if limited else str(error)) from None
        self.check(parsed)
        return parsed

    def accept(self, value: object) -> Any:
        """As `parse`. A number of seconds or bytes is in the unit of the attribute."""
        if not self.kind.suffix or isinstance(value, str):
            return self.parse(value)
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise a ValueError when a value is outside what is allowed."""
        too_low = self.low is not None and value < self.low
        too_high = self.high is not None and value > self.high
        if too_low or too_high:
            raise ValueError(f"{self.kind.write(value)} is out of range; allowed: {self.allowed()}")
        if self.choices and value not in self.choices:
            raise ValueError(f"{as_written(value)} is not one of the choices; allowed: {self.allowed()}")

    def allowed(self) -> str:
        """What may be written, in words."""
        if self.choices:
            return ", ".join(self.choices)
        low = None if self.low is None else self.kind.write(self.low)
        high = None if self.high is None else self.kind.write(self.high)
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else f"at most {high}" if high else self.kind.name

    def key(self, attribute: str) -> str:
        """The name in the settings file: there the value carries the unit."""
        return attribute.removesuffix(self.kind.suffix)


def _refusal(value: object, why: str) -> ValueError:
    return ValueError(f"{as_written(value)} {why}")


def _parse_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(value, "is not a whole number")
    return value


def _parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _refusal(value, "is neither true nor false")
    return value


def _parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise _refusal(value, "is not text; put it in quotes")
    if len(value) > _TEXT_MAX or not value.isprintable():
        raise _refusal(value, f"is not one line of at most {_TEXT_MAX} characters")
    return value


def _parse_path(value: object) -> str:
    text = _parse_text(value)
    if not text:
        raise _refusal(value, "is not a path")
    return text


def _parse_secret(value: object) -> Secret:
    # Invariant: no message here holds the value.
    if isinstance(value, str) and len(value) <= _TEXT_MAX and value.isprintable():
        return Secret(value)
    raise ValueError(
        f'it is not a secret; write one line of at most {_TEXT_MAX} characters, {{ env = "NAME" }} or {{ file = "PATH" }}'
    )


def _parse_address(problem_of: Callable[[str], str | None], value: object) -> Secret:
    # Invariant: as in `_parse_secret`.
    address = _parse_secret(value)
    problem = problem_of(address.reveal()) if address else None
    if problem:
        raise ValueError(problem)
    return address


def _parse_web_address(value: object) -> str:
    # Invariant: as in `_parse_secret`, for a key may have been pasted with it.
    text = value if isinstance(value, str) and len(value) <= _TEXT_MAX else "no address"
    problem = web_address_problem(text) if text else None
    if problem:
        raise ValueError(problem)
    return text


def _parse_listen(value: object) -> str:
    return parse_listen_address(_parse_text(value)).shown


def _int_or_text(text: str) -> object:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()) else text


def _bool_or_text(text: str) -> object:
    return _WORDS.get(text.strip().lower(), text)


_RANK_MAX = 32_767
_RANKS_MAX = 32


def _parse_ranks(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not 1 <= len(value) <= _RANKS_MAX:
        raise _refusal(value, "is not a table of names and numbers, such as { high = 0, low = 10 }")
    for name, rank in value.items():
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank <= _RANK_MAX:
            raise _refusal(rank, f"is not a number from 0 to {_RANK_MAX} ({name})")
    return dict(value)


def _ranks_or_text(text: str) -> object:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if all(name.strip() and re.fullmatch(r"[0-9]{1,9}", rank.strip()) for name, _, rank in pairs):
        return {name.strip(): int(rank) for name, _, rank in pairs}
    return text


def _written_ranks(ranks: dict[str, int]) -> str:
    return f"{{ {', '.join(f'{name} = {rank}' for name, rank in ranks.items())} }}"


NUMBER = Kind(name="whole number", parse=_parse_number, from_environment=_int_or_text)
FLAG = Kind(name="true or false", parse=_parse_flag, from_environment=_bool_or_text)
TEXT = Kind(name="text", parse=_parse_text)
PATH = Kind(name="path", parse=_parse_path)
ZONE = Kind(name="time zone", parse=_parse_text)
SECRET = Kind(name="secret", parse=_parse_secret, write=lambda secret: as_written(str(secret)))
DATABASE = Kind(name="address of a database", parse=partial(_parse_address, address_problem), write=SECRET.write)
PROXY = Kind(name="address of a proxy", parse=partial(_parse_address, proxy_problem), write=SECRET.write)
SECRETS = frozenset({SECRET, DATABASE, PROXY})
"""What may also be written as a reference to a variable or a file."""
LISTEN = Kind(name="IP address and port", parse=_parse_listen)
URL_BASE = Kind(name="beginning of a path", parse=lambda value: parse_url_base(_parse_text(value)))
WEB_ADDRESS = Kind(name="http:// or https:// address", parse=_parse_web_address)
TIME_OF_DAY = Kind(name="time of day with its zone", parse=parse_time_of_day, write=format_time_of_day)
DURATION = Kind(name="duration", parse=parse_duration, write=format_duration, suffix="_s")
SIZE = Kind(name="size", parse=parse_size, write=format_size, suffix="_bytes")
RANKS = Kind(name="names and numbers", parse=_parse_ranks, write=_written_ranks, from_environment=_ranks_or_text)
SHARE = Kind(name="share", parse=parse_share, write=format_share)


def setting_field(default: object, setting: Setting) -> Any:
    """An attrs field that knows what it means."""

    def check(_instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is None and default is None:
            return  # it is not said, and need not be
        try:
            setting.check(value)
        except ValueError as error:
            raise ValueError(f"{attribute.name}: {error}") from None

    return attrs.field(default=default, validator=check, metadata={Setting.KEY: setting})


def number(default: int | None, meaning: str, *, low: int, high: int, aliases: tuple[Alias, ...] = ()) -> Any:
    """A whole number."""
    return setting_field(default, Setting(kind=NUMBER, meaning=meaning, low=low, high=high, aliases=aliases))


def duration(
    default_s: float | None, meaning: str, *, low_s: float, high_s: float | None = None, aliases: tuple[Alias, ...] = ()
) -> Any:
    """Seconds, written like "10s" or "1h 30m". The attribute's name ends in `_s`, the key does not."""
    return setting_field(default_s, Setting(kind=DURATION, meaning=meaning, low=low_s, high=high_s, aliases=aliases))


def size(default_bytes: int | None, meaning: str, *, low_bytes: int, high_bytes: int) -> Any:
    """Bytes, written like "100 MB". The attribute's name ends in `_bytes`, the key does not."""
    return setting_field(default_bytes, Setting(kind=SIZE, meaning=meaning, low=low_bytes, high=high_bytes))


def share(default: float | None, meaning: str, *, high: float = 1, aliases: tuple[Alias, ...] = ()) -> Any:
    """A part of a whole, written like "25%"."""
    return setting_field(default, Setting(kind=SHARE, meaning=meaning, low=0, high=high, aliases=aliases))


def choice(default: str, meaning: str, *, choices: tuple[str, ...], aliases: tuple[Alias, ...] = ()) -> Any:
    """One of a few words."""
    return setting_field(default, Setting(kind=TEXT, meaning=meaning, choices=choices, aliases=aliases))


def setting_of(kind: Kind, default: object, meaning: str, *, aliases: tuple[Alias, ...] = ()) -> Any:
    """A value of a kind that allows all that can be written as such."""
    return setting_field(default, Setting(kind=kind, meaning=meaning, aliases=aliases))


flag = partial(setting_of, FLAG)
text = partial(setting_of, TEXT)
path = partial(setting_of, PATH)
"""A file or folder. A relative one is taken from the folder of the settings file."""
ranks = partial(setting_of, RANKS)
"""Names with a number each, written as a small table; in the environment as `high=0,low=10`."""
zone = partial(setting_of, ZONE)
secret = partial(setting_of, SECRET, Secret(""))
database = partial(setting_of, DATABASE, Secret(""))
"""A secret because it may hold a password. A relative SQLite file is a relative path."""
proxy = partial(setting_of, PROXY, Secret(""))
web_address = partial(setting_of, WEB_ADDRESS, "")
listen = partial(setting_of, LISTEN)
url_base = partial(setting_of, URL_BASE)
time_of_day = partial(setting_of, TIME_OF_DAY, None)


_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def name_problem(name: str, reserved: tuple[str, ...] = ()) -> str | None:
    """Why a table cannot have this name.

    >>> name_problem("cross-seed")
    >>> name_problem("Red", ())
    '"Red" cannot be a name; write 1 to 40 lower-case letters, digits, - and _, a letter first'
    """
    if not _NAME.fullmatch(name):
        return f"{as_written(name)} cannot be a name; write 1 to 40 lower-case letters, digits, - and _, a letter first"
    if name in reserved:
        return f"{as_written(name)} cannot be a name here, it has a meaning of its own; choose another"
    return None


def named(item: type, *, reserved: tuple[str, ...] = ()) -> Any:
    """Tables of one class under names of the user's choice. The attribute is a `Mapping[str, TheClass]`."""

    def check(_instance: object, attribute: attrs.Attribute[Any], value: Mapping[str, object]) -> None:
        problems = [name_problem(name, reserved) for name in value]
        if any(problems):
            raise ValueError(f"{attribute.name}: {'; '.join(filter(None, problems))}")

    return attrs.field(factory=dict, validator=check, metadata={Setting.ITEM: item, Setting.RESERVED: reserved})


_WORDS_MAX: Final = 100
_WORD_LENGTH_MAX: Final = 1_000


PATTERNS: Final = "list of patterns"
"""The name of the kinds that `patterns` makes."""


def patterns(meaning: str, *, problem: Callable[[str], str | None]) -> Any:
    """Several words that `problem` has nothing against."""

    def parse(value: object) -> tuple[str, ...]:
        parsed = _parse_words(value)
        found = [text for text in map(problem, parsed) if text]
        if found:
            raise ValueError("; ".join(found))
        return parsed

    kind = Kind(name=PATTERNS, parse=parse, write=written_list, from_environment=split_words)
    return setting_of(kind, (), meaning)


def _parse_words(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or len(given) > _WORDS_MAX:
        raise ValueError(f'{as_written(value)} is not a list of at most {_WORDS_MAX} words, such as ["flac", "24bit"]')
    for word in given:
        if not isinstance(word, str) or not word.strip() or len(word) > _WORD_LENGTH_MAX or not word.isprintable():
            raise ValueError(f"{as_written(word)} is not one line of 1 to {_WORD_LENGTH_MAX} characters in quotes")
    return tuple(given)


def split_words(text: str) -> object:
    """The words of a list in the environment, where commas stand between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def written_list(given: Iterable[object]) -> str:
    """A list as it stands in the settings file."""
    return f"[{', '.join(as_written(str(each)) for each in given)}]"


WORDS = Kind(name="list of words", parse=_parse_words, write=written_list, from_environment=split_words)


def words(meaning: str, *, default: tuple[str, ...] = ()) -> Any:
    """Several words; none unless set. The attribute is a `tuple[str, ...]`."""
    return setting_of(WORDS, default, meaning)


@frozen
class Conflict:
    """Settings that do not go together although each is allowed. It is told under the first key."""

    keys: tuple[str, ...]
    text: str


class SettingsConflict(ValueError):
    """Some settings do not go together. All such conflicts are listed."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__("; ".join(f"{conflict.keys[0]}: {conflict.text}" for conflict in conflicts))
        self.conflicts = tuple(conflicts)

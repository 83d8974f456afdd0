"""Settings and presets of sources and the limits that follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from attrs import field, frozen

from cormorant.rules.addresses import normalised
from cormorant.rules.search.limits import COUNT_MAX, INTERVAL_S_MAX, PRESETS, SHARE_MAX, SourceLimits
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import (
    Conflict,
    choice,
    duration,
    flag,
    number,
    proxy,
    secret,
    share,
    text,
    time_of_day,
    web_address,
)
from cormorant.rules.settings.watch import PriceFieldSettings, path_problem, query_problem
from cormorant.rules.units import TimeOfDay, as_written, zone_of

__all__ = [
    "KINDS",
    "PRICE_KIND",
    "RESERVED_NAMES",
    "SEARCHED",
    "SPOTIFY_URL",
    "LimitSettings",
    "ReserveSettings",
    "SourceSettings",
    "limits_of",
    "source_conflicts",
]

RESERVED_NAMES: Final = ("all", "combined")
"""What no source can be called: where sources are named, it means each of them."""

KINDS: Final = ("torznab", "newznab", "spotify", "slskd", "prices")
PRICE_KIND: Final = "prices"
"""The kind of sources that state prices."""
SEARCHED: Final = frozenset({"torznab", "newznab"})
"""The kinds that are searched where no source is named; the others only by name."""
SPOTIFY_URL: Final = "https://api.spotify.com/v1"

_DEFAULT_PRESET = "default"


def _count(meaning: str) -> Any:
    return number(None, meaning, low=1, high=COUNT_MAX)


@frozen(kw_only=True)
class ReserveSettings:
    """What is kept for some and not spent by others."""

    interactive: float | None = share(
        None, "Part of each hour, day and month that is kept for people who wait.", high=SHARE_MAX
    )


@frozen(kw_only=True)
class LimitSettings:
    """How fast and how often a source may be asked, as far as it is said. What is None is not said."""

    spacing_s: float | None = duration(
        None, "Time between two requests that nothing goes under.", low_s=0.0, high_s=INTERVAL_S_MAX
    )
    pace_s: float | None = duration(
        None,
        "Time between two requests that work keeps for which nobody waits; what is urgent keeps a part of it.",
        low_s=0.0,
        high_s=INTERVAL_S_MAX,
    )
    per_minute: int | None = _count("Searches in any minute, and as many downloads.")
    per_hour: int | None = _count("Searches in any hour.")
    per_day: int | None = _count("Searches in a day.")
    per_month: int | None = _count("Searches in any 31 days.")
    grabs_per_hour: int | None = _count("Downloads in any hour.")
    grabs_per_day: int | None = _count("Downloads in a day.")
    grabs_per_month: int | None = _count("Downloads in any 31 days.")
    reset: TimeOfDay | None = time_of_day(  # noqa: RUF009  # an attrs field is made, not a value
        "When the site's day begins. Not set: a day is any 24 hours."
    )
    in_flight: int | None = number(None, "Requests that may run at the same time.", low=1, high=1_000)
    reserve: ReserveSettings = field(factory=ReserveSettings)


def _own_first(_cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    return sorted(fields, key=lambda each: each.inherited)  # type: ignore[attr-defined]  # the stubs lack it


@frozen(kw_only=True, field_transformer=_own_first)
class SourceSettings(LimitSettings):
    """One source: where it is, how to get in, and its own limits."""

    kind: str = choice("torznab", "How it is talked to.", choices=KINDS)
    url: str = web_address("Address of its API, without the key, such as http://prowlarr:9696/1/api.")
    id: str = text("", "For spotify: the id of your app there, whose secret is the key.")
    key: Secret = secret("Key of its API.")  # noqa: RUF009  # an attrs field is made, not a value
    enabled: bool = flag(True, "Whether it is asked at all.")  # noqa: FBT003  # a default
    proxy: Secret = proxy("Proxy through which it is reached, such as http://gate:3128.")  # noqa: RUF009  # as above
    timeout_s: float | None = duration(
        None,
        "Longest time a request may take, whoever waits. Not set: it depends on who waits.",
        low_s=0.1,
        high_s=3600.0,
    )
    limits: str = text(
        _DEFAULT_PRESET,
        f"Name of the limits that it refines: {' or '.join(PRESETS)}, or one of your own under [limits.NAME].",
    )
    query: str = text(
        "q={title}", "For prices: what is asked after the ?, such as q={title}&year={year}; {key} puts the key into it."
    )
    items: str = text("", "For prices: path of the list in the answer, such as data.items. Empty: it is the list.")
    fields: PriceFieldSettings = field(factory=PriceFieldSettings)


def limits_of(source: SourceSettings, presets: Mapping[str, LimitSettings]) -> SourceLimits:
    """The limits of a source: those of its preset, and over them its own. Raises ValueError where there is no such preset.

    A table named like a built-in preset refines it; any other begins with what holds where nothing is said.

    >>> limits = limits_of(SourceSettings(limits="private", per_day=300), {"private": LimitSettings(per_hour=30)})
    >>> limits.spacing_s, limits.per_hour, limits.per_day
    (10.0, 30, 300)
    """
    problem = _preset_problem(source.limits, presets)
    if problem:
        raise ValueError(problem)
    wanted = source.kind if source.limits == _DEFAULT_PRESET and source.kind in PRESETS else source.limits
    limits = PRESETS.get(wanted, PRESETS[_DEFAULT_PRESET])
    preset = presets.get(wanted)
    refined = _refined(_refined(limits, preset) if preset else limits, source)
    return attrs.evolve(refined, timeout_s=source.timeout_s)


_SAME_IN_BOTH: Final = attrs.fields_dict(LimitSettings).keys() & attrs.fields_dict(SourceLimits).keys() - {"reset"}


def _refined(limits: SourceLimits, said: LimitSettings) -> SourceLimits:
    changes: dict[str, Any] = {name: getattr(said, name) for name in _SAME_IN_BOTH}
    changes |= {"in_flight_max": said.in_flight, "reserve_interactive": said.reserve.interactive}
    if said.reset is not None:
        changes |= {"reset": said.reset.at, "reset_zone": zone_of(said.reset.zone)}
    return attrs.evolve(limits, **{name: value for name, value in changes.items() if value is not None})


def source_conflicts(sources: Mapping[str, SourceSettings], presets: Mapping[str, LimitSettings]) -> Iterator[Conflict]:
    """What does not go together among the sources and with the presets that they name."""
    yield from _alike("limits", presets)
    yield from _alike("sources", sources)
    seen: dict[str, str] = {}
    for name, source in sources.items():
        problem = _preset_problem(source.limits, presets)
        if problem:
            yield Conflict((f"sources.{name}.limits", f"limits.{source.limits}"), problem)
        if source.kind == "spotify" and source.enabled and not (source.id and source.key):
            keys = (f"sources.{name}.id", f"sources.{name}.key")
            yield Conflict(keys, "spotify is asked with the id and the secret of an app of yours; set id and key")
        if not source.url and source.enabled and source.kind != "spotify":
            remedy = 'write one like "http://prowlarr:9696/1/api", or enabled = false'
            yield Conflict((f"sources.{name}.url", f"sources.{name}.enabled"), f"the source has no address; {remedy}")
        if source.kind == "prices":
            yield from _price_source_conflicts(f"sources.{name}", source)
        if not source.url:
            continue
        first = seen.setdefault(normalised(source.url), name)
        if first != name:
            yield Conflict(
                (f"sources.{name}.url", f"sources.{first}.url"),
                f"sources.{first} has the same address, so that one site would be counted as two; "
                f"leave out sources.{first} or sources.{name}",
            )


def _price_source_conflicts(above: str, source: SourceSettings) -> Iterator[Conflict]:
    problem = query_problem(source.query)
    if problem:
        yield Conflict((f"{above}.query", f"{above}.kind"), problem)
    paths = {f"fields.{name}": path for name, path in attrs.asdict(source.fields).items()} | {"items": source.items}
    for name, path in paths.items():
        problem = path_problem(path) if path or name in {"fields.price", "fields.title"} else None
        if problem:
            yield Conflict((f"{above}.{name}", f"{above}.kind"), problem)


def _preset_problem(wanted: str, presets: Mapping[str, LimitSettings]) -> str | None:
    known = sorted({*PRESETS, *presets})
    if wanted in known:
        return None
    return (
        f"there are no limits called {as_written(wanted)}; write [limits.NAME] for them, or one of: {', '.join(known)}"
    )


def _alike(above: str, tables: Mapping[str, object]) -> Iterator[Conflict]:
    """Names that would be one in the environment."""
    seen: dict[str, str] = {}
    for name in tables:
        first = seen.setdefault(name.replace("-", "_"), name)
        if first != name:
            text = f"{above}.{first} is called the same in the environment, where - is written _; rename one of them"
            yield Conflict((f"{above}.{name}", f"{above}.{first}"), text)

"""Sources and presets made in code: which limits follow, and what is refused."""

from __future__ import annotations

from datetime import UTC, time
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cormorant.rules.search.limits import PRESETS, SourceLimits
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings, SettingsConflict
from cormorant.rules.settings.sources import LimitSettings, ReserveSettings, SourceSettings, limits_of
from cormorant.rules.units import TimeOfDay

EVERYTHING: dict[str, Any] = {
    "spacing_s": 1.0,
    "pace_s": 2.0,
    "per_minute": 3,
    "per_hour": 4,
    "per_day": 5,
    "per_month": 6,
    "grabs_per_hour": 7,
    "grabs_per_day": 8,
    "grabs_per_month": 9,
}
FOLLOWING = SourceLimits(
    **EVERYTHING, reset=time(3, 30), reset_zone=ZoneInfo("Europe/Berlin"), in_flight_max=2, reserve_interactive=0.1
)
SAID: dict[str, Any] = {
    **EVERYTHING,
    "reset": TimeOfDay(time(3, 30), "Europe/Berlin"),
    "in_flight": 2,
    "reserve": ReserveSettings(interactive=0.1),
}


@pytest.mark.parametrize("preset", ["default", "private"])
def test_a_source_that_says_nothing_has_the_limits_of_its_preset(preset: str) -> None:
    assert limits_of(SourceSettings(limits=preset), {"other": LimitSettings(per_day=1)}) == PRESETS[preset]


def test_everything_that_a_source_says_reaches_its_limits() -> None:
    assert limits_of(SourceSettings(**SAID), {}) == FOLLOWING
    assert limits_of(SourceSettings(**SAID, limits="private"), {}) == FOLLOWING


def test_everything_that_a_preset_says_reaches_the_limits() -> None:
    assert limits_of(SourceSettings(limits="mine"), {"mine": LimitSettings(**SAID)}) == FOLLOWING


def test_a_table_refines_the_built_in_preset_and_the_source_refines_the_table() -> None:
    presets = {"private": LimitSettings(per_hour=30, per_day=200, reset=TimeOfDay(time(5), "Asia/Tokyo"))}

    limits = limits_of(SourceSettings(limits="private", per_day=300, reset=TimeOfDay(time(6))), presets)

    assert (limits.spacing_s, limits.per_hour, limits.per_day, limits.grabs_per_day) == (10.0, 30, 300, 50)
    assert (limits.reset, limits.reset_zone) == (time(6), UTC)


def test_the_default_preset_may_be_refined_and_is_what_holds_unless_another_is_named() -> None:
    presets = {"default": LimitSettings(spacing_s=7.0), "mine": LimitSettings(per_day=1)}

    assert limits_of(SourceSettings(), presets).spacing_s == 7.0
    assert limits_of(SourceSettings(limits="mine"), presets) == SourceLimits(per_day=1)


def test_limits_that_nobody_knows_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        ValueError, match=r'no limits called "privat"; .* or one of: default, mine, private, slskd, spotify$'
    ):
        limits_of(SourceSettings(limits="privat"), {"mine": LimitSettings()})


def test_sources_made_in_code_are_held_to_the_same_rules() -> None:
    with pytest.raises(ValueError, match='sources: "All" cannot be a name; .*; "all" cannot be a name here'):
        Settings(sources={"All": SourceSettings(), "all": SourceSettings()})
    with pytest.raises(ValueError, match="per_day: 0 is out of range; allowed: 1 to 1000000"):
        SourceSettings(per_day=0)
    with pytest.raises(ValueError, match="interactive: 95% is out of range; allowed: 0% to 90%"):
        ReserveSettings(interactive=0.95)
    with pytest.raises(SettingsConflict) as refusal:
        Settings(sources={"a": SourceSettings(url="http://x", limits="y"), "b": SourceSettings(url="http://X/")})
    assert [conflict.keys[0] for conflict in refusal.value.conflicts] == ["sources.a.limits", "sources.b.url"]


def test_what_a_source_keeps_secret_does_not_show() -> None:
    source = SourceSettings(key=Secret("hunter2"), proxy=Secret("http://me:hunter2@gate"))

    assert "hunter2" not in f"{source} {source!r}"

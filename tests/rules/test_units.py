"""Durations, sizes and shares: what is written comes back exactly, what is not meant is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.units import (
    as_written,
    format_duration,
    format_share,
    format_size,
    parse_duration,
    parse_share,
    parse_size,
)


@given(st.floats(min_value=0, allow_infinity=False) | st.integers(0, 10**9))
def test_a_formatted_duration_parses_to_the_same_seconds(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=2**80))
def test_a_formatted_size_parses_to_the_same_bytes(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.floats(min_value=0, max_value=1))
def test_a_formatted_share_parses_to_the_same_number(share: float) -> None:
    assert parse_share(format_share(share)) == share


@given(st.text("0123456789. smhdwkMGiB%-e\u0967\n") | st.integers() | st.floats() | st.none() | st.booleans())
@pytest.mark.parametrize("parse", [parse_duration, parse_size, parse_share])
def test_anything_else_is_refused_with_a_reason(parse: Callable[[object], float], value: object) -> None:
    parsed, reason = -1.0, ""
    try:
        parsed = parse(value)
    except ValueError as refusal:
        reason = str(refusal)

    assert " is not a " in reason or (isinstance(value, str) and parsed >= 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("10s", 10), (" 10 s ", 10), ("1h30m", 5400), ("1h 30m", 5400), ("2w", 1_209_600), ("0.5ms", 0.0005)],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", ["", "10", 7, "s", "10 sec", "10S", "-5s", "1e3s", "1h 30", "1,5h", "inf", "\u0967s", None]
)
def test_what_is_not_a_duration_is_refused_and_shown(value: object) -> None:
    with pytest.raises(ValueError, match=r'is not a duration; write numbers with units .* such as "10s"'):
        parse_duration(value)


@pytest.mark.parametrize("value", ["", "10", 7, "MB", "3 apples", "-1 MB", "1e3 B", True])
def test_what_is_not_a_size_is_refused_and_shown(value: object) -> None:
    with pytest.raises(ValueError, match="is not a size; write a number with a unit"):
        parse_size(value)


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match=r'"1\.0001 kB" is not a whole number of bytes'):
        parse_size("1.0001 kB")


@pytest.mark.parametrize("value", ["", "25", 7, 0.5, "0.25", "100.1%", "-1%", "%"])
def test_what_is_not_a_share_is_refused_and_shown(value: object) -> None:
    with pytest.raises(ValueError, match="is not a share; write a percentage from 0% to 100%"):
        parse_share(value)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), -1.0])
@pytest.mark.parametrize("write", [format_duration, format_share])
def test_odd_numbers_are_not_written(write: Callable[[float], str], number: float) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        write(number)


def test_an_address_in_the_wrong_place_is_shown_without_its_password() -> None:
    assert as_written("postgresql://me:hun/ter2@db/x") == '"postgresql://me:***@db/x"'


def test_a_long_mistake_is_shown_short() -> None:
    with pytest.raises(ValueError, match="is not a duration") as refusal:
        parse_duration("x" * 10_000)

    assert len(str(refusal.value)) < 200

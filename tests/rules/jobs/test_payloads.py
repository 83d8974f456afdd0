"""Payloads: what JSON can hold comes back as it was, and everything else is refused by name."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cormorant.rules.errors import PayloadRefused
from cormorant.rules.jobs.states import PAYLOAD_BYTES_MAX, checked_payload

NUL = "\0"

texts = st.text(st.characters(codec=None, exclude_characters=NUL))
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10)


@pytest.mark.slow("a hundred values")
@given(values)
@example({"half a character": "\ud800"})
@example("\\u0000 is six characters and no NUL")
@example({"\\\\u0000": 2**63})
def test_what_json_can_hold_comes_back_as_it_was(payload: Any) -> None:
    text = checked_payload(payload)

    assert json.loads(text) == payload
    assert text.isascii()


@pytest.mark.slow("a hundred texts")
@given(st.text(max_size=5), st.text(max_size=5))
@example("\\", "")
@example("\\\\", "")
def test_a_nul_is_found_wherever_it_stands(before: str, after: str) -> None:
    text = before + NUL + after

    for payload in (text, [text], {"key": text}, {text: "key"}, {"deep": [{"er": text}]}):
        with pytest.raises(PayloadRefused, match="NUL"):
            checked_payload(payload)


def deep() -> list[Any]:
    nest: list[Any] = []
    for _ in range(100_000):
        nest = [nest]
    return nest


def circle() -> list[Any]:
    snake: list[Any] = []
    snake.append(snake)
    return snake


@pytest.mark.parametrize(
    "payload",
    [
        b"bytes",
        {1, 2},
        object(),
        math.nan,
        [math.inf],
        {"minus": -math.inf},
        {(1, 2): "a tuple is no key"},
        10**5000,
        deep(),
        circle(),
    ],
    ids=["bytes", "set", "object", "nan", "inf", "-inf", "tuple key", "endless number", "too deep", "circle"],
)
def test_what_is_not_json_is_refused_with_the_reason(payload: Any) -> None:
    with pytest.raises(PayloadRefused, match="cannot be kept as JSON"):
        checked_payload(payload)


def test_a_payload_of_the_largest_size_is_kept_and_one_byte_more_is_refused() -> None:
    largest = "x" * (PAYLOAD_BYTES_MAX - len('""'))

    assert len(checked_payload(largest)) == PAYLOAD_BYTES_MAX

    with pytest.raises(PayloadRefused, match="1,000,001 bytes"):
        checked_payload(largest + "x")


def test_a_character_counts_as_many_bytes_as_are_stored() -> None:
    most = (PAYLOAD_BYTES_MAX - len('""')) // len(r"\ud83d\udc26")

    assert len(checked_payload("\N{BIRD}" * most)) <= PAYLOAD_BYTES_MAX

    with pytest.raises(PayloadRefused, match="bytes"):
        checked_payload("\N{BIRD}" * (most + 1))

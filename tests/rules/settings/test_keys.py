"""The catalogue of settings: what each is called, and what was meant by a typo."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attrs import field, frozen

from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import duration, named, secret
from cormorant.rules.settings.keys import known_settings, nearest, secrets_in, unknown_variables


@frozen(kw_only=True)
class Nest:
    """A table."""

    key: Secret = secret("Key.")  # noqa: RUF009  # an attrs field is made, not a value
    stay_s: float = duration(60.0, "Stay.", low_s=0.0)


@frozen(kw_only=True)
class Cliff:
    """Tables in tables."""

    watch_s: float = duration(1.0, "Watch.", low_s=0.0)
    north: Nest = field(factory=Nest)
    others: Mapping[str, Nest] = named(Nest)


def test_keys_have_no_unit_and_variables_follow_from_keys() -> None:
    assert [(known.key, known.variable) for known in known_settings(Cliff())] == [
        ("watch", "CORMORANT_WATCH"),
        ("north.key", "CORMORANT_NORTH__KEY"),
        ("north.stay", "CORMORANT_NORTH__STAY"),
        ("others.NAME.key", None),
        ("others.NAME.stay", None),
    ]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("north.sty", "north.stay"), ("stay", "north.stay"), ("nort.stay", "north.stay"), ("zebra", None)],
)
def test_a_typo_finds_what_was_meant(wrong: str, meant: str | None) -> None:
    assert nearest(wrong, ["watch", "north.key", "north.stay"]) == meant


def test_only_variables_that_begin_like_ours_and_are_none_are_strange() -> None:
    environ = dict.fromkeys(["PATH", "CORMORANT_WATCH", "CORMORANT_WACH", "CORMORANT_WEB_SERVICE_PORT"], "x")

    assert unknown_variables(environ, ["CORMORANT_WATCH"]) == ["CORMORANT_WACH"]


def test_a_password_that_had_to_be_encoded_is_found_as_it_is_meant_too() -> None:
    cliff = Cliff(north=Nest(key=Secret("postgresql://me:hun%2Fter2@db/x")))

    assert {Secret("hun%2Fter2"), Secret("hun/ter2")} < set(secrets_in(cliff))


def test_all_secrets_are_found_and_passwords_inside_addresses_too() -> None:
    cliff = Cliff(north=Nest(key=Secret("postgresql://me:hunter2@db/x")), others={"east": Nest(key=Secret("egg"))})

    assert list(secrets_in(cliff)) == [Secret("postgresql://me:hunter2@db/x"), Secret("hunter2"), Secret("egg")]

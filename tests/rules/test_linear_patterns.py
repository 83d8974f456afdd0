"""No regular expression of the product takes the square of the length of a text, and none changed its meaning for that."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import actors
import cormorant
import storage
import supervisors
from cormorant.rules import units
from cormorant.rules.secrets import redact_link, redact_passwords
from cormorant.rules.watch import prices, soulseek, titles
from tests.adversarial import quadratic_text

PACKAGES: Final = (actors, cormorant, storage, supervisors)

FUNCTIONS: Final = ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
CALLS: Final = {f"re.{name}" for name in FUNCTIONS}
# Each with the reason why no text from outside ever reaches it.
NEVER_FOREIGN: Final = {
    "cormorant.rules.addresses": "the address of the database, from the settings or the command line",
    "cormorant.rules.addresses._ADDRESS": "the address of the database, from the settings or the command line",
    "cormorant.rules.settings.keys._INJECTED": "names of variables in the environment of the process",
}
# Each with what bounds it.
MADE_AT_RUN_TIME: Final = {
    "cormorant.rules.watch.profiles": "patterns of the user: at most 200 characters, on the first 500 of a title",
}


def product_modules() -> Iterator[str]:
    for package in PACKAGES:
        yield package.__name__
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith("__main__"):
                yield each.name


@cache
def named_patterns() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern that a module holds, under its first name."""
    found: dict[re.Pattern[Any], str] = {}
    for name in product_modules():
        for attribute, value in vars(import_module(name)).items():
            for pattern in value if isinstance(value, tuple | list | frozenset | set) else [value]:
                if isinstance(pattern, re.Pattern):
                    found.setdefault(pattern, f"{name}.{attribute}")
    return {f"{name} {pattern.pattern!r}": pattern for pattern, name in found.items()}


def calls_of_re() -> Iterator[tuple[str, ast.Call, bool]]:
    """Every `re.compile(…)`, `re.sub(…)` and the like, its module, and whether the result stays in the module."""
    for name in product_modules():
        tree = ast.parse(Path(str(import_module(name).__file__)).read_text())
        kept = {
            id(call) for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign) for call in ast.walk(each)
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _is_of_re(call.func):
                yield name, call, id(call) in kept


def _is_of_re(called: ast.expr) -> bool:
    is_named = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
    return is_named and ast.unparse(called) in CALLS


def unnamed_patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Every pattern that is written where it is used."""
    for name, call, is_kept in calls_of_re():
        pattern = call.args[0]
        if not is_kept and isinstance(pattern, ast.Constant):
            yield f"{name} {pattern.value!r}", re.compile(pattern.value)


def all_patterns() -> dict[str, re.Pattern[Any]]:
    return {**named_patterns(), **dict(unnamed_patterns())}


@pytest.mark.slow("imports every module")
def test_every_pattern_can_be_found_and_tried() -> None:
    redact = {
        name for name, call, is_kept in calls_of_re() if not is_kept and not isinstance(call.args[0], ast.Constant)
    }

    assert redact == set(MADE_AT_RUN_TIME)
    assert len(named_patterns()) > 80
    assert set(NEVER_FOREIGN) <= {name.partition(" ")[0] for name in all_patterns()}


@pytest.mark.slow("tries some hundred texts on each of a hundred patterns")
def test_no_pattern_takes_the_square_of_the_length_of_a_text() -> None:
    foreign = {name: each for name, each in all_patterns().items() if name.partition(" ")[0] not in NEVER_FOREIGN}

    quadratic = {name: text[:80] for name, each in foreign.items() if (text := quadratic_text(each)) is not None}

    assert quadratic == {}


@pytest.mark.slow("tries some hundred texts on each pattern")
@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<=[?&;])([^=&#\s]*=)[^&#\s]*",
        r"\s*[(\[](?:feat|ft|with)\b[^()\[\]]*[)\]]",
        r"[(\[][^()\[\]]*\b(?:remaster(?:ed)?|explicit|clean version)\b[^()\[\]]*[)\]]",
        r"\s*([0-9]{1,18})\s*",
        r"\s+$",
        r"<[^>]*>",
        r"<!--.*?-->",
        r".*/gate/([a-z]+)",
        r"\w+:/*[^:]*:(.*)@",
        r"(.*) \(at (.*)\)",
        r"[\w.]+@[\w.]+",
        rb"&[^;]*;",
    ],
)
def test_the_usual_mistakes_are_found(pattern: Any) -> None:
    assert quadratic_text(re.compile(pattern)) is not None


# How each pattern was written before. What was quadratic then must mean the same now.
OLD_VALUE: Final = re.compile(r"(?<=[?&;])([^=&#\s]*=)[^&#\s]*")
OLD_URL_PASSWORD: Final = re.compile(r"(:/{1,2}[^\s:/@]{0,200}):(?![0-9]{1,5}/)\S{0,500}@")
OLD_GUESTS: Final = re.compile(r"\s*[(\[](?:feat|ft|with)\b[^()\[\]]*[)\]]", re.IGNORECASE)
OLD_REISSUE: Final = re.compile(
    r"\s*(?:[(\[][^()\[\]]*\b(?:remaster(?:ed)?|explicit|clean version)\b[^()\[\]]*[)\]]"
    r"|\s-\s(?:\d{4}\s)?remaster(?:ed)?(?:\s(?:version|edition))?(?:\s\d{4})?\s*$)",
    re.IGNORECASE,
)
OLD_WRITTEN: Final = re.compile(
    r"(?P<before>[€£$¥]|[A-Za-z]{3})?\s*(?P<number>[0-9][0-9.,' ]*)\s*(?P<after>[€£$¥]|[A-Za-z]{3})?"
)
OLD_DURATION: Final = re.compile(r"(?:[0-9]{1,400}(?:\.[0-9]{1,400})? *[a-z]+ *)+")
OLD_DURATION_PART: Final = re.compile(r"([0-9]{1,400}(?:\.[0-9]{1,400})?) *([a-z]+)")


def pattern_of(module: ModuleType, name: str) -> re.Pattern[str]:
    found: re.Pattern[str] = vars(module)[name]
    return found


def made_of(*parts: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=14).map("".join)


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(made_of("?", "&", ";", "=", "#", " ", "\n", "a", "key", "/", "amp;"))
def test_the_values_in_a_link_are_those_of_before(link: str) -> None:
    assert redact_link(link) == OLD_VALUE.sub(r"\1***", link)


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(made_of(":", "/", "//", "://", "@", " ", "a", "80/", "u:", ":p", "p" * 199, "p" * 498, "\n"))
def test_the_passwords_in_addresses_are_those_of_before(text: str) -> None:
    assert redact_passwords(text) == (OLD_URL_PASSWORD.sub(r"\1:***@", text))


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(made_of(" ", "  ", "(", ")", "[", "]", "feat", "ft", "with", ".", " a", "x"))
def test_the_guests_of_a_track_are_those_of_before(title: str) -> None:
    assert pattern_of(soulseek, "_GUESTS").sub("", title) == OLD_GUESTS.sub("", title)


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(
    made_of(
        " ",
        "  ",
        "\n",
        "(",
        ")",
        "[",
        "]",
        "remaster",
        "ed",
        "Explicit",
        "clean version",
        " - ",
        "2011",
        "version",
        "x",
    )
)
def test_the_marks_of_a_reissue_are_those_of_before(title: str) -> None:
    assert titles.without_marks(title) == OLD_REISSUE.sub("", title)


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(made_of("1", "23", "456", ".", ",", "'", " ", "€", "EUR", "x"))
def test_a_written_price_has_the_parts_of_before(text: str) -> None:
    line = " ".join(text.split())
    old, new = OLD_WRITTEN.fullmatch(line), pattern_of(prices, "_WRITTEN").fullmatch(line)

    assert (new and new.groupdict()) == (old and old.groupdict())


@pytest.mark.slow("tries hundreds of texts")
@settings(max_examples=300)
@given(made_of("1", "23", ".", " ", "h", "ms", "9" * 399))
def test_a_written_duration_has_the_parts_of_before(text: str) -> None:
    whole, part = (pattern_of(units, name) for name in ("_DURATION", "_DURATION_PART"))

    assert (whole.fullmatch(text) is None) == (OLD_DURATION.fullmatch(text) is None)
    if OLD_DURATION.fullmatch(text):
        assert part.findall(text) == OLD_DURATION_PART.findall(text)

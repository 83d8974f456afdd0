"""The page of requirements has every number once, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "requirements.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
COUNTS = {"S": 21, "J": 14, "P": 5, "G": 11, "W": 13, "H": 3, "R": 6, "C": 14, "A": 14, "X": 7}


@cache
def names_in(file: str) -> set[str]:
    """Functions, methods and assigned names of a file, as test ids write them."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                inner = [each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                found |= {name, *(f"{name}::{each}" for each in inner)}
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
            case _:
                pass
    return found


def test_every_requirement_has_one_row_in_order() -> None:
    assert [number for number, _, _ in ROWS] == [
        f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)
    ]


def test_every_row_names_a_test_or_says_what_is_missing() -> None:
    words = ("`tests/", "no test", "not built")

    assert [number for number, _, shown in ROWS if not any(word in shown for word in words)] == []


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", PAGE)

    assert len(named) > len(ROWS)
    assert [f"{file}::{name}" for file, name in named if not (ROOT / file).exists() or name not in names_in(file)] == []

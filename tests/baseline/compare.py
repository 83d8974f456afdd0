"""Compares two recordings. Names of the older one are first mapped by the table of renames."""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

RENAMES: Final = Path(__file__).with_name("renames.csv")
MAY_GROW: Final = frozenset({"tests.txt", "public_names.txt"})
"""New tests and new public names are no loss; everything else is compared in full."""
NOT_COMPARED: Final = frozenset({"figures.txt"})
"""`bench/_compare.py` compares figures: it alternates both versions in one run."""


@frozen
class Renames:
    """The table of renames: what each name of an older version is called now.

    Kinds: `file` (a path), `module` (a dotted module), `name` (a dotted name or a name in generated documents),
    `test` (an id without its file), `component` and `operation` (OpenAPI). Of kind `removed`, `old` is the whole id of a
    test, and `new` the reason for which it is gone.
    """

    by_kind: Mapping[str, Mapping[str, str]] = field(factory=dict)

    def of(self, kind: str) -> Mapping[str, str]:
        """The renames of one kind."""
        return self.by_kind.get(kind, {})


def read_renames(path: Path = RENAMES) -> Renames:
    """The table, from its CSV file with the columns kind, old and new."""
    by_kind: dict[str, dict[str, str]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            by_kind.setdefault(row["kind"], {})[row["old"]] = row["new"]
    return Renames(by_kind)


def differences(old: Path, new: Path, renames: Renames) -> Iterator[str]:
    """Every difference between two recordings, one line each."""
    names = {path.name for folder in (old, new) for path in folder.iterdir()} - NOT_COMPARED
    for name in sorted(names):
        if not (old / name).exists() or not (new / name).exists():
            yield f"{name}: recorded only in {new if (new / name).exists() else old}"
            continue
        before = mapped(name, (old / name).read_text(), renames)
        after = (new / name).read_text().splitlines()
        found = missing(before, after) if name in MAY_GROW else changes(before, after)
        yield from (f"{name}: {line}" for line in found)


def mapped(name: str, text: str, renames: Renames) -> list[str]:
    """The lines of an older recording with today's names."""
    if name == "tests.txt":
        kept = (line for line in text.splitlines() if line not in renames.of("removed"))
        return sorted(_mapped_id(line, renames) for line in kept)
    if name == "openapi.json":
        return _mapped_openapi(text, renames)
    return _replaced(text, {**renames.of("module"), **renames.of("name")}).splitlines()


def _mapped_id(line: str, renames: Renames) -> str:
    file, _, rest = line.partition("::")
    rest = renames.of("test").get(rest, rest)
    if not file.startswith("tests/"):
        rest = _replaced(rest, {**renames.of("module"), **renames.of("name")})
    return f"{renames.of('file').get(file, file)}::{rest}"


def _mapped_openapi(text: str, renames: Renames) -> list[str]:
    names = {**renames.of("component"), **renames.of("operation")}
    words = "|".join(re.escape(name) for name in names) or "(?!)"
    text = re.sub(rf'"(#/components/schemas/|)({words})"', lambda found: f'"{found[1]}{names[found[2]]}"', text)
    document = json.loads(text)
    schemas = document.get("components", {}).get("schemas", {}) if isinstance(document, dict) else {}
    for name in set(renames.of("component").values()) & schemas.keys():
        schemas[name]["title"] = name  # the title of a schema is its name
    return json.dumps(document, indent=1, sort_keys=True).splitlines()


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """Whole names only, the longest first, each place once."""
    if not names:
        return text
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w.])({words})(?!\w)", lambda found: names[found[1]], text)


def missing(before: Iterable[str], after: Iterable[str]) -> Iterator[str]:
    """Lines of the older recording that the newer one lacks."""
    for line, count in (Counter(before) - Counter(after)).items():
        yield f"missing{f' {count} times' if count > 1 else ''}: {line}"


def changes(before: list[str], after: list[str]) -> Iterator[str]:
    """Lines that were removed or added."""
    for line in difflib.unified_diff(before, after, n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield line

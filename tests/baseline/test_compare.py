"""The comparison of two recordings finds every loss, and maps names by the table of renames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.baseline.compare import Renames, differences, read_renames

RENAMES = Renames(
    {
        "file": {"tests/rules/test_old.py": "tests/rules/jobs/test_new.py"},
        "module": {"cormorant.rules.old": "cormorant.rules.new"},
        "name": {"cormorant.rules.old.look": "cormorant.rules.new.observe"},
        "test": {"test_clerk[Clerk]": "test_clerk[Producer]"},
        "component": {"SourceOut": "SourceView"},
        "operation": {"ApiSources": "Sources"},
        "removed": {"tests/a.py::test_gone": "the limit is gone"},
    }
)


def recorded(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tests__txt", "tests/rules/test_old.py::test_x[1]\n", "tests/rules/jobs/test_new.py::test_x[1]\n"),
        ("tests__txt", "tests/a.py::test_clerk[Clerk]\n", "tests/a.py::test_clerk[Producer]\n"),
        ("tests__txt", "tests/a.py::test_x\n", "tests/a.py::test_x\ntests/a.py::test_new\n"),
        ("tests__txt", "tests/a.py::test_gone\n", ""),
        ("events__md", "see cormorant.rules.old.look\n", "see cormorant.rules.new.observe\n"),
        ("openapi__json", '"#/components/schemas/SourceOut"', '"#/components/schemas/SourceView"'),
        ("openapi__json", '{\n "operationId": "ApiSources"\n}', '{\n "operationId": "Sources"\n}'),
        ("figures__txt", "1\n", "2\n"),
    ],
)
def test_a_rename_or_an_addition_is_no_difference(tmp_path: Path, name: str, old: str, new: str) -> None:
    before, after = recorded(tmp_path / "old", **{name: old}), recorded(tmp_path / "new", **{name: new})

    assert list(differences(before, after, RENAMES)) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tests__txt", "tests/a.py::test_x\n", ""),
        ("tests__txt", "tests/a.py::test_x\ntests/b.py::test_x\n", "tests/a.py::test_x\n"),
        ("public_names__txt", "actors.Actor(a, b)\n", "actors.Actor(a)\n"),
        ("settings__md", "a\n", "a\nb\n"),
        ("openapi__json", '"SourceOut"', '"SourceOut"'),
        ("trace_searches__txt", "a\nb\n", "b\na\n"),
    ],
)
def test_a_loss_or_a_change_is_found(tmp_path: Path, name: str, old: str, new: str) -> None:
    before, after = recorded(tmp_path / "old", **{name: old}), recorded(tmp_path / "new", **{name: new})

    assert list(differences(before, after, RENAMES)) != []


def test_a_subject_that_was_not_recorded_is_found(tmp_path: Path) -> None:
    before, after = recorded(tmp_path / "old", events__md="a\n"), recorded(tmp_path / "new")

    assert list(differences(before, after, RENAMES)) == [f"events.md: recorded only in {before}"]


def test_the_table_of_renames_names_only_files_that_exist() -> None:
    root = Path(__file__).parents[2]

    assert [new for new in read_renames().of("file").values() if not (root / new).exists()] == []

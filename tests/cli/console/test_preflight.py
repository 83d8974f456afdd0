"""What is looked at before anything is touched, and how it is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cormorant.cli.console.preflight import database_problem, display_database, folder_problem, inspect_database
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings, StorageSettings
from storage.database import SchemaState

NOBODYS_NUMBER = 987_654_321


def with_url(url: str) -> Settings:
    return Settings(data="/nowhere/data", storage=StorageSettings(url=Secret(url)))


def test_a_user_without_a_name_is_told_by_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODYS_NUMBER)
    monkeypatch.setattr(os, "access", lambda *_: False)

    problem = folder_problem(str(tmp_path))

    assert problem is not None
    assert problem.found == f"data: uid {NOBODYS_NUMBER} may not write {tmp_path}"


def test_what_a_database_says_is_told_without_the_secrets_that_we_know() -> None:
    settings = with_url("postgresql://me:hun%2Fter%202@db/x")
    state = SchemaState(is_reachable=False, problem="no entry\nfor hun/ter 2")

    problem = database_problem(settings, state)

    assert problem is not None
    assert problem.found.endswith("cannot be used: no entry for ***")


def test_a_file_is_shown_by_its_path_and_not_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert display_database(Settings(data=str(tmp_path / "50% of q?x"))) == "50% of q?x/cormorant.db"


def test_an_odd_file_that_is_there_is_the_one_that_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "q?x").mkdir()
    (tmp_path / "q?x" / "cormorant.db").write_text("not a database")

    state = inspect_database(Settings(data=str(tmp_path / "q?x")))

    assert state is not None
    assert str(tmp_path / "q?x" / "cormorant.db") in (state.problem or "")

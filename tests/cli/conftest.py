"""Places for the commands that search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.source_place import SourcePlace, indexer


@pytest.fixture
def source_place(tmp_path: Path) -> Iterator[SourcePlace]:
    """A SQLite file that is not there yet, and an indexer."""
    (tmp_path / "config.toml").write_text("")
    with indexer() as served:
        yield SourcePlace(tmp_path, f"sqlite:///{tmp_path}/sources.db", served)


@pytest.fixture(params=["sqlite", "postgres"])
def each_place(request: pytest.FixtureRequest, source_place: SourcePlace) -> SourcePlace:
    """Each of the databases."""
    if request.param == "sqlite":
        return source_place
    return SourcePlace(source_place.folder, request.getfixturevalue("postgres_url"), source_place.indexer)

"""An empty database of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import DatabaseServer


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path}/old.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """The one, then the other."""
    return sqlite_url if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def new_url(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> str:
    """A second empty database of the same kind."""
    if url.startswith("sqlite"):
        return f"sqlite:///{tmp_path}/new.db"
    return str(request.getfixturevalue("other_postgres_url"))


@pytest.fixture
def other_postgres_url(postgres_server: DatabaseServer) -> Iterator[str]:
    """An empty PostgreSQL database besides that of `url`."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)

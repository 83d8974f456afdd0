"""A migrated database of each kind, for the tests of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.postgres import DatabaseServer
from tests.storage.job_store import JobStore, hire, open_store


@pytest.fixture
def sqlite_jobs(tmp_path: Path) -> Iterator[JobStore]:
    """A SQLite file in which nobody works yet."""
    with open_store(f"sqlite:///{tmp_path}/jobs.db") as store:
        yield store


@pytest.fixture
def postgres_jobs(postgres_url: str) -> Iterator[JobStore]:
    """A PostgreSQL database in which nobody works yet."""
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture(params=["sqlite_jobs", "postgres_jobs"], ids=["sqlite", "postgres"])
def job_store(request: pytest.FixtureRequest) -> JobStore:
    """The one, then the other."""
    store: JobStore = request.getfixturevalue(request.param)
    return store


@pytest.fixture(scope="session")
def used_sqlite_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobStore]:
    """A SQLite file that many tests use, each in a transaction that is undone."""
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('used')}/jobs.db") as store:
        yield store


@pytest.fixture(scope="session")
def used_postgres_jobs(postgres_server: DatabaseServer) -> Iterator[JobStore]:
    """A PostgreSQL database that many tests use, each in a transaction that is undone."""
    url = postgres_server.create_database()
    with open_store(url) as store:
        yield store
    postgres_server.drop_database(url)


@pytest.fixture(params=["used_sqlite_jobs", "used_postgres_jobs"], ids=["sqlite", "postgres"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A transaction in which the worker `me` lives and there are no jobs. Undone at the end."""
    store: JobStore = request.getfixturevalue(request.param)
    with store.engine.connect() as connection, connection.begin() as transaction:
        hire(connection, "me")
        yield connection
        transaction.rollback()

"""The tests' own tools: what the other tests rely on."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import OperationalError
from trio.testing import MockClock

from tests.postgres import DatabaseServer, PostgresMissing, PostgresServer, find_programs
from tests.waiting import wait_until


def ask(url: str, statement: str) -> object:
    """The first value of the answer."""
    with create_engine(url, poolclass=NullPool).begin() as connection:
        answer = connection.exec_driver_sql(statement)
        return answer.scalar() if answer.returns_rows else None


async def test_the_clock_jumps_over_a_wait_to_the_exact_second(clock: MockClock) -> None:
    await trio.sleep(3600)

    assert trio.current_time() == 3600.0
    assert clock.current_time() == 3600.0


def test_every_test_gets_an_empty_database_of_its_own(postgres_server: DatabaseServer, postgres_url: str) -> None:
    another = postgres_server.create_database()
    ask(another, "CREATE TABLE birds (name text)")

    assert ask(postgres_url, "SELECT count(*) FROM pg_tables WHERE tablename = 'birds'") == 0

    postgres_server.drop_database(another)


def test_a_database_is_dropped_even_when_a_connection_is_open(postgres_server: DatabaseServer) -> None:
    url = postgres_server.create_database()
    with create_engine(url, poolclass=NullPool).connect() as left_open:
        left_open.exec_driver_sql("SELECT 1")

        postgres_server.drop_database(url)

        left_open.invalidate()
    with pytest.raises(OperationalError, match="does not exist"):
        ask(url, "SELECT 1")


@pytest.mark.slow("starts a server of its own, twice")
def test_a_private_server_can_crash_and_come_back_with_what_was_committed(private_postgres: PostgresServer) -> None:
    url = private_postgres.create_database()
    ask(url, "CREATE TABLE birds AS SELECT 'cormorant' AS name")

    private_postgres.stop("immediate")

    with pytest.raises(OperationalError):
        ask(url, "SELECT 1")
    private_postgres.start()
    assert ask(url, "SELECT name FROM birds") == "cormorant"


@pytest.mark.slow("starts a server of its own")
def test_a_server_can_be_had_with_fsync() -> None:
    with PostgresServer(fsync=True) as server:
        assert ask(server.url, "SHOW fsync") == "on"


@pytest.mark.slow("another process starts a server and is killed")
def test_a_killed_test_run_leaves_no_server_and_no_files() -> None:
    script = "from tests.postgres import PostgresServer; s = PostgresServer(); print(s.folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        folder = Path(run.stdout.readline().strip())
        assert (folder / "data" / "postmaster.pid").exists()

        run.send_signal(signal.SIGKILL)

    wait_until(lambda: not folder.exists())


def test_a_machine_without_postgresql_is_told_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(PostgresMissing, match="apt-get install postgresql"):
        find_programs([tmp_path])


@pytest.mark.slow("reads every test")
def test_no_fixture_is_async_and_automatic() -> None:
    """pytest-trio ignores such a fixture without a word."""
    found = [
        f"{path}:{node.lineno}"
        for path in Path(__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
        and any("autouse=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]

    assert found == []

"""Databases with a ledger, and processes that work on them. What the tests found is told at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.crew import Crew, Forge, crew
from tests.chaos.ledger import Ledger, open_ledger
from tests.chaos.worker import Orders

found: list[str] = []

Tell = Callable[[str], None]
Hire = Callable[..., Crew]


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """Where workers come from."""
    with Forge() as made:
        yield made


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Say something that stands at the end of the run, with the name of the test."""
    return lambda words: found.append(f"{request.node.name}: {words}")


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A SQLite file."""
    with open_ledger(f"sqlite:///{tmp_path}/jobs.db") as ledger:
        yield ledger


@pytest.fixture
def postgres_ledger(postgres_url: str) -> Iterator[Ledger]:
    """A PostgreSQL database."""
    with open_ledger(postgres_url) as ledger:
        yield ledger


@pytest.fixture(params=["sqlite_ledger", "postgres_ledger"], ids=["sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """The one, then the other."""
    made: Ledger = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def hire(forge: Forge, tmp_path: Path) -> Iterator[Hire]:
    """Opens a crew for a database, to be asked for after the database: it is gone before it."""
    with ExitStack() as stack:
        yield lambda ledger, **words: stack.enter_context(
            crew(forge, Orders(url=ledger.url, journal=str(tmp_path / "journal"), **words))
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was found."""
    if found:
        terminalreporter.section("chaos: what was counted")
        for line in found:
            terminalreporter.line(line)

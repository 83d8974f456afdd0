"""What every test may ask for: a PostgreSQL database, a clock that jumps; and what is asked of every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
import pytest
from trio.testing import MockClock

from tests.postgres import DatabaseServer, PostgresMissing, PostgresServer, open_server

SLOW_S = 0.25

# No deadline and no check of speed: how long an example takes says more about the machine than about the code.
AT_ANY_SPEED: Final[dict[str, Any]] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("desk", **AT_ANY_SPEED)
# The same examples in every build: a build that fails by chance teaches people to press the button again.
hypothesis.settings.register_profile("ci", **AT_ANY_SPEED, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")

unmarked: list[pytest.TestReport] = []
long_files: list[str] = []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[DatabaseServer]:
    """The server shared by all tests. It is not to be stopped; `private_postgres` is."""
    try:
        server = open_server()
    except PostgresMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    with server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: DatabaseServer) -> Iterator[str]:
    """An empty database for one test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A server for one test that stops and starts it. Takes a second: mark the test slow."""
    try:
        server = PostgresServer()
    except PostgresMissing as missing:
        pytest.fail(str(missing), pytrace=False)
    with server:
        yield server


@pytest.fixture
def clock() -> MockClock:
    """A clock that jumps to the next deadline whenever all tasks wait. It works only as an argument of the test itself."""
    return MockClock(autojump_threshold=0)


@pytest.fixture
def socket_clock() -> MockClock:
    """As `clock`, for a test with real sockets: it jumps only when nothing has come for 10 ms, so what was sent arrives first.

    Both ends of every connection must be in this process. Threads must not be waited for: time would not wait for them.
    """
    return MockClock(autojump_threshold=0.01)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A slow test says why."""
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark is not None and not (mark.args or mark.kwargs.get("reason")):
            raise pytest.UsageError(f'{item.nodeid}: say why it is slow: @pytest.mark.slow("…")')


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was slow without saying so, and long files."""
    long_files.extend(str(found) for name, found in report.user_properties if name == "long_file")
    if report.when == "call" and report.duration > SLOW_S and "slow" not in report.keywords:
        unmarked.append(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name them. Not a failure: a busy machine would fail at random. And say loudly what was not tried, and why."""
    # From the reports: with several processes this one has run no test itself.
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    for reason in dict.fromkeys(reasons):
        terminalreporter.write_line(f"{reason} (tests left out: {reasons.count(reason)})", red=True, bold=True)
    if unmarked:
        terminalreporter.section(f"slower than {SLOW_S} s and not marked slow")
        for report in unmarked:
            terminalreporter.line(f"{report.duration:.2f} s  {report.nodeid}")
    if long_files:
        terminalreporter.section("files to review because of their length")
        for line in dict.fromkeys(long_files):
            terminalreporter.line(line)

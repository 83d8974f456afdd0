"""One Torznab search executes few product files, and no layer calls into a higher one but through a port."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trio.testing import MockClock

from tests.one_search import Trace, files_by_layer, one_search

FILES_MAX = 70
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
PORTS = {
    "cormorant/services/event_bus.py EventBus.emit": "the port Emit",
    "cormorant/services/source_clients.py SourceClients.search": "the client of the source, passed to its limiter",
    "cormorant/web/metrics.py Metrics.__call__": "a listener of the event bus",
    "actors/search/source_requests.py PendingRequest.is_live": "an entry of the queue, as the queue's protocol has it",
    "actors/search/waiting.py OpeningTimes.of": "the opening time, an argument of the queue's functions",
}
"""What a higher layer passes down to a lower one, which then calls it."""


SOMETIMES = {"storage/access.py"}
"""The gate reads the clients of the database every few seconds, and not for each search."""


def listed() -> set[str]:
    """The files that the page names."""
    lines = re.findall(r"^- `(.+)/`: (.+)$", PAGE.read_text(), re.MULTILINE)
    return {f"{folder}/{name}" for folder, names in lines for name in names.split(", ")}


@pytest.mark.slow("a whole service with an indexer on loopback")
async def test_a_search_executes_the_files_that_the_page_lists(socket_clock: MockClock) -> None:
    trace = await one_search()

    assert trace.files | SOMETIMES == listed(), files_by_layer(trace.files)
    assert {each.called for each in trace.upward} == set(PORTS)


def test_a_search_executes_few_files() -> None:
    assert f"{len(listed())} product files" in PAGE.read_text()
    assert len(listed()) <= FILES_MAX


def test_an_empty_trace_has_no_lines() -> None:
    assert files_by_layer(Trace().files) == ""

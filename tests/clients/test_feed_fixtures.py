"""Feeds of the world and of other readers' tests, and what each of them must yield."""

from __future__ import annotations

import html
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from cormorant.clients.feed_documents import FeedDocument, read_feed, read_feed_date
from cormorant.clients.http.headers import charset_of
from cormorant.rules.search.outcomes import SourceError, SourceRefused
from cormorant.rules.watch.feed_items import items_of, plain

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
FACTS_FILE = FIXTURES / "rss" / "facts.json"
DATES = "rss/kurtmckee__feedparser/dates_table.json"
BASE = "https://feeds.example.org/a/feed.xml"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
Facts = dict[str, Any]

# Read otherwise than the facts have it: UTF-16 without a mark, and a title in an encoding that nobody states.
OTHERWISE = {
    "rss/simplepie__simplepie/feed-utf16be.xml": "Test feed title 1",
    "rss/kurtmckee__feedparser/illformed__chardet__shiftjis.xml": "DrecomRSS",
}
# Forms of ISO 8601 without a century, and one that two readers understand differently.
DATES_NOT_READ = {"-0312", "031231", "03-12-31", "-03-12", "03335", "2013-01-27-01"}


def facts_of(*kinds: str) -> list[Any]:
    if not FACTS_FILE.exists():
        why = f"the folder {FIXTURES} with recorded feeds is not here"
        return [pytest.param("", {}, marks=pytest.mark.skip(reason=why))]
    facts = json.loads(FACTS_FILE.read_text())
    return [pytest.param(name, found, id=name) for name, found in facts.items() if found["kind"] in kinds]


def document_of(name: str, facts: Facts) -> FeedDocument:
    kind = facts.get("http_headers", {}).get("content-type", "")
    return read_feed((FIXTURES / name).read_bytes(), charset=charset_of(kind), address=BASE)


def shown(text: str | None) -> str:
    return plain(html.unescape(text or ""))


def links_of(facts: Facts) -> list[str]:
    """Links as they must be: a name or number in Atom is no link, whatever feedparser makes of an id."""
    names = {*facts["ids"], "Incorrect Value"} if facts["version"].startswith("atom") else set()
    wanted = [link or "" for link in facts["links"]]
    return [
        "" if not link or (link in names and not link.lower().startswith("http")) else urljoin(BASE, link.strip())
        for link in wanted
    ]


@pytest.mark.parametrize(("name", "facts"), facts_of("feed"))
def test_a_feed_is_read_as_others_read_it(name: str, facts: Facts) -> None:
    if name in OTHERWISE:
        assert document_of(name, facts).entries[0].title.startswith(OTHERWISE[name])
        return
    if not facts["version"] and not facts["entries"] and facts["title"] is None:
        assert found_in(name, facts) in {0, "instead of a feed"}
        return

    found = document_of(name, facts)

    first = found.entries[:5]
    assert len(found.entries) == facts["entries"]
    assert [entry.guid for entry in first] == [guid or "" for guid in facts["ids"]]
    assert [shown(entry.title) for entry in first] == [shown(title) for title in facts["titles"]]
    assert [len(entry.enclosures) for entry in first] == facts["enclosures"]
    assert [entry.link for entry in first] == links_of(facts)
    for entry, date in zip(first, facts["published"], strict=True):
        # Where it was not published, it was updated or is dated otherwise.
        assert date is None or (entry.published and list(entry.published.timetuple()[:6]) == date)


def found_in(name: str, facts: Facts) -> int | str:
    try:
        return len(document_of(name, facts).entries)
    except SourceRefused as refused:
        return str(refused).rpartition(" came ")[2].partition(";")[0]


@pytest.mark.parametrize(("name", "facts"), facts_of("feed"))
def test_every_item_has_a_key_of_its_own(name: str, facts: Facts) -> None:
    try:
        entries = document_of(name, facts).entries
    except SourceRefused:
        assert facts["entries"] == 0
        return

    items = items_of(entries, addresses=[BASE], now=NOW)

    told_apart = {(entry.guid, entry.link, entry.title, entry.date, entry.summary) for entry in entries}
    assert len({item.key for item in items}) == len(items) <= len(told_apart)
    assert all(item.key and item.title for item in items)


@pytest.mark.parametrize(("name", "facts"), facts_of("attack"))
def test_an_attack_is_refused(name: str, facts: Facts) -> None:
    with pytest.raises(SourceError, match="declares XML entities|a web page came"):
        document_of(name, facts)


@pytest.mark.skipif(not FACTS_FILE.exists(), reason=f"the folder {FIXTURES} with recorded feeds is not here")
def test_dates_of_every_program_are_read() -> None:
    table = json.loads((FIXTURES / DATES).read_text())
    wanted = {row["input"]: row["expected_utc"] for row in table if row["input"] not in DATES_NOT_READ}

    found = {text: read_feed_date(text) for text in wanted}

    assert {text: date and list(date.timetuple()[:6]) for text, date in found.items()} == {
        text: date and date[:6] for text, date in wanted.items()
    }

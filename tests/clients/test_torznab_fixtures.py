"""Real replies of real indexers, and what each of them must yield."""

from __future__ import annotations

import html
import json
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from lxml import etree

from cormorant.clients.torznab_items import ItemReader
from cormorant.clients.torznab_replies import StatedError, read_caps, read_page, read_reply
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import SearchPage, page_size
from cormorant.rules.secrets import redact_keys
from cormorant.rules.watch.handovers import read_infohash

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
FACTS_FILE = FIXTURES / "torznab" / "facts.json"
BASE = "https://indexer.example.org/api"
KINDS = {"search": "search", "tv-search": "tv", "movie-search": "movie", "audio-search": "music", "book-search": "book"}

Facts = dict[str, Any]


def facts_of(*kinds: str) -> list[Any]:
    if not FACTS_FILE.exists():
        why = f"the folder {FIXTURES} with recorded replies is not here"
        return [pytest.param("", {}, marks=pytest.mark.skip(reason=why))]
    facts = json.loads(FACTS_FILE.read_text())
    return [pytest.param(name, found, id=name) for name, found in facts.items() if found["kind"] in kinds]


def reply_of(name: str) -> etree._Element | StatedError:
    return read_reply((FIXTURES / name).read_bytes())


def page_of(name: str) -> SearchPage:
    root = reply_of(name)
    assert not isinstance(root, StatedError)
    return read_page(root, ItemReader(BASE), {})


@pytest.mark.parametrize(("name", "facts"), facts_of("results"))
def test_every_item_of_a_page_is_found(name: str, facts: Facts) -> None:
    page = page_of(name)

    assert len(page.results) == facts["items"]
    if facts["items"]:
        assert sum(result.size_bytes or 0 for result in page.results) == facts["total_size"]
        assert sum(result.size_bytes is None for result in page.results) == facts["items_without_size"]
        assert sum(result.published is None for result in page.results) == facts["items_without_pubDate"]
        assert sum(result.seeders is not None for result in page.results) == facts["items_with_seeders"]
        assert page.results[-1].title == html.unescape(facts["last_title"] or "").strip()


@pytest.mark.parametrize(("name", "facts"), facts_of("results"))
def test_the_first_item_says_what_it_says(name: str, facts: Facts) -> None:
    if not facts.get("first"):
        assert page_of(name).results == ()
        return
    first, result = facts["first"], page_of(name).results[0]

    links = [*(each["url"] for each in first["enclosures"]), first["magneturl"], first["link"], first["guid"]]
    assert result.title == html.unescape(first["title"] or "").strip()
    assert result.size_bytes == first["size"]
    assert result.guid == redact_keys(first["guid"]) if first["guid"] else result.guid
    assert list(result.categories) == list(dict.fromkeys(text.strip() for text in first["categories"]))
    assert result.link in [urljoin(BASE, link.strip()) for link in links if link] or [""]
    assert (result.seeders, result.peers) == (number(first["seeders"]), number(first["peers"]))
    assert read_infohash(first["infohash"]) in {result.infohash, None}
    assert result.published == moment(first["usenetdate_utc"] or first["pubDate_utc"])
    assert sorted(result.attributes) == sorted({attribute.lower() for attribute in first["attr_names"]})
    if first["enclosures"]:
        assert result.enclosure_type in {each["type"] for each in first["enclosures"]}


def number(text: str | None) -> int | None:
    return None if text is None else int(text)


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@pytest.mark.parametrize(("name", "facts"), facts_of("results"))
def test_stated_limits_are_read(name: str, facts: Facts) -> None:
    limits = page_of(name).limits
    stated = {key.lower(): int(value) for key, value in facts.get("apilimits", {}).items() if value.isdigit()}

    assert (limits is not None) == bool(stated)
    if limits is not None:
        assert (limits.api_current, limits.api_max) == (stated.get("apicurrent"), stated.get("apimax"))


@pytest.mark.parametrize(("name", "facts"), facts_of("error"))
def test_every_error_is_seen(name: str, facts: Facts) -> None:
    assert reply_of(name) == StatedError(code=int(facts["error_code"]), description=facts["error_description"])


@pytest.mark.parametrize(("name", "facts"), facts_of("caps"))
def test_caps_tell_what_a_source_can_do(name: str, facts: Facts) -> None:
    root = reply_of(name)
    assert not isinstance(root, StatedError)

    caps = read_caps(root)

    offered = {KINDS[kind] for kind, says in facts["searching"].items() if says["available"] == "yes"}
    assert set(caps.searching) == offered
    assert caps.page_size == page_size(facts["limits"]["default"], facts["limits"]["max"])
    assert [str(category.id) for category in caps.categories] == facts["category_ids"]
    assert sum(len(category.children) for category in caps.categories) == facts["n_subcats"]
    for kind, says in facts["searching"].items():
        if says["available"] == "yes" and "supportedParams" in says:
            assert caps.can(KINDS[kind], *says["supportedParams"].split(","))  # type: ignore[arg-type]  # the table has them all


@pytest.mark.parametrize(("name", "facts"), facts_of("other", "jackett-indexers", "caps"))
def test_what_is_no_page_is_not_taken_for_one(name: str, facts: Facts) -> None:
    with pytest.raises(SourceUnavailable, match=f"<{facts['root']}> instead of results"):
        page_of(name)

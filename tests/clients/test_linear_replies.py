"""What comes from outside is read in time that grows with its length, and not with the square of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from cormorant.clients.feed_documents import read_feed
from cormorant.clients.http.xml_documents import read_xml
from cormorant.clients.torznab_items import TORZNAB, ItemReader
from cormorant.clients.torznab_replies import parse_page, read_caps
from cormorant.rules.search.caps import merged_caps
from cormorant.rules.search.requests import Result, SearchPage
from cormorant.rules.secrets import KEYS_MAX, keys_in, redact_keys, redact_link, shortened
from cormorant.rules.watch.feed_items import items_of, plain
from cormorant.rules.watch.titles import plain_title
from tests.bounds import QUADRATIC_FROM, growth

ADDRESS: Final = "https://x.org/feed?passkey=0123456789abcdef"
NOW: Final = datetime(2026, 11, 16, tzinfo=UTC)
READER: Final = ItemReader("https://x.org/api", secrets=("0123456789abcdef",))
LONG_LINK: Final = f"https://x.org/{'?a' * 1_000}"
# What the patterns of redaction and of titles begin with, without what they end with.
UNITS: Final = (
    "?", "&", ";", "?a", "?a;b", "&r=", "?key=", "://", ":/:", "://a:b", "/a0", "@", " ", "a ", "(", "( ", "(a", "<", "<a", "&#",
)  # fmt: skip


def rss(count: int, link: str = LONG_LINK) -> bytes:
    return f"<rss><channel>{f'<item><link>{link}</link></item>' * count}</channel></rss>".encode()


def feed(body: bytes) -> int:
    return len(items_of(read_feed(body).entries, addresses=[ADDRESS], now=NOW))


def page(items: str) -> bytes:
    return f'<rss xmlns:torznab="{TORZNAB}"><channel>{items}</channel></rss>'.encode()


def results(body: bytes) -> tuple[Result, ...]:
    found = parse_page(body, READER, {})
    assert isinstance(found, SearchPage)
    return found.results


def attributes(count: int) -> bytes:
    stated = "".join(f'<torznab:attr name="category" value="{number}"/>' for number in range(count))
    return page(f"<item><title>A</title><link>https://x.org/1</link>{stated}</item>")


def items(count: int) -> bytes:
    item = f"<item><title>{'(a ' * 100}</title><guid>{LONG_LINK}</guid><link>{LONG_LINK}</link></item>"
    return page(item * count)


def errors(count: int) -> bytes:
    return f'<error code="900" description="{"?a" * count}"/>'.encode()


def caps(count: int) -> bytes:
    searches = "".join(f'<search available="yes" supportedParams="p{number}"/>' for number in range(count))
    below = "".join(f'<category id="2000"><subcat id="{number}"/></category>' for number in range(count))
    return f"<caps><searching>{searches}</searching><categories>{below}</categories></caps>".encode()


DOCUMENTS: Final[dict[str, tuple[Callable[[bytes], object], Callable[[int], bytes], int]]] = {
    "entries with long links": (feed, rss, 20),
    "an entry with a longer link": (feed, lambda count: rss(1, f"https://x.org/{'?a' * count}"), 500),
    "items": (results, items, 10),
    "the attributes of an item": (results, attributes, 500),
    "a stated error": (lambda body: parse_page(body, READER, {}), errors, 2_000),
    "what an indexer can do": (lambda body: read_caps(read_xml(body)), caps, 2_000),
    "what several indexers can do": (lambda body: merged_caps([read_caps(read_xml(body))]), caps, 500),
}


@pytest.mark.slow("reads long documents")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_read_in_linear_time(name: str) -> None:
    read, write, count = DOCUMENTS[name]

    assert growth(read, write(count), write(8 * count)) < QUADRATIC_FROM


@pytest.mark.slow("reads long texts")
@pytest.mark.parametrize(
    "read", [redact_link, redact_keys, keys_in, shortened, plain, plain_title], ids=lambda read: read.__name__
)
def test_a_text_is_made_fit_to_be_shown_in_linear_time(read: Callable[[str], object]) -> None:
    texts = {unit: (f"https://x.org/{unit * 300}", f"https://x.org/{unit * 2_400}") for unit in UNITS}

    grown = {unit: growth(read, small, large) for unit, (small, large) in texts.items()}

    assert {unit: ratio for unit, ratio in grown.items() if ratio >= QUADRATIC_FROM} == {}


def test_a_server_cannot_redirect_to_an_address_with_any_number_of_keys() -> None:
    keys = [f"{number:05}" for number in range(KEYS_MAX + 1)]
    link = f"https://x.org/feed?{'&'.join(f'key={key}' for key in keys)}"

    assert [secret.reveal() for secret in keys_in(link)] == keys[:KEYS_MAX]


def test_items_within_the_titles_of_others_do_not_multiply_a_reply() -> None:
    body = page(f"<x>{'<item><title>' * 50}{'y' * 1_000}{'</title></item>' * 50}</x>")

    assert [len(result.title) for result in results(body)] == [1_000]


def test_a_number_with_more_digits_than_python_reads_spoils_no_document() -> None:
    number = f"&#{'9' * 5_000};"
    escaped = number.replace("&", "&amp;")
    item = f"<item><title>A {escaped}</title><link>https://x.org/1</link></item>"

    assert plain(f"A {number}") == f"A {number}"
    assert feed(f"<rss><channel>{item}</channel></rss>".encode()) == 1
    assert [result.title[:6] for result in results(page(item))] == ["A &#99"]


def test_an_attribute_has_each_of_its_values_once_in_their_order() -> None:
    stated = "".join(f'<torznab:attr name="category" value="{value}"/>' for value in ("5", "3", "5", "4", "3"))
    body = page(f"<item><title>A</title><link>https://x.org/1</link>{stated}</item>")

    assert results(body)[0].categories == ("5", "3", "4")

"""Documents and servers that are made to hurt: each ends in bounded time and memory, with a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from cormorant.clients.feed_documents import read_feed
from cormorant.clients.feeds import FeedClient
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.clients.http.xml_documents import repaired
from cormorant.clients.opml import read_opml
from cormorant.rules.search.outcomes import SourceError, SourceUnavailable
from cormorant.rules.watch.feed_items import items_of
from cormorant.testing import START, SimulatedClock, in_line
from tests.bounds import QUADRATIC_FROM, growth
from tests.environments import environment_of


@pytest.mark.slow("measures long documents")
def test_bases_within_bases_do_not_make_links_longer_and_longer() -> None:
    def bases(size: int) -> bytes:
        around = f"<a xml:base='{'b/' * size}'>" * 40
        return f"<rss>{around}{'<item><link>x</link></item>' * size}".encode()

    read = partial(read_feed, address="http://x.org/")

    assert growth(read, bases(100), bases(800)) < QUADRATIC_FROM
    assert {len(entry.link) <= 4_001 for entry in read(bases(200)).entries} == {True}


def test_the_nearest_bases_count() -> None:
    body = "<rss xml:base='http://x.org/a/'><channel xml:base='b/'><item xml:base='c/'><link>d</link></item></channel></rss>"

    assert read_feed(body.encode()).entries[0].link == "http://x.org/a/b/c/d"


@pytest.mark.slow("reads a hundred thousand attachments")
def test_an_entry_has_no_more_than_its_share_of_what_hangs_on_it() -> None:
    attachments = ",".join(f'{{"url":"x{number}"}}' for number in range(100_000))
    json = f'{{"version":"https://jsonfeed.org/version/1","items":[{{"id":1,"attachments":[{attachments}]}}]}}'
    rss = "<rss><channel><item><title>a</title>" + "<enclosure url='x'/>" * 290 + "</item></channel></rss>"

    assert [len(read_feed(body.encode()).entries[0].enclosures) for body in (json, rss)] == [100, 100]


@pytest.mark.slow("measures long documents")
@pytest.mark.parametrize(
    ("opened", "closed", "each"),
    [("<item>", "</item><item/>", 2), ("<item><title>x</title><description>", "</description></item>", 1)],
    ids=["entries", "descriptions"],
)
def test_nothing_within_entries_within_entries_is_not_walked_for_each_of_them(
    opened: str, closed: str, each: int
) -> None:
    def nested(count: int) -> bytes:
        return f"<rss><channel>{opened * count}{'<a/>' * (160 * count)}{closed * count}</channel></rss>".encode()

    assert growth(read_feed, nested(15), nested(120)) < QUADRATIC_FROM
    assert len(read_feed(nested(120)).entries) == each * 120


def test_the_text_of_an_element_is_that_of_all_in_it_and_not_what_follows() -> None:
    body = "<rss><channel><item><title>a<b>b<i/>c</b>d<u>e</u>f</title>no</item></channel></rss>"

    assert read_feed(body.encode()).entries[0].title == "abcdef"


def test_entities_without_number_are_not_replaced_one_by_one() -> None:
    assert repaired("<rss>&nbsp;& &amp;") == b"<rss>&#160;&amp; &amp;"
    assert b"&" not in repaired("<rss>" + "&" * 1_000_001)


def test_guids_of_any_length_are_told_apart() -> None:
    long = "http://x.org/" + "a1" * 4_000
    body = f"<rss><channel><item><guid>{long}b</guid></item><item><guid>{long}c</guid></item></channel></rss>"
    entries = read_feed(body.encode()).entries

    keys = [[item.key for item in items_of(entries, addresses=(), now=START)] for _ in range(2)]

    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2
    assert max(map(len, keys[0])) <= 300


@pytest.mark.slow("measures long documents")
def test_of_deep_folders_with_long_names_each_is_read_once_and_not_for_each_feed() -> None:
    def deep(size: int) -> bytes:
        folders = f"<outline text='{'n' * 1_000}'>" * (3 * size)
        feeds = "".join(f"<outline xmlUrl='http://x.org/{number}'/>" for number in range(10 * size))
        return f"<opml><body>{folders}{feeds}".encode()

    found = read_opml(deep(80))

    assert growth(read_opml, deep(10), deep(80)) < QUADRATIC_FROM
    assert (len(found.feeds), len(found.feeds[0].folder)) == (800, 10)


@asynccontextmanager
async def sending(*pieces: bytes, pause: Callable[[], None]) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that sends the first piece, then the second again and again until the client is gone. It pauses in between."""
    sent = [0]

    async def answer(stream: trio.SocketStream) -> None:
        try:
            await stream.receive_some(65_536)
            await stream.send_all(pieces[0])
            while True:
                await stream.send_all(pieces[1])
                sent[0] += len(pieces[1])
                pause()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}", sent
        nursery.cancel_scope.cancel()


OK = b"HTTP/1.1 200 OK\r\n"
RSS = b"Content-Type: application/rss+xml\r\n\r\n<rss><channel>"
ITEM = b"<item><title>a</title></item>"


@pytest.mark.slow("real sockets, and ten megabytes of items")
@pytest.mark.parametrize(
    ("start", "more", "apart_s", "words"),
    [
        (OK + RSS, ITEM * 1_000, 0.0, "has more than 10,000,000 bytes"),
        (OK + b"Content-Length: 1000000000\r\n" + RSS, ITEM, 0.0, "has more than 10,000,000 bytes"),
        (OK + RSS, b"<item>", 0.05, "did not answer in full within 0.4 s"),
        (OK, b"X-More: " + b"x" * 1_000 + b"\r\n", 0.0, "does not speak HTTP"),
        (b"", b"HTTP" * 1_000, 0.0, "does not speak HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01, "did not answer in full within"),
    ],
    ids=["endless", "a gigabyte", "by drops", "headers", "no HTTP", "continue"],
)
async def test_a_server_without_an_end_is_left(
    mock_clock: MockClock, start: bytes, more: bytes, apart_s: float, words: str
) -> None:
    caught: list[SourceError] = []
    pause = partial(mock_clock.jump, apart_s)
    async with sending(start, more, pause=pause) as (url, sent):
        transport = Transport(written=[url])
        client = FeedClient(
            transport, environment_of(offload=in_line, clock=SimulatedClock()), limits=FetchLimits(timeout_s=0.4)
        )
        try:
            await client.fetch(f"{url}/feed?passkey=hunter2hunter2")
        except SourceError as error:
            caught.append(error)

    assert [type(error) for error in caught] == [SourceUnavailable] or "more than" in str(caught)
    assert words in str(caught[0])
    assert "hunter2" not in str(caught[0])
    assert sent[0] <= 40_000_000

"""The client of feeds against a stand-in and raw bytes on loopback: nothing twice, nothing private, nothing endless."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given as tried
from hypothesis import settings
from hypothesis import strategies as st
from trio.testing import MockClock

from cormorant.clients.feed_documents import read_feed
from cormorant.clients.feeds import FeedClient, fetch_link
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.playground.http import StandInRequest
from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.watch.feed_items import ITEMS_MAX, items_of
from cormorant.rules.watch.feeds import FetchedFeed
from cormorant.testing import SimulatedClock, in_line
from tests.bounds import QUADRATIC_FROM, growth
from tests.clients.mounted import mounted
from tests.clients.parcel_samples import TORRENT
from tests.clients.raw_server import RawServer, page, raw_server, redirect
from tests.environments import environment_of
from tests.stand_ins.feeds import feed_host, growing

NOW = datetime(2026, 11, 16, tzinfo=UTC)
RSS = "<rss version='2.0'><channel><title>Radio</title>{}</channel></rss>"
ONE = RSS.format("<item><guid>1</guid><title>One</title></item>")


def item(**parts: str) -> str:
    return "<item>" + "".join(f"<{name}>{text}</{name}>" for name, text in parts.items()) + "</item>"


@asynccontextmanager
async def server_of(routes: Any) -> AsyncIterator[tuple[RawServer, FeedClient]]:
    async with raw_server(routes) as server:
        transport = Transport(written=[server.url])
        yield server, FeedClient(transport, environment_of(offload=in_line, clock=SimulatedClock()))


async def outcome_of(client: FeedClient, url: str) -> FetchedFeed | SourceError:
    """An error as it is, and not in the group that the nursery of the server would make of it."""
    try:
        return await client.fetch(url)
    except SourceError as error:
        return error


def given(outcome: FetchedFeed | SourceError) -> FetchedFeed:
    if isinstance(outcome, SourceError):
        raise outcome
    return outcome


async def fetched(body: bytes | str, *, path: str = "/feed", **headers: str) -> FetchedFeed:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with server_of({"*": page(body, headers=fields)}) as (server, client):
        outcome = await outcome_of(client, server.url + path)
    return given(outcome)


async def grown(path: str, *, now_s: float) -> FetchedFeed:
    async with mounted(feed_host(now_s).answer) as server:
        client = FeedClient(server.transport, environment_of(offload=in_line, clock=SimulatedClock()))
        outcome = await outcome_of(client, server.url + path)
    return given(outcome)


@pytest.mark.parametrize("path", ["/harbour-lights.xml", "/field-recordings.xml", "/slow-news.json"])
async def test_a_feed_of_every_form_grows(path: str) -> None:
    before, after = await grown(path, now_s=0), await grown(path, now_s=7_200)

    assert len(before.items) == 3
    new = [item.key for item in after.items if item.key not in {old.key for old in before.items}]
    assert new == [item.key for item in after.items[: len(new)]]
    assert new
    assert all(item.enclosure.startswith("http://127.0.0.1") and item.published for item in after.items)


async def test_what_has_not_changed_is_neither_sent_nor_read() -> None:
    feeds, read = feed_host(), []

    async def counting(function: Any, *args: Any) -> Any:
        read.append(function)
        return function(*args)

    async with mounted(feeds.answer) as server:
        client = FeedClient(server.transport, environment_of(offload=counting, clock=SimulatedClock()))
        url = f"{server.url}/harbour-lights.xml"
        first = await client.fetch(url)
        by_etag = await client.fetch(url, etag=first.etag, last_modified=first.last_modified)
        by_date = await client.fetch(url, last_modified=first.last_modified)

    assert (by_etag, by_date) == (FetchedFeed(is_unchanged=True), FetchedFeed(is_unchanged=True))
    assert len(read) == 1


async def test_a_server_that_never_gave_anything_cannot_say_that_nothing_changed() -> None:
    async with server_of({"*": page(status="304 Not Modified")}) as (server, client):
        with pytest.raises(SourceUnavailable, match="never asked before"):
            await client.fetch(server.url)


async def test_a_mark_that_no_header_can_hold_is_neither_kept_nor_sent() -> None:
    kept = await fetched(ONE, ETag='"' + "x" * 1_000 + '"', Last_Modified="yesterday")

    assert (kept.etag, kept.last_modified) == (None, "yesterday")
    async with server_of({"*": page(ONE)}) as (server, client):
        await client.fetch(server.url, etag="a\r\nX-Evil: 1")
        assert "if-none-match" not in server.asked[0].headers


async def test_a_feed_that_moved_for_good_says_where_to() -> None:
    routes = {
        "/feed": redirect("/b", status="301 Moved Permanently"),
        "/b": redirect("/c", status="308 Permanent Redirect"),
        "/c": page(ONE),
        "/maybe": redirect("/b"),
        "/not-yet": redirect("/maybe", status="301 Moved Permanently"),
    }
    async with server_of(routes) as (server, client):
        pages = {path: await client.fetch(server.url + path) for path in ("/feed", "/maybe", "/not-yet", "/c")}
        with_user = await client.fetch(server.url.replace("http://", "http://me:pw@") + "/feed")

        assert {path: found.moved_to for path, found in pages.items()} == {
            "/feed": f"{server.url}/c",
            "/maybe": None,
            "/not-yet": None,
            "/c": None,
        }
        assert with_user.moved_to == f"http://me:pw@127.0.0.1:{server.port}/c"


async def test_marks_go_along_with_a_redirect_and_passwords_do_not() -> None:
    async with (
        raw_server({"*": page(status="304 Not Modified")}) as second,
        raw_server({"*": redirect(f"{second.url}/feed")}) as first,
    ):
        transport = Transport(written=[first.url, second.url])
        client = FeedClient(transport, environment_of(offload=in_line, clock=SimulatedClock()))
        found = await client.fetch(first.url.replace("http://", "http://me:hunter2@"), etag='"x"')

    assert found == FetchedFeed(is_unchanged=True)
    assert second.asked[0].headers["if-none-match"] == '"x"'
    assert "authorization" in first.asked[0].headers
    assert "authorization" not in second.asked[0].headers


async def test_a_redirect_leads_to_no_private_address() -> None:
    async with raw_server({"*": page(ONE)}) as redact, server_of({"*": redirect(redact.url)}) as (server, client):
        with pytest.raises(SourceError) as caught:
            await client.fetch(server.url)

    assert "private" in str(caught.value) or "loopback" in str(caught.value)
    assert redact.asked == []


async def test_redirects_end() -> None:
    async with server_of({f"/{n}": redirect(f"/{n + 1}") for n in range(20)}) as (server, client):
        with pytest.raises(SourceUnavailable, match="redirects more than 5 times"):
            await client.fetch(f"{server.url}/0")


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("/gone.xml", SourceRefused, "gone for good"),
        ("/members.xml", SourceRefused, "check the key or password"),
        ("/nowhere.xml", SourceRefused, "not there"),
        ("/ill.xml", SourceUnavailable, "HTTP 503"),
        ("/busy.xml", SourceLimited, "less often"),
        ("/page.html", SourceRefused, "a web page came instead of a feed"),
        ("/bomb.xml", SourceRefused, "declares XML entities"),
        ("/endless.xml", SourceUnavailable, "more than 10,000,000 bytes"),
    ],
)
async def test_what_is_no_feed_is_refused_by_name(path: str, kind: type[SourceError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        await grown(path, now_s=0)

    assert caught.value.retry_after_s == (120.0 if path == "/busy.xml" else None)


async def test_a_bomb_of_compression_is_stopped_at_the_limit() -> None:
    packed = gzip.compress(b"<rss>" + b" " * 20_000_000, compresslevel=1)

    with pytest.raises(SourceUnavailable, match="more than 10,000,000 bytes"):
        await fetched(packed, Content_Encoding="gzip")


async def test_a_silent_server_is_left(mock_clock: MockClock) -> None:
    async with mounted(feed_host().answer) as server:
        server.cuts["/harbour-lights.xml"] = "silent"
        server.on_silence = partial(mock_clock.jump, 10)
        limits = FetchLimits(timeout_s=10)
        client = FeedClient(server.transport, environment_of(offload=in_line, clock=SimulatedClock()), limits=limits)
        with pytest.raises(SourceUnavailable, match="did not answer in full within 10 s"):
            await client.fetch(f"{server.url}/harbour-lights.xml")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (RSS.format("<item><title>Café €</title></item>").encode("utf-16"), "text/xml; charset=us-ascii"),
        (RSS.format("<item><title>Café €</title></item>").encode("utf-16-be"), ""),
        (RSS.format("<item><title>Café €</title></item>").encode("utf-32"), ""),
        (RSS.format("<item><title>Café €</title></item>").encode("cp1252"), "text/xml; charset=ISO-8859-1"),
        (RSS.format("<item><title>Café €</title></item>").encode("cp1252"), "text/xml"),
        (RSS.format("<item><title>Café €</title></item>").encode(), "text/xml; charset=iso-8859-1"),
        (b"<?xml version='1.0' encoding='windows-1252'?>" + RSS.format(item(title="Café €")).encode("cp1252"), ""),
        (b"<?xml version='1.0' encoding='utf-8'?>" + RSS.format(item(title="Café €")).encode(), "a/b;charset=cp1252"),
        (b"<?xml version='1.0' encoding='rot13'?>" + RSS.format(item(title="Café €")).encode(), "a/b;charset=hex"),
        (RSS.format(item(title="Caf&eacute; &euro;")).encode(), ""),
        (b"<!DOCTYPE rss SYSTEM 'rss.dtd'>" + RSS.format(item(title="Caf&eacute; &euro;")).encode(), ""),
    ],
)
async def test_text_is_read_in_its_encoding(body: bytes, kind: str) -> None:
    found = await fetched(body, Content_Type=kind)

    assert [item.title for item in found.items] == ["Café €"]


async def test_keys_stay_the_same_where_the_feed_gives_none() -> None:
    entries = [
        item(guid="a", title="By guid"),
        item(link="/b", title="By link"),
        item(title="By title", pubDate="Mon, 16 Nov 2026 10:00:00 GMT"),
        item(description="Only words"),
        item(category="nothing to be told apart by"),
    ]
    there, again = await fetched(RSS.format("".join(entries))), await fetched(RSS.format("".join(reversed(entries))))

    assert [found.title for found in there.items] == ["By guid", "By link", "By title", "Only words"]
    assert there.items[0].key == "a"
    assert there.items[1].key.endswith("/b")
    kept = {found.title: found.key.partition("/b")[1] or found.key for found in there.items}
    assert kept == {found.title: found.key.partition("/b")[1] or found.key for found in again.items}


async def test_a_guid_that_repeats_is_told_apart_by_link_and_title() -> None:
    same = item(guid="1", title="Twice", link="http://x.org/1")
    found = await fetched(RSS.format(same + same + item(guid="1", title="Other") + item(guid="2", title="Alone")))

    assert [each.title for each in found.items] == ["Twice", "Other", "Alone"]
    assert len({each.key for each in found.items}) == 3
    assert found.items[2].key == "2"


async def test_numbers_of_posts_tell_them_apart_and_sessions_do_not() -> None:
    links = ["http://x.org/t?pid=17", "http://x.org/t?pid=18", "http://x.org/u?sid=0a1b2c3d4e5f"]
    found = await fetched(RSS.format("".join(item(guid=link, title="Re: it") for link in links)))
    later = await fetched(RSS.format(item(guid="http://x.org/u?sid=f5e4d3c2b1a0", title="Re: it")))

    assert len(found.items) == 3
    assert later.items[0].key == found.items[2].key


async def test_no_key_and_no_title_tells_a_secret() -> None:
    secret, path_key = "a1b2c3d4e5", "0123456789abcdef0123456789abcdef"
    link = f"http://x.org/dl/{path_key}/5.torrent?passkey={secret}"
    entries = item(guid=link, title=f"Get {link} with {secret}") + item(link=f"http://x.org/6?x={secret}")
    found = await fetched(
        RSS.format(entries + f"<item><guid>7</guid><enclosure url='{link}'/></item>"), path=f"/rss?passkey={secret}"
    )

    shown = repr(found) + "".join(each.key + each.title for each in found.items)
    assert secret not in shown
    assert path_key not in "".join(each.key for each in found.items)
    assert found.items[2].enclosure == link


async def test_dates_that_cannot_be_are_none_and_their_items_stay() -> None:
    dates = ["0001-01-01T00:00:00Z", "Fri, 01 Jan 2100 00:00:00 GMT", "soon", "", "Sun, 15 Nov 2026 10:00:00 +0100"]
    found = await fetched(RSS.format("".join(item(title=f"{n}", pubDate=date) for n, date in enumerate(dates))))

    assert [each.published for each in found.items[:4]] == [None] * 4
    assert len(found.items) == 5
    clock = SimulatedClock().now()
    wanted = datetime(2026, 11, 15, 9, tzinfo=UTC)
    assert found.items[4].published == (wanted if wanted <= clock else None)


async def test_relative_links_are_made_whole_and_scripts_are_no_links() -> None:
    body = (
        "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='http://x.org/a/'><entry xml:base='b/'><id>1</id>"
        "<link href='c'/><link rel='enclosure' href='../d.mp3' length='12'/></entry>"
        "<entry><id>2</id><title>s</title><link href='javascript:alert(1)'/><link rel='enclosure' href='file:///etc/x'/>"
        "</entry></feed>"
    )
    found = await fetched(body)

    assert (found.items[0].link, found.items[0].enclosure) == ("http://x.org/a/b/c", "http://x.org/a/d.mp3")
    assert found.items[0].size_bytes == 12
    assert (found.items[1].link, found.items[1].enclosure) == ("", "")


async def test_a_document_gives_no_more_than_its_share() -> None:
    found = await fetched(RSS.format("".join(item(guid=f"{n}") for n in range(ITEMS_MAX + 1))))

    assert len(found.items) == ITEMS_MAX
    assert (found.items[0].key, found.left_out) == ("0", 1)


@pytest.mark.parametrize(
    "body",
    ['{"version": "https://jsonfeed.org/version/1"', "[" * 100_000, '{"items": []}', "[]", "<opml/>", "hello", "\0"],
)
async def test_other_documents_are_refused(body: str) -> None:
    with pytest.raises(SourceRefused, match="address of a"):
        await fetched(body)


async def test_what_a_json_feed_says_may_be_of_any_kind() -> None:
    found = await fetched(
        '{"version": "https://jsonfeed.org/version/1.1", "title": 5, "items": [1, {"id": 7, "title": null,'
        '"url": ["x"], "attachments": [{"url": "http://x.org/1", "size_in_bytes": 9}, 4], "content_text": "Words"}]}'
    )

    assert [(each.key, each.title, each.size_bytes) for each in found.items] == [("7", "Words", 9)]


@pytest.mark.slow("measures long documents")
@pytest.mark.parametrize("piece", ["<![CDATA[ ", "<a ", "&", "<!--", "<item>", "<item><link>", "<item> "])
def test_a_document_made_to_be_slow_is_not(piece: str) -> None:
    def slow(length: int) -> bytes:
        return ("<rss><channel>" + piece * (length // len(piece))).encode()

    assert len(read_feed(slow(60_000)).entries) <= ITEMS_MAX
    assert growth(read_feed, slow(7_500), slow(60_000)) < QUADRATIC_FROM


PIECES = st.sampled_from(
    [
        "<item>", "</item>", "<title>", "</title>", "<pubDate>0000-00-00T99:00:00Z</pubDate>", "<![CDATA[", "]]>", "&nbsp;", "&",
        "<pubDate>Mon, 32 Foo 0000 99:99:99 +9999</pubDate>", "<link href='http://[x'/>", "<guid>http://[::1</guid>", "\0",
        "<a xml:base='http://['>", "&#xD800;", "&#0057343;", "&#x110000;", "<enclosure url='//[' length='9999999999999999999'/>",
        "<x:y>", "<!DOCTYPE x>", "<entry xmlns='http://www.w3.org/2005/Atom'>", "words",
    ]
)  # fmt: skip


@pytest.mark.slow("tries many documents")
@settings(max_examples=60)
@tried(st.lists(PIECES, max_size=20), st.sampled_from(["", "utf-16", "gb2312", "latin-1", "hex"]))
def test_no_document_makes_the_reader_raise_anything_but_the_errors_by_name(pieces: list[str], charset: str) -> None:
    body = ("<rss><channel><item>" + "".join(pieces)).encode()
    try:
        found = read_feed(body, charset=charset, address="http://x.org/")
    except SourceError as error:
        assert str(error)  # noqa: PT017 - it may be refused, or not
        return

    items = items_of(found.entries, addresses=["http://x.org/?passkey=a1b2c3"], now=NOW)

    assert all((each.key + each.title + each.link).isprintable() and each.key for each in items)


async def test_a_link_of_a_feed_leads_to_a_torrent_or_to_nothing() -> None:
    routes = {"/t": page(TORRENT), "/m": redirect("magnet:?xt=urn:btih:" + "a" * 40), "/p": page("<html>login</html>")}
    async with raw_server(routes) as server:
        transport = Transport(written=[server.url])
        stranger = Transport()
        here = environment_of(offload=in_line, clock=SimulatedClock())
        torrent = await fetch_link(f"{server.url}/t", transport, here)
        magnet = await fetch_link(f"{server.url}/m", transport, here)
        for path, words in (("/p", "neither a torrent nor an NZB"), ("/404", "is not there")):
            with pytest.raises(SourceRefused, match=words):
                await fetch_link(server.url + path, transport, here)
        with pytest.raises(SourceError):
            await fetch_link(f"{server.url}/t", stranger, here, limits=FetchLimits(timeout_s=5))

    assert (torrent.kind, torrent.body, magnet.kind, magnet.infohash) == ("torrent", TORRENT, "magnet", "a" * 40)
    assert [asked.path for asked in server.asked].count("/t") == 1


async def test_the_stand_in_shows_the_newest_only() -> None:
    feeds = feed_host()
    feeds.feeds = {"/a": growing("A", begins_with=30, shown=2)}

    answer = await feeds.answer(StandInRequest(path="/a"))
    again = await feeds.answer(StandInRequest(path="/a", headers={"if-none-match": answer.headers["ETag"]}))

    assert answer.body.count(b"<item>") == 2
    assert b"A 29" in answer.body
    assert again.status == 304

"""XML that is broken, wrongly encoded, or a weapon: read as far as it can be, refused by name where it cannot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cormorant.clients.files import parse_download
from cormorant.clients.http import xml_documents
from cormorant.clients.http.xml_documents import read_xml
from cormorant.clients.torznab_items import ItemReader
from cormorant.clients.torznab_replies import StatedError, parse_page, read_caps, read_reply
from cormorant.rules.search.outcomes import SourceError, SourceUnavailable
from cormorant.rules.search.requests import SearchPage
from tests.bounds import QUADRATIC_FROM, growth

READER = ItemReader("http://x.org/api", secrets=("hunter2hunter2",))
LAUGHS = (
    b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY lol "lol">%s]><rss><channel><item><title>&lol9;</title></item></channel></rss>"""
    % b"".join(
        b'<!ENTITY lol%d "%s">' % (n, b"&lol%s;" % (b"" if n == 1 else b"%d" % (n - 1)) * 10) for n in range(1, 10)
    )
)
BLOW_UP = (
    b'<!DOCTYPE b [<!ENTITY a "'
    + b"A" * 100_000
    + b'">]><rss><channel><item><title>'
    + b"&a;" * 5_000
    + b"</title></item></channel></rss>"
)
OUTSIDE = b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><rss><channel><item><title>&x;</title></item></channel></rss>'


def titles(body: bytes, *, charset: str = "") -> list[str]:
    page = parse_page(body, READER, {}, charset=charset)
    assert isinstance(page, SearchPage)
    return [result.title for result in page.results]


def feed(title: bytes, *, declaration: bytes = b"") -> bytes:
    return declaration + b"<rss><channel><item><title>" + title + b"</title></item></channel></rss>"


BOMBS = {
    "laughs": LAUGHS,
    "blow-up": BLOW_UP,
    "from outside": OUTSIDE,
    "in UTF-16": LAUGHS[21:].decode().encode("utf-16"),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_before_a_parser_sees_it(monkeypatch: pytest.MonkeyPatch, bomb: bytes) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(xml_documents, "parse_xml", lambda body, **_: parsed.append(body))

    with pytest.raises(SourceUnavailable, match="entities"):
        titles(bomb)

    assert parsed == []


def test_a_dtd_is_not_fetched_and_not_read() -> None:
    body = b'<!DOCTYPE rss SYSTEM "http://127.0.0.1:1/evil.dtd">' + feed(b"a")

    assert titles(body) == ["a"]


def test_a_hundred_thousand_levels_are_no_crash() -> None:
    with pytest.raises(SourceUnavailable):
        titles(b"<a>" * 100_000 + b"</a>" * 100_000)


ENCODED = {
    "utf-8": feed("Äé".encode()),
    "utf-8 with a mark": b"\xef\xbb\xbf" + feed("Äé".encode()),
    "utf-16": ("<?xml version='1.0' encoding='utf-16'?>" + feed(b"%s").decode() % "Äé").encode("utf-16"),
    "windows-1252": feed("Äé".encode("cp1252"), declaration=b"<?xml version='1.0' encoding='windows-1252'?>"),
    "windows-1252 declared as utf-8": feed(
        "Äé".encode("cp1252"), declaration=b"<?xml version='1.0' encoding='utf-8'?>"
    ),
    "utf-8 declared as nonsense": feed("Äé".encode(), declaration=b"<?xml version='1.0' encoding='klingon'?>"),
    "with blanks before it": b"\r\n  " + feed("Äé".encode(), declaration=b"<?xml version='1.0' encoding='utf-8'?>"),
    "with garbage after it": feed("Äé".encode()) + b"\n<!-- 0.1 s --></x>garbage",
}


@pytest.mark.parametrize("body", ENCODED.values(), ids=ENCODED)
def test_whatever_the_encoding_the_text_is_read(body: bytes) -> None:
    assert titles(body) == ["Äé"]


def test_the_header_counts_where_the_document_says_nothing() -> None:
    assert titles(feed("Ä".encode("koi8-r", "replace") + "Ж".encode("koi8-r")), charset="koi8-r") == ["?Ж"]


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "bz2", "rot13", "../x", "undefined"])
def test_a_charset_that_is_none_is_left_alone(charset: str) -> None:
    assert titles(feed("Äé".encode()) + b"garbage", charset=charset) == ["Äé"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"a &eacute; b", "a é b"),
        (b"a & b", "a & b"),
        (b"a\x0bb\x1fc", "abc"),
        (b"a&#x1F;b", "ab"),
        (b"<![CDATA[a & <b> &amp; c]]>", "a & <b> & c"),
        (b"a &amp;amp; b", "a & b"),
        (b"a &nosuch; b", "a &nosuch; b"),
        (b"a <i>b</i> c", "a b c"),
    ],
)
def test_odd_titles_are_read_as_they_are_meant(written: bytes, read: str) -> None:
    assert [" ".join(title.split()) for title in titles(feed(written))] == [" ".join(read.split())]


def test_one_spoilt_item_does_not_spoil_the_others() -> None:
    body = (
        b"<rss><channel><item><title>a</title><size>x</size></item><item/><item><title>b</title></item></channel></rss>"
    )

    assert titles(body) == ["a", "b"]


PIECES = st.sampled_from(
    [
        b"<rss>", b"<channel>", b"<item>", b"</item>", b"<title>", b"</title>", b"<error code='", b"100", b"'/>", b"<caps>", b"<nzb>",
        b"<searching>", b"<search available='yes'/>", b"<category id='1'>", b"<enclosure url='http://[x' type='application/x-nzb'/>",
        b"<torznab:attr name='size' value='9'/>", b"&", b"&#0;", b"&eacute;", b"<![CDATA[", b"]]>", b"<!--", b"-->", b"\x00", b"\xff",
        b"{", b'{"error":', b"d4:infod", b"6:pieces", b"i1e", b"e", b"99999:", b"<pubDate>Mon, 99 Foo</pubDate>", b"<link>http://[</link>",
    ]
)  # fmt: skip


@pytest.mark.slow("a hundred documents, three parsers")
@given(st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=30).map(b"".join)))
@example(b"<?xml version='1.0' encoding='utf-16'?><rss/>")
@example(b"<rss xmlns='x:y' a:b='c'><a:item/></rss>")
def test_no_bytes_make_a_parser_raise_anything_but_the_errors_by_name(body: bytes) -> None:
    parsers: list[Callable[[], object]] = [
        lambda: parse_page(body, READER, {}),
        lambda: parse_download(body),
        lambda: caps(body),
    ]
    for parse in parsers:
        try:
            parse()
        except SourceError:
            continue


def caps(body: bytes) -> object:
    reply = read_reply(body)
    return reply if isinstance(reply, StatedError) else read_caps(reply)


@given(st.binary(max_size=200), st.text(max_size=20))
@pytest.mark.slow("tries every charset")
def test_whatever_the_charset_there_is_a_document_or_an_error(body: bytes, charset: str) -> None:
    try:
        root = read_xml(body, charset=charset)
    except SourceUnavailable:
        return

    assert root is not None


@pytest.mark.slow("measures long documents")
@pytest.mark.parametrize("piece", [b"<![CDATA[ ", b"<?xml ", b"  <", b"&#0"])
def test_a_document_made_to_be_slow_is_not(piece: bytes) -> None:
    def read(body: bytes) -> None:
        with suppress(SourceUnavailable):
            read_xml(body)

    assert growth(read, b"<rss>" + piece * 1_000, b"<rss>" + piece * 8_000) < QUADRATIC_FROM


def test_half_of_a_pair_of_characters_is_left_out() -> None:
    root = read_xml(b"<rss><a>x&#xD800;&#0;&#00057343;&#x41;&#9999999999;</a>")

    assert "".join(map(str, root.itertext())).startswith("xA")

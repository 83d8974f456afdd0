"""Lists of feeds of other programs, and lists that are none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.clients.opml import FEEDS_MAX, NotOpml, Outline, read_opml, write_opml
from cormorant.rules.schedules import Schedule
from cormorant.rules.watch.feeds import Subscription, check_names
from tests.bounds import QUADRATIC_FROM, growth

LIST = """<?xml version="1.0" encoding="utf-8"?>
<opml version="1.0"><head><title>mine</title></head><body>
<outline text="News"><outline text="World &amp; more" title="x"><outline text="Daily" type="rss" xmlUrl="https://a.org/feed"/>
</outline><outline title="Daily" xmlUrl="http://b.org/rss?passkey=a1b2c3"/></outline>
<outline text="daily" xmlUrl="https://c.org/"/><outline xmlUrl="https://d.org/f"/>
<outline text="Again" xmlUrl="https://a.org/feed"/><outline text="Odd" xmlUrl="file:///etc/passwd"/><outline text="Empty" xmlUrl=""/>
</body></opml>"""


def opml(body: str) -> bytes:
    return f"<opml><body>{body}</body></opml>".encode()


def test_a_list_is_read_with_its_folders_and_every_name_once() -> None:
    found = read_opml(LIST.encode(), taken=["daily (2)"])

    assert [(feed.name, feed.url, feed.folder) for feed in found.feeds] == [
        ("Daily", "https://a.org/feed", ("News", "World & more")),
        ("Daily (3)", "http://b.org/rss?passkey=a1b2c3", ("News",)),
        ("daily (4)", "https://c.org/", ()),
        ("d.org", "https://d.org/f", ()),
    ]
    assert found.left_out == ("Odd", "Empty")
    assert "a1b2c3" not in repr(found)


def test_what_is_written_is_read_again() -> None:
    feeds = read_opml(LIST.encode()).feeds

    assert read_opml(write_opml(feeds)).feeds == feeds


def test_names_and_folders_are_such_as_a_subscription_may_have() -> None:
    odd = ["Family \U0001f468\u200d\U0001f467 blog", "soft\u00adhyphen", "\u200b", "404", "404", "\u200d", "x" * 300]
    feeds = "".join(f'<outline text="{name}" xmlUrl="https://a.org/{place}"/>' for place, name in enumerate(odd))
    long = f"https://{'h' * 300}.org"
    bare = f'<outline text="٤٠٤" xmlUrl="{long}/1"/><outline xmlUrl="{long}/2"/><outline xmlUrl="{long}/3"/>'
    found = read_opml(opml(f'<outline text="zero\u200bwidth">{feeds}{bare}</outline><outline text="&#x202e;"/>')).feeds

    assert [feed.name for feed in found][:6] == [
        "Family \U0001f468\U0001f467 blog",
        "softhyphen",
        "a.org",
        "404 (a.org)",
        "404 (a.org) (2)",
        "a.org (2)",
    ]
    for feed in found:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        schedule = Schedule(every_s=3_600.0)
        wanted = Subscription(
            name=feed.name,
            url="https://a.org/",
            folder=feed.folder,
            schedule=schedule,
            next_attempt_at=now,
            added_at=now,
        )
        check_names(wanted, configured=())
        assert not feed.name.isdecimal()
    assert len({feed.name for feed in found}) == len(odd) + 3
    assert {feed.folder for feed in found} == {("zerowidth",)}


def test_of_folders_within_folders_the_outer_ones_are_kept_each_not_too_long() -> None:
    deep = "".join(f'<outline text="{number}{"x" * 300}">' for number in range(60))
    found = read_opml(opml(f'{deep}<outline text="f" xmlUrl="https://a.org/"/>{"</outline>" * 60}'))

    [feed] = found.feeds
    assert [name[0] for name in feed.folder] == list("0123456789")
    assert max(map(len, feed.folder)) == 101  # with the sign that there is more


NAMES = st.text(min_size=1, max_size=20).map(lambda text: f"n{text}")


@pytest.mark.slow("writes and reads lists of every name")
@settings(max_examples=20)
@given(st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=3)), max_size=8))
def test_any_name_can_be_written_and_comes_back_settled(names: list[tuple[str, list[str]]]) -> None:
    feeds = [
        Outline(name=name, url=f"http://x.org/{number}", folder=tuple(folder))
        for number, (name, folder) in enumerate(names)
    ]

    once = read_opml(write_opml(feeds)).feeds

    assert [feed.url for feed in sorted(once, key=lambda feed: feed.url)] == [feed.url for feed in feeds]
    assert len({feed.name.casefold() for feed in once}) == len(feeds)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no OPML"),
        (b"hello", "no OPML"),
        (b"<rss/>", "no OPML"),
        (
            b'<!DOCTYPE opml [<!ENTITY a "x">]><opml><body><outline text="&a;" xmlUrl="http://x.org"/></body></opml>',
            "attack",
        ),
        (b" " * 10_000_001, "more than 10,000,000 bytes"),
    ],
    ids=["nothing", "text", "feed", "bomb", "large"],
)
def test_what_is_no_list_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(NotOpml, match=words):
        read_opml(body)


@pytest.mark.slow("numbers thousands of equal names")
def test_a_list_of_equal_names_takes_no_longer_than_another_and_has_an_end() -> None:
    def equal(count: int) -> bytes:
        return opml("".join(f"<outline text='a' xmlUrl='http://x.org/{n}'/>" for n in range(count)))

    assert read_opml(equal(FEEDS_MAX)).feeds[-1].name == f"a ({FEEDS_MAX})"
    assert growth(read_opml, equal(FEEDS_MAX // 8), equal(FEEDS_MAX)) < QUADRATIC_FROM
    with pytest.raises(NotOpml, match="more than 10,000 feeds"):
        read_opml(opml("".join(f"<outline xmlUrl='http://x.org/{n}'/>" for n in range(FEEDS_MAX + 1))))

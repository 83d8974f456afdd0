"""What a person is told of, in which words, how much at once, and when not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cormorant.rules.events import DiskLow, StorageLost
from cormorant.rules.notices import (
    KEYS_MAX,
    SHOWN,
    Notice,
    NoticeBatch,
    NoticeKind,
    QuietHours,
    format_quiet_hours,
    message_of,
    notice_of,
    parse_quiet_hours,
    quiet_until,
    read_batch,
    written_batch,
)
from cormorant.rules.search.events import SourceStopped
from cormorant.rules.watch.events import HandoverSent, WantChanged
from cormorant.rules.watch.prices import PriceAlert


def handed(number: int) -> Notice:
    notice = notice_of(HandoverSent(want=number, title=f"Album {number}", target="qbittorrent", times=1))
    assert notice is not None
    return notice


def test_a_source_that_refuses_our_key_is_told_with_the_remedy() -> None:
    notice = notice_of(SourceStopped(source="red", because="401 at https://me:hunter2@red.test/api"))

    assert notice is not None
    assert notice.kind is NoticeKind.ACCOUNT_DANGER
    assert "hunter2" not in notice.line
    assert notice.line.endswith("cormorant sources reset red")


@pytest.mark.parametrize(("state", "kind"), [("done", None), ("gave up", NoticeKind.GAVE_UP), ("wanted", None)])
def test_of_a_want_it_is_told_that_it_was_given_up_and_not_that_what_was_handed_over_is_done(
    state: str, kind: NoticeKind | None
) -> None:
    notice = notice_of(WantChanged(want=7, title="A\nB\x00", state=state, reason="why"))

    assert (notice and notice.kind) is kind
    assert notice is None or notice.line.startswith("A B")


def test_a_disk_that_is_nearly_full_is_told_and_most_events_are_not() -> None:
    notice = notice_of(DiskLow(folder="/data", free_bytes=345_678_901, wanted_bytes=10**9))

    assert notice is not None
    assert notice.line.startswith("0.3 GB are left for /data, less than 1 GB")
    assert notice_of(StorageLost(error="away")) is None


def test_a_flood_is_told_as_a_few_and_a_number() -> None:
    batch = NoticeBatch()
    for number in range(SHOWN + 12):
        batch = batch.with_notice(handed(number))

    message = message_of(batch)

    assert message.title == "Cormorant: Handed over"
    assert message.body.splitlines()[0] == "Album 0: handed to qbittorrent"
    assert message.body.splitlines()[SHOWN:] == ["and 12 more"]


def test_several_kinds_are_told_under_their_headings() -> None:
    gave_up = notice_of(WantChanged(want=1, title="B", state="gave up", reason="nothing fits"))
    assert gave_up is not None

    message = message_of(NoticeBatch().with_notice(gave_up).with_notice(handed(1)))

    assert message.title == "Cormorant: What happened meanwhile"
    assert [part.splitlines()[0] for part in message.body.split("\n\n")] == ["Handed over:", "Given up:"]


@settings(max_examples=25)
@given(
    first=st.lists(st.integers(0, 400), max_size=300),
    second=st.lists(st.integers(0, 400), max_size=300),
)
def test_a_batch_stays_small_and_counts_each_key_once(first: list[int], second: list[int]) -> None:
    batches = []
    for numbers in (first, second):
        batch = NoticeBatch()
        for number in numbers:
            batch = batch.with_notice(Notice(kind=NoticeKind.HANDED_OVER, key=str(number), line=f"line {number}"))
        batches.append(batch)

    both = read_batch(json.loads(json.dumps(written_batch(batches[0])))).with_batch(batches[1])

    distinct = len({*first, *second})
    for told in both.kinds.values():
        assert len(told.lines) == min(SHOWN, distinct)
        assert len(told.keys) <= KEYS_MAX
        assert distinct > KEYS_MAX or told.more + len(told.lines) == distinct


def test_a_kind_that_this_code_does_not_know_is_left_out() -> None:
    kept = written_batch(NoticeBatch().with_notice(handed(1))) | {
        "moon": {"lines": {"a": "b"}, "keys": ["a"], "beyond": 0}
    }

    assert set(read_batch(kept).kinds) == {NoticeKind.HANDED_OVER}


BERLIN = QuietHours(time(22), time(7), "Europe/Berlin")


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-01-01T20:59:59", None),
        ("2026-01-01T21:00:00", "2026-01-02T06:00:00"),
        ("2026-01-02T05:59:59", "2026-01-02T06:00:00"),
        ("2026-01-02T06:00:00", None),
        ("2026-03-28T22:00:00", "2026-03-29T05:00:00"),  # the night in which summer time begins
    ],
)
def test_quiet_hours_end_in_their_own_zone(now: str, until: str | None) -> None:
    found = quiet_until(BERLIN, datetime.fromisoformat(now).replace(tzinfo=UTC))

    assert found == (until and datetime.fromisoformat(until).replace(tzinfo=UTC))


@given(
    begin=st.times().map(lambda at: at.replace(second=0, microsecond=0, fold=0)),
    end=st.times().map(lambda at: at.replace(second=0, microsecond=0, fold=0)),
    now=st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - made aware below
)
def test_quiet_hours_always_end_within_a_day_and_are_written_as_read(begin: time, end: time, now: datetime) -> None:
    hours = QuietHours(begin, end, "Europe/Berlin")
    moment = now.replace(tzinfo=UTC)

    found = quiet_until(hours, moment)

    assert found is None or moment < found <= moment + timedelta(hours=25)
    assert begin == end or parse_quiet_hours(format_quiet_hours(hours)) == hours


HALF_HOURS = st.integers(0, 47).map(lambda half: time(half // 2, 30 * (half % 2)))


@settings(max_examples=60)
@example(
    begin=time(2, 30), end=time(0, 0), day="2026-10-25", minute=30
)  # the clock shows an hour twice that begins quiet
@given(
    begin=HALF_HOURS,
    end=HALF_HOURS,
    day=st.sampled_from(["2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25", "2026-07-01"]),
    minute=st.integers(0, 24 * 60 - 1),
)
def test_quiet_hours_end_at_the_first_moment_that_is_not_quiet_also_when_clocks_change(
    begin: time, end: time, day: str, minute: int
) -> None:
    hours = QuietHours(begin, end, "Europe/Berlin")
    now = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(minutes=minute)

    until = quiet_until(hours, now)

    if begin != end and until is not None:
        assert quiet_until(hours, until) is None
        step = (until - now) / 40
        between = [quiet_until(hours, now + number * step) for number in range(40)]
        assert between == [until] * 40


@pytest.mark.parametrize("written", ["22:00", "22:00-07:00", "25:00-07:00 UTC", "07:00-07:00 UTC", 7, "a-b UTC"])
def test_what_are_no_quiet_hours_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match=r"22:00-07:00 Europe/Berlin|give two times"):
        parse_quiet_hours(written)


def test_a_price_alert_says_what_crossed_which_limit() -> None:
    event = PriceAlert(price="cent", side="below", limit_cents=65_000, cents=61_250, currency="USD")

    told = notice_of(event)

    assert told is not None
    assert (told.kind, told.line) == (NoticeKind.PRICE_ALERT, "cent is below 650.00 USD: 612.50 USD")

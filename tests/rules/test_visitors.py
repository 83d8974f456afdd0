"""Buckets, wrong keys and proxies: what holds whatever is sent."""

from __future__ import annotations

from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.web_requests import (
    BLOCKED_S,
    REMEMBERED_MAX,
    TokenBuckets,
    WrongKeys,
    address_group,
    forwarded_client,
    path_problem,
)


@given(gaps=st.lists(st.floats(0, 2), max_size=60), per_s=st.floats(0.5, 20))
def test_no_bucket_gives_more_than_its_burst_and_its_rate(gaps: list[float], per_s: float) -> None:
    buckets, now, taken = TokenBuckets(per_s=per_s, burst=5.0), 0.0, 0
    for gap in gaps:
        now += gap
        taken += buckets.take("a", now=now) == 0.0

    assert taken <= 5.0 + per_s * now + 1e-6


def test_whoever_waits_as_long_as_told_gets_a_token() -> None:
    buckets = TokenBuckets(per_s=2.0, burst=1.0)
    buckets.take("a", now=0.0)

    assert buckets.take("a", now=0.1 + buckets.take("a", now=0.1) + 1e-9) == 0.0


def test_only_so_many_visitors_are_remembered() -> None:
    buckets = TokenBuckets(per_s=1.0, burst=1.0)
    for number in range(REMEMBERED_MAX + 10):
        buckets.take(str(number), now=0.0)

    assert buckets.take("0", now=0.0) == 0.0
    assert buckets.take(str(REMEMBERED_MAX + 9), now=0.0) > 0.0


def test_an_address_that_tries_keys_is_blocked_for_a_while_but_not_who_was_let_in_before() -> None:
    keys = WrongKeys(per_minute=3)
    keys.right("home", "good")

    assert [keys.wrong("home", now=float(second)) for second in range(4)] == [False, False, True, False]
    assert keys.wait_s("home", "another", now=10.0) == BLOCKED_S - 8.0
    assert keys.wait_s("home", "good", now=10.0) == 0.0
    assert keys.wait_s("elsewhere", "another", now=10.0) == 0.0
    assert keys.wait_s("home", "another", now=2.0 + BLOCKED_S) == 0.0


def test_after_a_block_the_count_begins_anew() -> None:
    keys = WrongKeys(per_minute=2)
    told = [keys.wrong("a", now=now) for now in (0.0, 1.0, 62.0, 63.0)]

    assert told == [False, True, False, True]


@given(forwarded=st.text(max_size=60), peer=st.sampled_from(["203.0.113.9", "::1", "fe80::1%eth0"]))
def test_nobody_is_believed_who_is_not_trusted(forwarded: str, peer: str) -> None:
    assert forwarded_client(peer, forwarded, [ip_network("10.0.0.0/8")]) == peer


@given(st.text(max_size=40))
def test_any_text_has_a_group(text: str) -> None:
    assert isinstance(address_group(text), str)


@given(st.binary(max_size=60))
def test_a_path_that_passes_neither_climbs_nor_holds_control_characters(raw: bytes) -> None:
    if path_problem(raw) is None:
        assert raw.startswith(b"/")
        assert b"\0" not in raw
        assert not {b".", b".."} & set(raw.split(b"/"))

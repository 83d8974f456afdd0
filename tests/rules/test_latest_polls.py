"""Which categories a poll asks for, whatever apps have wanted and whenever it was asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.latest_polls import ALL, LatestState, is_fresh, poll_for, with_times
from cormorant.rules.search.requests import CATEGORIES_MAX, SearchRequest, together

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CATEGORIES = st.frozensets(st.sampled_from([ALL, *range(2000, 2000 + CATEGORIES_MAX + 5)]), min_size=1, max_size=8)
TIMES = st.dictionaries(
    st.sampled_from([ALL, *range(2000, 2012)]), st.integers(-1, 12).map(lambda days: NOON - days * DAY)
)


@given(TIMES, TIMES, CATEGORIES)
def test_after_a_poll_what_was_wanted_is_fresh_or_is_asked_for_alone_next(
    fetched: dict[int, datetime], wanted_before: dict[int, datetime], wanted: frozenset[int]
) -> None:
    state = LatestState(fetched=fetched, wanted=with_times(wanted_before, wanted, now=NOON))

    poll = poll_for(state, wanted, now=NOON, ttl_s=60)

    after = LatestState(fetched=with_times(fetched, poll.asked, now=NOON), wanted=state.wanted)
    is_alone = poll.kind != "known"
    assert len(poll.request.categories) <= CATEGORIES_MAX
    assert poll.asked == {ALL} or ALL not in poll.asked
    assert not (is_alone and poll.asked != {ALL} and poll.asked - wanted)
    assert is_fresh(after, wanted, now=NOON, ttl_s=60) or (
        poll.asked == {ALL} and (not wanted <= fetched.keys() or not wanted <= after.fetched.keys())
    )
    if poll.kind == "known":
        assert poll.asked >= {each for each, at in wanted_before.items() if abs(NOON - at) < 7 * DAY}


@given(CATEGORIES, CATEGORIES)
def test_one_poll_instead_of_two_asks_for_all_of_both_and_for_nothing_else(
    one: frozenset[int], other: frozenset[int]
) -> None:
    requests = [SearchRequest(categories=sorted(each - {ALL})) for each in (one, other)]

    both = together(*requests)

    assert both is not None
    mine, others = ({*each.categories} for each in requests)
    assert set(both.categories) == ({*mine, *others} if mine and others else set())
    assert (both is requests[0]) == (not mine or (bool(others) and others <= mine))
    assert together(both, requests[1]) is both


def test_polls_with_too_many_categories_for_one_request_stay_two() -> None:
    full = SearchRequest(categories=range(CATEGORIES_MAX))

    assert together(full, SearchRequest(categories=[CATEGORIES_MAX])) is None
    assert together(full, SearchRequest(categories=[7])) is full


def test_what_an_app_wanted_is_asked_for_with_what_others_want_for_a_week() -> None:
    state = LatestState(fetched={5030: NOON}, wanted={5030: NOON, 2000: NOON})

    asked = [
        poll_for(state, frozenset({5030}), now=NOON + days * DAY, ttl_s=60).request.categories for days in (6.9, 7)
    ]

    assert asked == [(2000, 5030), (5030,)]

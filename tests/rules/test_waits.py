"""Waiting for one another has no circles, whatever the tree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.supervision import Place, may_wait_for

PATHS = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
ROOT = Place("root")


@given(st.lists(PATHS, min_size=2, max_size=5))
def test_no_circle_of_actors_may_wait_for_one_another(paths: list[tuple[int, ...]]) -> None:
    places = [Place(ROOT.root, path) for path in paths]

    assert not all(may_wait_for(a, b) for a, b in zip(places, [*places[1:], places[0]], strict=True))


def test_an_actor_may_wait_for_all_that_were_started_before_it() -> None:
    storage, limiter, dispatcher, web = (
        ROOT.below(0),
        ROOT.below(1).below(0).below(0),
        ROOT.below(1).below(1),
        ROOT.below(2),
    )

    assert [may_wait_for(web, each) for each in (storage, limiter, dispatcher)] == [True, True, True]
    assert [may_wait_for(storage, each) for each in (limiter, dispatcher, web)] == [False, False, False]
    assert [may_wait_for(limiter, dispatcher), may_wait_for(dispatcher, limiter)] == [False, True]


def test_actors_of_another_tree_or_of_none_are_not_restricted() -> None:
    ours, theirs = ROOT.below(0), Place("theirs").below(5)

    assert may_wait_for(ours, theirs)
    assert may_wait_for(theirs, ours)
    assert may_wait_for(ours, None)
    assert may_wait_for(None, ours)

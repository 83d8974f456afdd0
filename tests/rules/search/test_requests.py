"""Searches: what may be asked, and which of them are the same."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.search.requests import (
    CATEGORIES_MAX,
    PARAMS_MAX,
    QUERY_LENGTH_MAX,
    BadRequest,
    Caps,
    Result,
    SearchRequest,
    StatedLimits,
    page_size,
    search_key,
)

# Hypothesis also tries the texts that it finds in the code, and four of them are no parameters of a search.
NAMES = st.text(string.ascii_lowercase, min_size=4, max_size=8).filter(
    lambda name: name not in {"apikey", "extended", "limit", "offset"}
)


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("query", {"query": "x" * (QUERY_LENGTH_MAX + 1)}),
        ("query", {"query": "a\0b"}),
        ("artist", {"params": {"artist": "a\0b"}}),
        ("artist", {"params": {"artist": "x" * (QUERY_LENGTH_MAX + 1)}}),
        ("kind", {"kind": "games"}),
        ("params", {"params": {"apikey": "x"}}),
        ("params", {"params": {"T": "x"}}),
        ("params", {"params": {"a&b": "x"}}),
        ("params", {"params": {f"p{n}": "x" for n in range(PARAMS_MAX + 1)}}),
        ("categories", {"categories": [-1]}),
        ("categories", {"categories": range(CATEGORIES_MAX + 1)}),
        ("offset", {"offset": -1}),
        ("limit", {"limit": 0}),
    ],
)
def test_what_cannot_be_asked_is_named(part: str, asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=f"^{part}: ") as caught:
        SearchRequest(**asked)

    assert caught.value.part == part


def test_what_is_just_within_the_limits_may_be_asked() -> None:
    request = SearchRequest(
        query="x" * QUERY_LENGTH_MAX,
        categories=range(CATEGORIES_MAX),
        params={f"p{n}": "x" for n in range(PARAMS_MAX)},
    )

    assert len(request.categories) == CATEGORIES_MAX


def test_a_request_cannot_be_changed_and_can_be_a_key() -> None:
    request = SearchRequest(query="a", params={"year": 1998})

    with pytest.raises(TypeError):
        request.params["year"] = "1999"  # type: ignore[index]  # that it cannot is the point

    assert len({request, SearchRequest(query="a", params={"year": "1998"})}) == 1


@pytest.mark.parametrize(
    ("request_", "is_rss"),
    [
        (SearchRequest(), True),
        (SearchRequest(query="  ", categories=(1,), kind="tv"), True),
        (SearchRequest(params={"artist": "", "year": None}), True),
        (SearchRequest(query="a"), False),
        (SearchRequest(params={"tvdbid": 1}), False),
    ],
)
def test_nothing_but_categories_is_rss(request_: SearchRequest, *, is_rss: bool) -> None:
    assert request_.is_rss == is_rss


@given(
    words=st.lists(st.text(string.ascii_letters, min_size=1), max_size=4),
    params=st.dictionaries(NAMES, st.text(string.ascii_letters, min_size=1), max_size=4),
    categories=st.lists(st.integers(0, 9), max_size=4),
    gap=st.sampled_from(["  ", "\t", " \n "]),
)
def test_case_spaces_and_order_do_not_matter(
    words: list[str], params: dict[str, str], categories: list[int], gap: str
) -> None:
    one = SearchRequest(query=" ".join(words), params=params, categories=categories)
    turned = dict(reversed([(name.upper(), value.upper()) for name, value in params.items()]))
    other = SearchRequest(query=f" {gap.join(words).upper()} ", params=turned, categories=categories[::-1])

    assert search_key(one) == search_key(other)


@pytest.mark.parametrize(
    "other",
    [
        SearchRequest(query="a c"),
        SearchRequest(query="a b", kind="tv"),
        SearchRequest(query="a b", offset=1),
        SearchRequest(query="a b", limit=1),
        SearchRequest(query="a b", categories=(1,)),
        SearchRequest(query="a", params={"artist": "b"}),
        SearchRequest(query="ab"),
    ],
)
def test_what_differs_has_another_key(other: SearchRequest) -> None:
    assert search_key(SearchRequest(query="a b")) != search_key(other)


def test_a_result_shows_no_link_that_could_hold_a_key() -> None:
    result = Result(
        title="t", guid="g", link="http://me:pass@x.org/dl?k=hunter2", protocol="torrent", magnet="magnet:hunter2"
    )

    assert "hunter2" not in repr(result)
    assert "pass" not in repr(result)


@given(st.one_of(st.none(), st.text(), st.integers().map(str)), st.one_of(st.none(), st.text(), st.integers().map(str)))
def test_a_page_size_can_always_be_asked_for(default: str | None, largest: str | None) -> None:
    assert 1 <= page_size(default, largest) <= 100


def test_caps_and_limits_say_what_they_know() -> None:
    caps = Caps(searching={"music": frozenset({"q", "artist"})})

    assert caps.can("music", "artist")
    assert not caps.can("music", "album")
    assert not caps.can("tv")
    assert not StatedLimits().states_any
    assert StatedLimits(api_max=0).states_any

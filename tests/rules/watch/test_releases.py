"""The same release under several ids, and the key it is wanted under."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cormorant.rules.watch.releases import Album, CatalogueArtist, ReleaseDate, distinct_releases, is_by, want_key
from cormorant.rules.watch.titles import LENGTH_MAX, plain_title, plain_words

THEM = CatalogueArtist(id="them", name="Them")
titles = st.sampled_from(["Kid A", "KID A (Remastered 2009)", "Kid A (Live)", "Amnesiac", "+", "="])
dates = st.none() | st.builds(ReleaseDate, st.integers(1960, 2026))


def album(title: str = "Kid A", **more: object) -> Album:
    return Album(**{"id": "1", "title": title, "artists": (THEM,), "kind": "album", "tracks_total": 10, **more})  # type: ignore[arg-type]  # a test's shorthand


albums = st.lists(
    st.builds(
        album,
        titles,
        id=st.text("abc", min_size=1, max_size=3),
        released=dates,
        kind=st.sampled_from(["album", "single"]),
        tracks_total=st.sampled_from([1, 10]),
    ),
    max_size=12,
)


@settings(max_examples=20)
@given(albums, st.randoms(use_true_random=False))
def test_the_order_in_which_they_come_does_not_matter(found: list[Album], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]  # a Random by Hypothesis

    assert distinct_releases(shuffled) == distinct_releases(found)


@settings(max_examples=20)
@given(albums)
def test_nothing_is_lost_and_nothing_comes_twice(found: list[Album]) -> None:
    releases = distinct_releases(found)

    assert {one.id for one in found} == {id_ for release in releases for id_ in release.ids}
    assert {want_key("them", one) for one in found} == {want_key("them", release.album) for release in releases}
    alike = [(want_key("them", release.album), release.album.tracks_total) for release in releases]
    assert len(set(alike)) == len(alike)
    assert distinct_releases(release.album for release in releases) == tuple(
        type(release)(album=release.album, ids=(release.album.id,)) for release in releases
    )


def test_a_re_issue_is_no_news_and_a_deluxe_edition_is_another_release() -> None:
    first = album(id="old", released=ReleaseDate(2000, 10, 2))
    again = album("Kid A (Remastered)", id="new", released=ReleaseDate(2026, 11, 1))
    deluxe = album("Kid A (Deluxe)", id="big", released=ReleaseDate(2026, 11, 1), tracks_total=20)

    releases = distinct_releases([again, deluxe, first])

    assert [(release.album.id, release.ids) for release in releases] == [("old", ("old", "new")), ("big", ("big",))]


def test_another_number_of_tracks_is_another_release_under_the_same_key() -> None:
    short, long = album(id="1"), album(id="2", tracks_total=20)

    assert [release.ids for release in distinct_releases([long, short])] == [("1",), ("2",)]
    assert want_key("them", short) == want_key("them", long)


def test_the_key_does_not_depend_on_id_day_or_spelling() -> None:
    one = album("Ágætis Byrjun", released=ReleaseDate(1999))
    two = album("ágætis   byrjun!", id="2", tracks_total=11)

    assert want_key("them", one) == want_key("them", two) == "them/agaetis byrjun/album"
    assert want_key("them", album("+")) != want_key("them", album("÷"))
    assert want_key("them", one) != want_key("them", album("Ágætis Byrjun", kind="single"))


@pytest.mark.parametrize(
    ("found", "is_own"),
    [
        (album(group="album"), True),
        (album(group="appears_on"), False),
        (album(group=None), True),
        (album(group=None, artists=(CatalogueArtist(id="other", name="Other"),)), False),
        (album(group="single", kind="single"), True),
    ],
)
def test_albums_of_others_are_not_theirs(found: Album, *, is_own: bool) -> None:
    assert is_by("them", found) is is_own
    assert is_by("them", found, ["appears_on"]) is not is_own


@settings(max_examples=20)
@given(st.text(max_size=30))
@example(":\u00b4")
def test_a_plain_title_stays_as_it_is(title: str) -> None:
    plain = plain_title(title)

    assert plain_title(plain) == plain
    assert plain == " ".join(plain.split())


@settings(max_examples=30)
@given(st.text(string.ascii_letters + " ", min_size=1), st.sampled_from(["", "!", " (Explicit)", " - Remastered 2011"]))
def test_case_signs_and_marks_of_shops_do_not_matter(title: str, mark: str) -> None:
    plain = plain_words(title)

    if plain and "remaster" not in plain and "explicit" not in plain:
        assert plain_title(title.upper() + mark) == plain_title(title)


def test_a_long_title_is_cut_and_still_told_from_others() -> None:
    one, two = plain_title("x" * 1000 + "1"), plain_title("x" * 1000 + "2")

    assert one != two
    assert len(one) == len(two) == LENGTH_MAX

"""Which files of which peer are fetched, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.rules.watch.soulseek import (
    CANDIDATES_MAX,
    PeerFile,
    PeerQuery,
    PeerResponse,
    rank,
    rank_albums,
    rank_track,
)

WISH = PeerQuery(artist="Björk", title="Post", tracks_total=2)


def files(folder: str = "@@x\\Bjork\\Post", count: int = 2, kind: str = "flac", **more: Any) -> tuple[PeerFile, ...]:
    return tuple(
        PeerFile(filename=f"{folder}\\{number:02} - Song {number}.{kind}", size_bytes=1_000_000 * number, **more)
        for number in range(1, count + 1)
    )


def response(username: str = "peer", *offered: tuple[PeerFile, ...], **more: Any) -> PeerResponse:
    return PeerResponse(username=username, files=tuple(file for group in offered for file in group), **more)


names = st.sampled_from(["Bjork\\Post\\1.flac", "Bjork\\Post\\2.flac", "Bjork\\Post\\1.mp3", "Bjork - Post\\1.flac"])
some_files = st.lists(
    st.builds(
        PeerFile,
        filename=names,
        size_bytes=st.integers(0, 3),
        bit_rate=st.none() | st.just(320),
        is_locked=st.booleans(),
    ),
    max_size=6,
).map(tuple)
responses = st.lists(
    st.builds(
        PeerResponse,
        username=st.sampled_from("ab"),
        files=some_files,
        locked_files=some_files,
        has_free_slot=st.booleans(),
        speed_bytes_s=st.integers(0, 2),
        queue_length=st.integers(0, 2),
    ),
    max_size=6,
)
wishes = st.builds(
    PeerQuery, title=st.just("Post"), artist=st.just("Björk"), tracks_total=st.sampled_from([None, 1, 2])
)


@pytest.mark.slow("dozens of made-up answers of peers")
@settings(max_examples=25)
@given(responses, wishes, st.randoms(use_true_random=False))
def test_the_same_offers_give_the_same_order_whatever_order_they_come_in(
    found: Any, wish: PeerQuery, chance: Any
) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)

    one, two = rank_albums(found, wish), rank_albums(shuffled, wish)

    keys = [rank(candidate) for candidate in one]
    assert keys == sorted(keys)
    assert keys == [rank(candidate) for candidate in two]


@pytest.mark.slow("dozens of made-up answers of peers")
@settings(max_examples=25)
@given(responses, wishes)
def test_no_locked_or_empty_file_is_ever_chosen(found: list[PeerResponse], wish: PeerQuery) -> None:
    open_to_us = {
        (offer.username, file.filename)
        for offer in found
        for file in offer.files
        if file.size_bytes
        and not any(
            other.filename == file.filename and (other.is_locked or other in offer.locked_files)
            for other in offer.files + offer.locked_files
        )
    }

    for ranking in (rank_albums(found, wish), rank_track(found, wish, "1")):
        for candidate in ranking:
            assert {(candidate.username, file.filename) for file in candidate.files} <= open_to_us
            assert len(candidate.reasons) == 6


@pytest.mark.slow("dozens of made-up answers of peers")
@settings(max_examples=25)
@given(responses, wishes)
def test_an_album_is_of_one_kind_and_has_the_right_number_of_tracks(found: list[PeerResponse], wish: PeerQuery) -> None:
    for candidate in rank_albums(found, wish):
        assert len({file.extension for file in candidate.files}) == 1
        assert len({file.filename for file in candidate.files}) == len(candidate.files)
        assert wish.tracks_total in {None, len(candidate.files)}


def ranked(*found: PeerResponse, wish: PeerQuery = WISH) -> list[str]:
    return [candidate.username for candidate in rank_albums(found, wish)]


def test_the_rule_is_applied_in_its_order() -> None:
    mp3 = files(kind="mp3", bit_rate=320)
    larger = tuple(PeerFile(filename=file.filename, size_bytes=file.size_bytes * 9) for file in files())
    found = [
        response("slow", files(), has_free_slot=True, speed_bytes_s=1),
        response("queue", files(), has_free_slot=True, speed_bytes_s=9, queue_length=3),
        response("small", files(), has_free_slot=True, speed_bytes_s=9),
        response("large", larger, has_free_slot=True, speed_bytes_s=9),
        response("mp3", mp3, has_free_slot=True, speed_bytes_s=99),
        response("busy", larger, has_free_slot=False, speed_bytes_s=999),
    ]

    assert ranked(*found) == ["large", "small", "queue", "slow", "mp3", "busy"]


def test_equals_come_in_the_order_of_their_names_whoever_answered_first() -> None:
    one, two = response("a", files()), response("b", files())

    assert ranked(one, two) == ranked(two, one) == ["a", "b"]


def test_more_tracks_come_first_where_nobody_knows_how_many_there_are() -> None:
    found = [response("two", files(), speed_bytes_s=9), response("five", files(count=5))]

    assert ranked(*found, wish=PeerQuery(title="Post")) == ["five", "two"]


def test_a_candidate_says_why_it_stands_where_it_stands() -> None:
    offer = response("peer", files(), has_free_slot=True, speed_bytes_s=1_500_000, queue_length=4)

    [candidate] = rank_albums([offer], WISH)

    assert candidate.reasons == (
        "a free upload slot",
        "flac, choice 1",
        "2 of 2 tracks",
        "1.5 MB/s",
        "4 in its queue",
        "3 MB",
    )


def test_a_folder_with_two_kinds_of_files_is_two_offers_and_pictures_are_none() -> None:
    cover = PeerFile(filename="@@x\\Bjork\\Post\\cover.jpg", size_bytes=5)
    offer = response("peer", files(), files(kind="mp3"), (cover,))

    found = rank_albums([offer], WISH)

    assert [candidate.format for candidate in found] == ["flac", "mp3"]
    assert all(len(candidate.files) == 2 for candidate in found)


def test_discs_in_folders_of_their_own_are_one_album() -> None:
    offer = response("peer", files("x\\Bjork\\Post\\CD1", 1), files("x\\Bjork\\Post\\Disc 2 - Live", 1))

    [candidate] = rank_albums([offer], WISH)

    assert (candidate.folder, len(candidate.files)) == ("x\\Bjork\\Post", 2)


@pytest.mark.parametrize("offer", [files(count=1), files(count=3), files("x\\Bjork\\Debut"), files("x\\Someone\\Post")])
def test_another_number_of_tracks_title_or_artist_is_rejected(offer: tuple[PeerFile, ...]) -> None:
    assert rank_albums([response("peer", offer)], WISH) == ()


def test_not_every_candidate_is_kept() -> None:
    many = [response(f"peer {number}", files()) for number in range(CANDIDATES_MAX + 1)]

    assert len(rank_albums(many, WISH)) == CANDIDATES_MAX


@pytest.mark.parametrize("name", ["..\\..\\Bjork\\Post\\1.flac", "Bjork\\Post\\1\x00.flac", "Bjork\\Post\\\ud800.flac"])
def test_names_that_lead_elsewhere_or_cannot_be_kept_are_left_out(name: str) -> None:
    offer = response("peer", (PeerFile(filename=name, size_bytes=1),))

    assert rank_albums([offer], PeerQuery(title="Post")) == ()


def test_a_track_is_found_by_its_name_without_its_guests() -> None:
    offer = response("peer", files(), files("y\\Other", 1))
    wish = PeerQuery(title="Post", artist="Björk", tracks_total=12)

    [candidate] = rank_track([offer], wish, "Song 2 (feat. Somebody)")

    assert candidate.names_and_sizes == (("@@x\\Bjork\\Post\\02 - Song 2.flac", 2_000_000),)
    assert "1 track" in candidate.reasons
    assert rank_albums([offer], wish) == ()


def test_letters_without_their_dots_and_spaces_are_the_same_words() -> None:
    offer = response("peer", files("x\\Arctic Monkeys\\AM"))

    assert ranked(offer, wish=PeerQuery(title="A.M.", artist="The Arctic Monkeys")) == ["peer"]

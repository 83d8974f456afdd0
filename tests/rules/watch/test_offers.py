"""What peers offer becomes results, whatever the search says of artist, title and tracks."""

from __future__ import annotations

import pytest

from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse, offered

FILES = tuple(PeerFile(filename=f"@@x\\Music\\A1\\New\\0{number} Song.flac", size_bytes=100) for number in (1, 2))
PEER = PeerResponse(username="peer", files=FILES)


@pytest.mark.parametrize(
    "request_",
    [
        SearchRequest(query="a1 new"),
        SearchRequest(query="a1 new", kind="music", params={"artist": "A1", "album": "New", "tracks": "2"}),
        SearchRequest(query="a1 new", kind="music", params={"artist": "A1", "album": "New", "tracks": "0"}),
        SearchRequest(query="a1 new", kind="music", params={"artist": "A1", "album": "New", "tracks": "²"}),
    ],
    ids=["words alone", "two tracks", "unknown tracks", "no number"],
)
def test_an_album_is_offered_with_and_without_its_number_of_tracks(request_: SearchRequest) -> None:
    [result] = offered([PEER], request_)

    assert result.title == "New [flac] (2 files) from peer"


def test_an_album_with_another_number_of_tracks_is_not_offered() -> None:
    request = SearchRequest(query="a1 new", kind="music", params={"artist": "A1", "album": "New", "tracks": "3"})

    assert offered([PEER], request) == ()

"""Artists and answers of Spotify that tests need besides its stand-in."""

from __future__ import annotations

from collections import deque

from attrs import define, field
from typing_extensions import override

from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.playground.spotify import PlayedAlbum, PlayedArtist, SpotifyStandIn, failed


@define(kw_only=True)
class TroubledSpotify(SpotifyStandIn):
    """Its troubles may be changed at any time."""

    troubles: deque[StandInResponse] = field(factory=deque)
    """What is answered to the next requests instead of what they ask for."""

    @override
    def _api(self, asked: StandInRequest) -> StandInResponse:
        return self.troubles.popleft() if self.troubles else super()._api(asked)


def busy_artist(artist_id: str, name: str, albums: int) -> PlayedArtist:
    """An artist with any number of albums, one a month, the newest first."""
    made = (
        PlayedAlbum(id=f"{artist_id}a{n}", name=f"Volume {n}", date=f"{1700 + n // 12}-{n % 12 + 1:02}")
        for n in reversed(range(albums))
    )
    return PlayedArtist(id=artist_id, name=name, albums=tuple(made))


def limited(retry_after_s: int | None = 86_400) -> StandInResponse:
    """Too many requests: come back tomorrow."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return failed(429, "API rate limit exceeded", headers=headers)


def out_of_quota() -> StandInResponse:
    """The developer account has used up what it may ask."""
    return failed(429, "Too many requests", reason="QUOTA_EXCEEDED")

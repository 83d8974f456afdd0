"""How does what a peer offers become a find like any other? One result for each album, or file where no peer has all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.watch.soulseek import PeerOffer, PeerQuery, PeerResponse, rank_albums, rank_track

__all__ = ["files_of", "offered"]

OFFERS_MAX = 50
"""So many are taken, the best first; hundreds of peers have the same."""


def offered(responses: Sequence[PeerResponse], request: SearchRequest) -> tuple[Result, ...]:
    """What peers offer for a search, best first: whole albums, and single files when there are none."""
    params = request.params
    title = params.get("album") or params.get("title") or request.query
    said = params.get("tracks", "")
    tracks = int(said) if said.isdecimal() else 0
    wish = PeerQuery(title=title, artist=params.get("artist", ""), tracks_total=tracks or None)
    ranked = () if "title" in params else rank_albums(responses, wish).candidates
    if not ranked and "album" not in params:
        ranked = rank_track(responses, wish, title).candidates
    best = ranked[:OFFERS_MAX]
    return tuple(_result(candidate, rank=len(best) - place) for place, candidate in enumerate(best))


def files_of(result: Result) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Whose files a result stands for, and which."""
    files = [json.loads(text) for text in result.attributes.get("file", ())]
    return result.attributes.get("username", ("",))[0], tuple((str(name), int(size)) for name, size in files)


def _result(candidate: PeerOffer, *, rank: int) -> Result:
    name = candidate.folder.rpartition("\\")[2] or candidate.folder
    number = len(candidate.files)
    return Result(
        title=f"{name} [{candidate.format}] ({number} {'file' if number == 1 else 'files'}) from {candidate.username}",
        guid=f"{candidate.username}/{candidate.folder}/{candidate.format}",
        link="",
        protocol="soulseek",
        size_bytes=candidate.size_bytes,
        attributes={
            "username": (candidate.username,),
            "file": tuple(_written(candidate)),
            "format": (candidate.format,),
            "reason": candidate.reasons,
            "rank": (str(rank),),
        },
    )


def _written(candidate: PeerOffer) -> Iterable[str]:
    return (json.dumps([file.filename, file.size_bytes]) for file in candidate.files)

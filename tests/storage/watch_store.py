"""What the tests of watches share: artists, wants, finds and handovers to be stored."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.search.requests import Result
from cormorant.rules.watch.artists import Artist
from cormorant.rules.watch.handovers import Handover
from cormorant.rules.watch.profiles import Judgement
from cormorant.rules.watch.wants import Want
from storage.watch import wants
from storage.watch.artists import ARTIST
from tests.storage.job_store import NOW
from tests.watch_kinds import added


def add_artist(connection: Connection, artist_id: str = "a1", **words: Any) -> Artist:
    """A watched artist that is due."""
    usual = Artist(source="spotify", artist_id=artist_id, name=artist_id.upper(), next_attempt_at=NOW, added_at=NOW)
    return added(connection, ARTIST, evolve(usual, **words))


def new_want(key: str = "k", **words: Any) -> Want:
    """A want that is not stored yet."""
    usual = Want(key=key, kind="album", title="New", artist="A1", reason="new", found_at=NOW, changed_at=NOW)
    return evolve(usual, **words)


def add_want(connection: Connection, key: str = "k", **words: Any) -> Want:
    """A stored want."""
    want = wants.want(connection, new_want(key, **words))
    assert want is not None
    return want


def find_of(guid: str, **words: Any) -> Result:
    """A find."""
    return Result(title=f"A1 - New {guid}", guid=guid, link=f"http://s.test/{guid}", protocol="torrent", **words)


def judged(*guids: str) -> list[tuple[str, Result, Judgement]]:
    """Finds of the source `s` that fit."""
    return [("s", find_of(guid), Judgement()) for guid in guids]


def new_handover(want_id: int, key: str = "key-1", **words: Any) -> Handover:
    """A handover that is not stored yet."""
    usual = Handover(
        want_id=want_id, ref="s/1", target="t", key=key, title="New", sent=1, created_at=NOW, changed_at=NOW
    )
    return evolve(usual, **words)

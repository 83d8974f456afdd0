"""A folder whose settings name Spotify, a profile and a target, with a stand-in for Spotify on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen
from sqlalchemy import Connection

from cormorant.playground.spotify import PlayedArtist
from cormorant.rules.search.requests import Result
from cormorant.rules.watch.handovers import Handover, HandoverState
from cormorant.rules.watch.profiles import Judgement
from cormorant.rules.watch.wants import Want, WantState
from storage.watch import handovers, wants
from tests.cli.source_place import Indexer, SourcePlace
from tests.stand_ins.spotify import TroubledSpotify
from tests.stand_ins.threads import served_by_thread

KEY = "s3cretkey"
BOARDS = PlayedArtist(id="2VAvhf61GgLYmC6C8anyX1", name="Boards of Canada")
RADIO = PlayedArtist(id="4Z8W4fKeB5YxbusRsdQVPb", name="Radiohead")
SETTINGS = """
[sources.spotify]
kind = "spotify"
url = "{spotify_url}/v1"
id = "playground"
key = "playground-secret"

[sources.attic]
url = "http://127.0.0.1:1/attic/api"
key = "s3cretkey"

[profiles.flac]
accept = ["flac"]

[targets.box]
kind = "blackhole"
folder = "box"

[watchlist]
hand_to = ["box"]

[saved.written]
query = "by hand"
"""


@frozen
class WatchPlace(SourcePlace):
    """Where commands of watching are run."""

    spotify: TroubledSpotify

    def want(self, state: WantState = WantState.CHOSEN, key: str = "k") -> int:
        """A want with a candidate that fits and one that does not; their guids are links with a key."""
        return int(self.write(lambda connection: _want(connection, state, key)))

    def held(self, want_id: int) -> int:
        """A handover of which nobody knows whether it arrived."""
        return int(self.write(lambda connection: _held(connection, want_id)))


def _want(connection: Connection, state: WantState, key: str) -> int:
    now = datetime.now(UTC)
    wanted = Want(
        key=key, kind="album", artist="A", title="B", watch="artist:1", targets=("box",), found_at=now, changed_at=now
    )
    want = wants.want(connection, wanted)
    assert want is not None
    wants.change(connection, want.id, WantState.SEARCHING, now=now)
    link = f"http://attic.test/dl?apikey={KEY}"
    fit = Result(
        title="A - B [FLAC]",
        guid=f"{link}&id=1",
        link=f"{link}&id=1",
        protocol="torrent",
        size_bytes=312_400_000,
        seeders=7,
    )
    misfit = Result(title="A - B [MP3]", guid=f"{link}&id=2", link=f"{link}&id=2", protocol="torrent")
    judged = [
        ("attic", fit, Judgement(merits=("flac",))),
        ("attic", misfit, Judgement(reasons=("title: none of flac",))),
    ]
    ref = wants.ref_of("attic", fit)
    wants.set_candidates(connection, want.id, judged, ranked=[ref], now=now)
    wants.change(connection, want.id, state, reason=f"it says {KEY}", chosen_ref=ref, now=now)
    return want.id


def _held(connection: Connection, want_id: int) -> int:
    now = datetime.now(UTC)
    want = wants.change(connection, want_id, WantState.SENDING, now=now)
    wants.change(connection, want_id, WantState.IN_DOUBT, now=now)
    handover = Handover(
        want_id=want_id,
        ref=want.chosen_ref or "",
        target="box",
        key="cormorant-1",
        title="A - B [FLAC]",
        state=HandoverState.HELD,
        created_at=now,
        changed_at=now,
    )
    begun = handovers.begin(connection, handover)
    assert begun is not None
    return begun.id


@contextmanager
def watch_place(folder: Path, url: str = "") -> Iterator[WatchPlace]:
    """A place with a database of that address, or a SQLite file that is not there yet."""
    spotify = TroubledSpotify(artists={each.id: each for each in (BOARDS, RADIO)})
    with served_by_thread(spotify) as spotify_url:
        (folder / "config.toml").write_text(SETTINGS.format(spotify_url=spotify_url))
        yield WatchPlace(folder, url or f"sqlite:///{folder}/watches.db", Indexer(0), spotify)

"""What was read of a long list, in both databases."""

from __future__ import annotations

from attrs import evolve
from sqlalchemy import Connection

from cormorant.rules.watch.artists import CatalogueProgress
from cormorant.rules.watch.releases import Album, CatalogueArtist, read_release_date
from storage.watch import artists
from tests.storage.job_store import NOW, at
from tests.storage.watch_store import add_artist

WALK = CatalogueProgress(
    began_at=NOW,
    albums=(
        Album(
            id="1",
            title="Ünder \N{SNOWMAN}",
            artists=(CatalogueArtist(id="a1", name="A"), CatalogueArtist(id="", name="")),
            kind="album",
        ),
        Album(
            id="2", title="Two", artists=(), kind="single", group="appears_on", released=read_release_date("1981-12")
        ),
    ),
    following="https://api.test/next?offset=20",
    asked=("https://api.test/next?offset=10",),
)
KEY = ("spotify", "a1")


def test_a_walk_is_read_as_it_was_kept_until_it_is_dropped(connection: Connection) -> None:
    artist = add_artist(connection)
    later = evolve(WALK, albums=WALK.albums[:1], following=None, is_done=True)

    artists.put_progress(connection, KEY, WALK)
    assert artists.find_progress(connection, [artist]) == {KEY: WALK}
    artists.put_progress(connection, KEY, later)
    assert artists.find_progress(connection, [artist]) == {KEY: later}
    artists.drop_progress(connection, KEY)
    assert artists.find_progress(connection, [artist]) == {}


def test_what_nobody_reads_to_its_end_is_pruned(connection: Connection) -> None:
    artists.put_progress(connection, KEY, WALK)
    artists.put_progress(connection, ("spotify", "a2"), evolve(WALK, began_at=at(100)))

    assert artists.prune_progress(connection, before=at(50), limit=10) == 1
    assert artists.prune_progress(connection, before=at(50), limit=10) == 0

"""`cormorant watchlist`, `saved`, `wants`, `downloads` and `targets` on a real database, with a stand-in for Spotify."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cormorant.rules.watch.wants import WantState
from tests.cli.watch_place import BOARDS, KEY, RADIO, WatchPlace, watch_place
from tests.stand_ins.spotify import limited

pytestmark = pytest.mark.slow("opens databases and asks a server")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WatchPlace]:
    with watch_place(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def each_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WatchPlace]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with watch_place(tmp_path, url) as made:
        yield made


def test_an_artist_is_looked_up_watched_once_listed_and_removed(place: WatchPlace) -> None:
    added = place.run("watchlist", "add", "boards of canada", "--start", "2026-01-31", "--every", "1d")
    again = place.run("watchlist", "add", f"https://open.spotify.com/artist/{BOARDS.id}?si=x")
    by_id = place.run("watchlist", "add", "--id", "x1", "--name", "Nobody Else", "--start", "all", "--search", "attic")
    listed = place.run("watchlist", "list")
    checked = place.run("watchlist", "check", BOARDS.id)
    removed = place.run("watchlist", "remove", "nobody else")
    gone = place.run("watchlist", "remove", "nobody else")

    assert added.out.startswith("Boards of Canada is watched from 2026-01-31 on; a running service looks within 1m\n")
    assert "observe mode: what fits is shown and not handed over" in added.out
    assert (again.code, "there is an artist 'Boards of Canada' already" in again.err) == (1, True)
    assert by_id.code == 0, by_id.err
    assert len([asked for asked in place.spotify.asked if "/v1/" in asked.path]) == 2
    assert re.search(
        rf"^ *1  Boards of Canada +{BOARDS.id} +2026-01-31 +now +not looked at yet$", listed.out, re.MULTILINE
    )
    assert re.search(r"^ *\d  Nobody Else +x1 +all +now", listed.out, re.MULTILINE)
    assert (checked.code, removed.out) == (0, "Nobody Else is removed; what was found stays\n")
    assert (gone.code, "there is no artist" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["watchlist", "add"], 2, "give an artist: a name, a link, or --id and --name"),
        (["watchlist", "add", "--id", "x"], 2, "--id goes with --name"),
        (["watchlist", "add", "x", "--start", "soon"], 2, "'soon' is no start; write now, all, or a day"),
        (
            ["watchlist", "add", "--id", "x", "--name", "X", "--choose", "flak"],
            2,
            "no profile 'flak'; write [profiles.flak], or leave it out; did you mean flac?",
        ),
        (
            ["watchlist", "add", "--id", "x", "--name", "X", "--hand-to", "bin"],
            2,
            "no target 'bin'; write [targets.bin], or one of: box",
        ),
        (
            ["watchlist", "add", "--id", "x", "--name", "X", "--search", "spotify"],
            2,
            "spotify knows artists, and is not",
        ),
        (
            ["watchlist", "add", "--id", "x", "--name", "X", "--every", "1s"],
            2,
            "'--every': 1s is out of range; allowed: 1m to 30d",
        ),
        (["watchlist", "add", "Nobody at all"], 1, "spotify knows no artist called 'Nobody at all'"),
        (["watchlist", "list"], 2, "there is no database"),
        (["saved", "add", "x"], 2, "it asks for nothing; give words or categories"),
        (["saved", "add", "written", "x"], 2, "the settings file has [saved.written] already"),
        (["saved", "add", "x", "--categories", "music"], 2, "categories are numbers, such as 3040"),
        (["wants", "show", "one"], 2, "'one' is not the number of a want"),
        (["targets", "test", "bin"], 1, "there is no target 'bin'; there are box"),
        (
            ["sources", "add", "x", "http://x.example", "--kind", "slskd"],
            2,
            'write [sources.x] with kind = "slskd", url',
        ),
        (["sources", "test", "spotify"], 1, "is of kind spotify and not asked what it can do"),
    ],
)
def test_what_cannot_be_done_is_told_with_the_remedy(place: WatchPlace, words: list[str], code: int, told: str) -> None:
    ended = place.run(*words)

    assert (ended.code, ended.out) == (code, "")
    assert told in " ".join(ended.err.split())


def test_an_artist_is_paused_and_resumed_and_the_list_says_so(place: WatchPlace) -> None:
    place.run("watchlist", "add", "--id", "x1", "--name", "Nobody Else")
    paused = place.run("watchlist", "pause", "nobody else")
    checked = place.run("watchlist", "check", "x1")
    listed = place.run("watchlist", "list")
    resumed = place.run("watchlist", "resume", "1", "--json")
    after = place.run("watchlist", "list")
    nobody = place.run("watchlist", "pause", "nobody")

    assert paused.out == "Nobody Else is paused until cormorant watchlist resume 1\n"
    assert (checked.code, "is paused; resume it: cormorant watchlist resume 1" in checked.err) == (1, True)
    assert re.search(r"^ *1  Nobody Else +x1 +\S+ +paused +not looked at yet$", listed.out, re.MULTILINE)
    assert "paused: nobody looks at them; cormorant watchlist resume 1" in listed.out
    assert json.loads(resumed.out)["artist"]["is_paused"] is False
    assert "paused" not in after.out
    assert (nobody.code, "there is no artist 'nobody'" in nobody.err) == (1, True)


def test_a_file_of_artists_is_taken_in_together(place: WatchPlace) -> None:
    place.run("watchlist", "add", "--id", RADIO.id, "--name", "Radiohead")
    file = place.folder / "artists"
    file.write_text(f"# mine\nradiohead\nspotify:artist:{BOARDS.id}  # by link\nBoards of Canada\nNobody at all\n\n")

    ended = place.run("watchlist", "import", str(file), "--json")
    again = place.run("watchlist", "import", str(file))

    assert ended.code == 1, ended.err
    assert [artist["name"] for artist in place.facts("watchlist", "list")["artists"]] == [
        "Radiohead",
        "Boards of Canada",
    ]
    assert again.out.startswith("0 added, 3 known already, 1 not found\n  not found: Nobody at all\n")


def test_a_file_of_artists_is_not_taken_in_by_halves(place: WatchPlace) -> None:
    place.run("watchlist", "add", "--id", "x1", "--name", "X")
    file = place.folder / "artists"
    file.write_text("Radiohead\nBoards of Canada\n")
    place.spotify.troubles.extend([limited(3600)] * 2)

    ended = place.run("watchlist", "import", str(file))

    assert ended.code == 1
    assert "nobody was added: " in ended.err
    assert len(place.facts("watchlist", "list")["artists"]) == 1


def test_a_search_is_saved_paused_checked_and_removed(place: WatchPlace) -> None:
    added = place.run("saved", "add", "flac", "new flac", "--categories", "3040,3010", "--every", "1h", "--take-all")
    again = place.run("saved", "add", "flac", "other")
    paused = place.run("saved", "pause", "flac")
    listed = place.run("saved", "list")
    place.run("saved", "resume", "flac")
    facts = place.facts("saved", "list")["saved"]
    removed = [place.run("saved", "remove", "flac").code, place.run("saved", "remove", "flac").code]

    assert added.out.startswith("flac is repeated every 1h; all that fits is wanted\n")
    assert (again.code, paused.code, removed) == (1, 0, [0, 1])
    assert re.search(r"^flac +new flac in 3040, 3010 +1h +paused +not checked yet$", listed.out, re.MULTILINE)
    assert [(each["name"], each["is_paused"], each["first_check"]) for each in facts] == [("flac", False, "take")]


def test_a_want_shows_every_candidate_with_its_reasons_and_no_key(place: WatchPlace) -> None:
    place.run("watchlist", "add", "--id", "x1", "--name", "X")
    want = place.want()
    listed = place.run("wants", "list", "--state", "chosen")
    shown = place.run("wants", "show", str(want))
    facts = place.facts("wants", "show", str(want))
    handed = place.run("wants", "hand-over", str(want), "--candidate", facts["candidates"][1]["id"])
    after = place.facts("wants", "show", str(want))

    assert re.search(r"^ *1  chosen +A - B +now|^ *1  chosen +A - B +\d+ (s|min) ago", listed.out, re.MULTILINE)
    assert "observe mode: nothing is handed over by itself" in listed.out
    assert re.search(r"^[0-9a-f]{12} +1  attic +312 MB +7  chosen: flac +A - B \[FLAC\]$", shown.out, re.MULTILINE)
    assert re.search(r"rejected: title: none of flac +A - B \[MP3\]$", shown.out, re.MULTILINE)
    assert "it says ***" in shown.out
    assert KEY not in listed.out + shown.out + str(facts)
    assert "attic.test" not in shown.out + str(facts)
    assert handed.out == f"want {want}, B, is handed over by a running service\n"
    assert after["want"]["chosen"] == facts["candidates"][1]["id"]
    assert [job["kind"] for job in place.facts("jobs", "list")["jobs"]] == ["handover"]


def test_wants_are_ignored_and_retried_and_what_is_held_is_settled(each_place: WatchPlace) -> None:
    each_place.run("watchlist", "add", "--id", "x1", "--name", "X")
    want, other = each_place.want(WantState.GAVE_UP), each_place.want(key="other")
    retried, ignored = each_place.run("wants", "retry", str(want)), each_place.run("wants", "ignore", str(want))
    held = each_place.held(other)
    refused = each_place.run("wants", "retry", str(other))
    listed = each_place.run("downloads", "list")
    shown = each_place.run("downloads", "show", str(held))
    settled = each_place.run("downloads", "send-again", str(held))
    twice = each_place.run("downloads", "arrived", str(held))
    missing = each_place.run("downloads", "show", "99")

    assert retried.out == f"want {want}, B, is searched again by a running service\n"
    assert ignored.out == f"want {want}, B, is ignored until cormorant wants retry {want}\n"
    assert (refused.code, "may be at its target already" in refused.err) == (1, True)
    assert f"held: look at the target, then cormorant downloads arrived {held}" in listed.out
    assert re.search(r"^  target +box$", shown.out, re.MULTILINE)
    assert settled.out == f"want {other}, B, is sent again by a running service\n"
    assert (twice.code, "is waiting; only what is held can be decided" in twice.err) == (1, True)
    assert (missing.code, "there is no download 99" in missing.err) == (1, True)


def test_targets_are_listed_and_tried_out(place: WatchPlace) -> None:
    listed = place.run("targets", "list")
    away = place.run("targets", "test", "box")
    (place.folder / "data" / "box").mkdir(parents=True)
    tried = place.run("targets", "test", "box")

    assert re.search(r"^box +blackhole +asked +nzb, torrent$", listed.out, re.MULTILINE)
    assert away.code == 1
    assert (tried.code, tried.out.startswith("box answers: ")) == (0, True)

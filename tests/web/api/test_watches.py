"""The API of watching as programs use it: artists, saved searches, wants, downloads, targets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio

from cormorant.clients.files import Download
from cormorant.rules.search.requests import Result, SearchPage, SearchRequest
from cormorant.rules.settings.watch import ProfileSettings, TargetSettings, WatchlistSettings
from cormorant.rules.watch.handovers import TargetInDoubt, TargetUnavailable
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.scripted import ScriptedCatalogue, ScriptedTarget, album
from cormorant.testing import ScriptedSource
from storage.search.sources import SourceRecord
from supervisors import Service
from tests.bounds import WAIT_S
from tests.web.web_place import SOURCE_KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

BOARDS = CatalogueArtist(id="2VAvhf61GgLYmC6C8anyX1", name="Boards of Canada")
FIND = Result(
    title=f"A1 - New [FLAC] {SOURCE_KEY}",
    guid=f"http://red.test/1?apikey={SOURCE_KEY}",
    link=f"http://red.test/1?apikey={SOURCE_KEY}",
    protocol="torrent",
    size_bytes=300_000_000,
    seeders=4,
)


async def fetch(_record: SourceRecord, _link: str) -> Download:
    await trio.lowlevel.checkpoint()
    return Download(kind="torrent", body=b"d4:infod4:name1:aee", infohash="a" * 40)


async def finds(_record: SourceRecord, _request: SearchRequest) -> SearchPage:
    await trio.lowlevel.checkpoint()
    return SearchPage(results=(FIND, attrs.evolve(FIND, title="A1 - New [MP3]", guid="2", link="http://red.test/2")))


@asynccontextmanager
async def watched(
    place: WebPlace, target: ScriptedTarget | None = None, *, mode: str = "observe", **chosen: Any
) -> AsyncIterator[tuple[Service, httpx2.AsyncClient]]:
    """A service that knows an artist with a new release; its target takes what the test lets it take."""
    catalogue = ScriptedCatalogue({"a1": [[album("New", "2100-01-02")]]}, artists=[BOARDS])
    usual: dict[str, Any] = {
        "mode": mode,
        "watchlist": WatchlistSettings(choose="flac", hand_to=("box",), interval_s=0.1),
        "profiles": {"flac": ProfileSettings(accept=("flac",))},
        "targets": {"box": TargetSettings(url="http://box.test", in_doubt="hold")},
    }
    given: dict[str, Any] = {"catalogue": catalogue, "targets": {"box": target or ScriptedTarget()}, "download": fetch}
    async with place.served(given=given, **usual | chosen) as served:
        yield served


async def until(client: httpx2.AsyncClient, path: str, state: str) -> Any:
    """The first of a list, once it is in a state."""
    with trio.fail_after(WAIT_S):
        while True:
            [found] = (await client.get(f"/api/v1/{path}")).json()[path] or [{"state": None}]
            if found["state"] == state:
                return found
            await trio.sleep(0.02)


async def test_an_artist_is_looked_up_watched_once_and_removed(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with watched(place) as (_, client):
            added = await client.post(
                "/api/v1/watchlist", json={"artist": "Boards of Canada", "start": "2026-01-31", "search": ["red"]}
            )
            again = await client.post("/api/v1/watchlist", json={"id": BOARDS.id, "name": "whoever"})
            nobody = await client.post("/api/v1/watchlist", json={"artist": "Nobody at all"})
            checked = await client.post(f"/api/v1/watchlist/{added.json()['number']}/check")
            paused = await client.post("/api/v1/watchlist/boards of canada/pause")
            resumed = await client.post(f"/api/v1/watchlist/{BOARDS.id}/resume")
            unknown = await client.post("/api/v1/watchlist/nobody/pause")
            listed = (await client.get("/api/v1/watchlist")).json()
            removed = await client.delete(f"/api/v1/watchlist/{BOARDS.id}")
            gone = await client.delete("/api/v1/watchlist/Boards of Canada")
            odd = [await client.delete(f"/api/v1/{path}/a%00b") for path in ("watchlist", "saved-searches")]

    assert (added.status_code, again.status_code, nobody.status_code) == (201, 409, 400)
    assert [(each["name"], each["start_on"], each["search"]) for each in listed] == [
        ("Boards of Canada", "2026-01-31", ["red"])
    ]
    assert (checked.status_code, removed.status_code, gone.status_code) == (200, 204, 404)
    assert (paused.json()["is_paused"], resumed.json()["is_paused"]) == (True, False)
    assert (unknown.status_code, unknown.json()["detail"]) == (
        404,
        "there is no artist 'nobody'; `cormorant watchlist list` shows them",
    )
    assert [answer.status_code for answer in odd] == [400, 400]
    assert "knows no artist called 'Nobody at all'" in nobody.json()["detail"]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("watchlist", {"artist": ""}, "artist: give a name"),
    ("watchlist", {"id": "x", "name": "X", "start": "soon"}, "start: 'soon' is no start; write now, all"),
    (
        "watchlist",
        {"id": "x", "name": "X", "choose": "flak"},
        "choose: there is no profile 'flak'; write [profiles.flak], or leave it out; did you mean flac?",
    ),
    (
        "watchlist",
        {"id": "x", "name": "X", "hand_to": ["bin"]},
        "hand_to: there is no target 'bin'; write [targets.bin], or one of: box",
    ),
    (
        "watchlist",
        {"id": "x", "name": "X", "search": ["blue"]},
        "search: there is no source 'blue'; write [sources.blue], or one of: red",
    ),
    ("watchlist", {"id": "x", "name": "X", "every_s": 1}, "every: 1s is out of range; allowed: 1m to 30d"),
    ("watchlist", {"id": "x\u0000", "name": "X"}, "id: it is empty, or no single line"),
    ("watchlist", {"id": "x", "nmae": "X"}, "nmae: there is no such field"),
    ("saved-searches", {"name": "No Name", "query": "x"}, 'name: "No Name" cannot be a name'),
    ("saved-searches", {"name": "empty"}, "query: it asks for nothing"),
    (
        "saved-searches",
        {"name": "x", "query": "x", "first_check": "maybe"},
        'first_check: "maybe" is not one of the choices',
    ),
]


async def test_what_cannot_be_watched_is_told_with_the_remedy(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with watched(place) as (_, client):
            answers = [await client.post(f"/api/v1/{path}", json=body) for path, body, _ in BAD]
            left = (await client.get("/api/v1/watchlist")).json() + (await client.get("/api/v1/saved-searches")).json()

    assert {(answer.status_code, answer.headers["content-type"]) for answer in answers} == {
        (400, "application/problem+json")
    }
    details = [answer.json()["detail"] for answer in answers]
    assert [(said, told) for said, (_, _, told) in zip(details, BAD, strict=True) if not said.startswith(told)] == []
    assert left == []


async def test_a_want_shows_its_candidates_without_links_and_one_is_handed_over_by_hand(tmp_path: Path) -> None:
    source: Any = finds
    target = ScriptedTarget()
    with web_place(tmp_path, red=source) as place:
        async with watched(place, target) as (_, client):
            await client.post("/api/v1/watchlist", json={"id": "a1", "name": "A1"})
            want = await until(client, "wants", "chosen")
            shown = await client.get(f"/api/v1/wants/{want['id']}")
            best, other = shown.json()["candidates"]
            none = await client.post(f"/api/v1/wants/{want['id']}/hand-over", json={"candidate": "nothing"})
            handed = await client.post(f"/api/v1/wants/{want['id']}/hand-over", json={"candidate": other["id"]})
            download = await until(client, "downloads", "handed over")
            late = await client.post(f"/api/v1/wants/{want['id']}/retry")
            elsewhere = await client.get("/api/v1/wants", params={"state": "gave up"})

    assert want["reason"] == "observe mode: would be handed to box"
    assert (best["title"], best["place"], best["merits"]) == ("A1 - New [FLAC] ***", 1, [])
    assert (other["place"], other["reasons"], other["seeders"]) == (None, ["title: none of flac"], 4)
    assert SOURCE_KEY not in shown.text
    assert "red.test" not in shown.text
    assert (none.status_code, handed.status_code, late.status_code) == (409, 200, 409)
    assert (download["title"], download["candidate"]) == ("A1 - New [MP3]", other["id"])
    assert [parcel.title for _, parcel in target.given] == ["A1 - New [MP3]"]
    assert elsewhere.json() == {"wants": [], "next_before": None}


@pytest.mark.parametrize(("verb", "times"), [("arrived", 1), ("send-again", 2)])
async def test_what_is_held_is_settled_by_hand(tmp_path: Path, verb: str, times: int) -> None:
    source: Any = finds
    target = ScriptedTarget(can_be_asked=False, after=[TargetInDoubt("no answer came")])
    with web_place(tmp_path, red=source) as place:
        async with watched(place, target, mode="live") as (_, client):
            await client.post("/api/v1/watchlist", json={"id": "a1", "name": "A1"})
            held = await until(client, "downloads", "held")
            [need] = (await client.get("/api/v1/overview")).json()["needs_you"]
            settled = await client.post(f"/api/v1/downloads/{held['id']}/{verb}")
            done = await until(client, "wants", "done")
            twice = await client.post(f"/api/v1/downloads/{held['id']}/{verb}")

    assert (need["what"], need["name"]) == ("download", "A1 - New [FLAC] ***")
    assert need["why"] == "may have arrived at box: no answer came"
    assert (settled.status_code, twice.status_code) == (200, 409)
    assert done["hand_to"] == ["box"]
    assert len(target.given) == times


async def test_a_want_is_ignored_and_searched_again_at_once(tmp_path: Path) -> None:
    source = ScriptedSource([], ["A1 - New FLAC"])
    with web_place(tmp_path, red=source) as place:
        async with watched(place) as (_, client):
            await client.post("/api/v1/watchlist", json={"id": "a1", "name": "A1"})
            with trio.fail_after(WAIT_S):
                while not (await client.get("/api/v1/wants")).json()["wants"] or not source.asked_at:
                    await trio.sleep(0.02)
            want = await until(client, "wants", "wanted")
            retried = await client.post(f"/api/v1/wants/{want['id']}/retry")
            chosen = await until(client, "wants", "chosen")
            ignored = await client.post(f"/api/v1/wants/{want['id']}/ignore")
            left = (await client.get("/api/v1/wants", params={"ignored": "false"})).json()
            unknown = [await client.post(f"/api/v1/wants/{number}/ignore") for number in (0, 999, 2**63)]

    assert want["next_look_at"] is not None
    assert left == {"wants": [], "next_before": None}
    assert (retried.status_code, chosen["state"], ignored.json()["state"]) == (200, "chosen", "ignored")
    assert [answer.status_code for answer in unknown] == [404, 404, 404]


async def test_targets_are_listed_without_address_and_tried_out(tmp_path: Path) -> None:
    class Away(ScriptedTarget):
        async def test(self) -> str:
            await trio.lowlevel.checkpoint()
            raise TargetUnavailable("nobody answers at http://me:hunter2@box.test", retry_after_s=30)

    with web_place(tmp_path) as place:
        async with watched(place) as (_, client):
            listed = await client.get("/api/v1/targets")
            tried = await client.post("/api/v1/targets/box/test")
            unknown = await client.post("/api/v1/targets/bin/test")
    with web_place(tmp_path) as place:
        async with watched(place, Away()) as (_, client):
            away = await client.post("/api/v1/targets/box/test")

    assert listed.json()[0] | {"takes": []} == {
        "name": "box", "kind": "qbittorrent", "takes": [], "can_be_asked": True, "in_doubt": "hold",
    }  # fmt: skip
    assert tried.json() == {"target": "box", "said": "it is a script"}
    assert unknown.json()["detail"] == "there is no target 'bin'; there are box"
    assert (away.status_code, away.headers["retry-after"]) == (502, "30")
    assert "hunter2" not in away.text

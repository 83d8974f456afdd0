"""The API as programs use it: status, sources, searches with their stream, jobs, and its own description."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SourceUnavailable
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.services.search_views import outcome_out
from cormorant.testing import TIMEOUT, ScriptedSource
from supervisors import Ending
from supervisors.tree import WEB_GRACE_S
from tests.web.web_place import KEY, SOURCE_KEY, web_place

pytestmark = pytest.mark.slow("real sockets")


async def test_the_status_shows_the_tree_with_the_server_last(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.get("/api/v1/status")

    assert answer.json()["is_ready"] is True
    names = [child["name"] for child in answer.json()["tree"]]
    assert names == ["storage", "search", "handover", "jobs", "tickers", "sweepers", "web"]
    assert answer.json()["tree"][-1] | {"children": []} == {
        "name": "web", "state": "running", "restarts": 0, "last_crash": None, "children": [],
    }  # fmt: skip


async def test_a_source_says_why_it_waits(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"]), blue=ScriptedSource()) as place:
        async with place.served({"spacing_s": 100.0}) as (service, client):
            await (await service.search("x", sources=["red"])).wait()
            both = (await client.get("/api/v1/sources")).json()
            red = (await client.get("/api/v1/sources/red", params={"priority": "background"})).json()
            why = (await client.get("/api/v1/sources/red/explain", params={"lane": "grab"})).json()

    assert [(source["name"], len(source["explanation"]["gates"])) for source in both] == [("blue", 0), ("red", 1)]
    assert red["explanation"]["priority"] == "background"
    assert [gate["name"] for gate in why["gates"]] == ["spacing"]
    assert why["lines"][0].startswith("waits for spacing until ")
    assert why["opens_at"].endswith(("Z", "+00:00"))


async def test_a_source_is_paused_resumed_and_reset(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served() as (service, client):
            paused = await client.post("/api/v1/sources/red/pause")
            while not service.explain("red").reasons:
                await trio.sleep(0.01)
            shown = (await client.get("/api/v1/sources/red")).json()
            await client.post("/api/v1/sources/red/resume")
            again = await client.post("/api/v1/sources/red/reset")
            unknown = await client.post("/api/v1/sources/blue/pause")

    assert (paused.status_code, again.status_code, unknown.status_code) == (200, 200, 404)
    assert shown["explanation"]["gates"][0]["name"] == "paused"
    assert unknown.json()["detail"] == "there is no source 'blue'; there are red"


async def test_a_search_that_waits_for_its_outcomes_has_them_all(tmp_path: Path) -> None:
    trouble = SourceUnavailable(f"it says {SOURCE_KEY}")
    with web_place(tmp_path, red=ScriptedSource(["a", f"b {SOURCE_KEY}"]), blue=ScriptedSource(trouble)) as place:
        async with place.served() as (_, client):
            answer = await client.post("/api/v1/searches", json={"query": "x", "wait_s": 90})

    search = answer.json()
    outcomes = {outcome["source"]: outcome for outcome in search["outcomes"]}
    assert (answer.status_code, search["is_done"]) == (201, True)
    assert [result["title"] for result in outcomes["red"]["results"]] == ["a", "b ***"]
    assert (outcomes["blue"]["status"], outcomes["blue"]["error"]) == ("failed", "SourceUnavailable: it says ***")
    assert SOURCE_KEY not in answer.text
    assert "link" not in outcomes["red"]["results"][0]


def test_an_outcome_says_whether_the_search_was_cut() -> None:
    outcome = Outcome(job_id=1, source="slskd", status=OutcomeStatus.FOUND, was_cut=True)

    assert outcome_out(outcome, None).was_cut


async def test_outcomes_are_streamed_as_they_come_and_again_for_who_comes_late(
    tmp_path: Path, socket_clock: MockClock
) -> None:
    with web_place(tmp_path, red=ScriptedSource(["a"]), blue=ScriptedSource(["b"], takes_s=0.3)) as place:
        async with place.served() as (_, client):
            number = (await client.post("/api/v1/searches", json={"query": "x"})).json()["id"]
            first = await client.get(f"/api/v1/searches/{number}/stream")
            second = await client.get(f"/api/v1/searches/{number}/stream")
            shown = (await client.get(f"/api/v1/searches/{number}")).json()

    assert first.headers["content-type"].startswith("text/event-stream")
    assert [name for name, _ in events(first.text)] == ["outcome", "outcome", "done"]
    assert [said["source"] for name, said in events(first.text) if name == "outcome"] == ["red", "blue"]
    assert first.text == second.text
    assert shown["is_done"]


def events(text: str) -> list[tuple[str, Any]]:
    found = [dict(line.split(": ", 1) for line in block.split("\n")) for block in text.strip().split("\n\n")]
    return [(each["event"], json.loads(each["data"])) for each in found]


async def test_a_search_can_be_ended(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(TIMEOUT)) as place:
        async with place.served() as (_, client):
            number = (await client.post("/api/v1/searches", json={"query": "x"})).json()["id"]
            ended = await client.delete(f"/api/v1/searches/{number}")
            streamed = await client.get(f"/api/v1/searches/{number}/stream")
            unknown = await client.get("/api/v1/searches/999")

    assert (ended.status_code, unknown.status_code) == (204, 404)
    assert events(streamed.text)[0][1]["status"] == "cancelled"


async def test_an_open_stream_does_not_hold_up_the_stop(tmp_path: Path, socket_clock: MockClock) -> None:
    pieces: list[str] = []
    opened = trio.Event()
    with web_place(tmp_path, red=ScriptedSource(["x"]), blue=ScriptedSource(TIMEOUT)) as place:
        service = place.service()
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                async with place.client() as client:
                    number = (await client.post("/api/v1/searches", json={"query": "x"})).json()["id"]
                    async with client.stream("GET", f"/api/v1/searches/{number}/stream") as answer:
                        async for piece in answer.aiter_text():
                            pieces.append(piece)
                            opened.set()

            async with service:
                nursery.start_soon(listen)
                await opened.wait()

    assert pieces[0].startswith("event: outcome\n")
    assert service.report is not None
    assert (service.report.children[0].name, service.report.children[0].ending) == ("web", Ending.STOPPED)
    assert service.report.children[0].took_s < 1.5


async def test_a_reader_that_reads_nothing_does_not_hold_up_the_stop(tmp_path: Path, socket_clock: MockClock) -> None:
    many = ScriptedSource([f"a rather long title of a find {number} {'x' * 200}" for number in range(20_000)])
    with web_place(tmp_path, red=many) as place:
        service = place.service()
        async with service:
            async with place.client() as client:
                number = (await client.post("/api/v1/searches", json={"query": "x"})).json()["id"]
                while not (await client.get(f"/api/v1/searches/{number}")).json()["is_done"]:
                    await trio.sleep(0.05)
            host, port = place.address.removeprefix("http://").split(":")
            stream = await trio.open_tcp_stream(host, int(port))
            head = f"GET /api/v1/searches/{number}/stream HTTP/1.1\r\nHost: x\r\nX-Api-Key: {KEY}\r\n\r\n"
            await stream.send_all(head.encode())
            await trio.sleep(1)  # over when the server has sent as much as there is room for
        await stream.aclose()

    assert service.report is not None
    assert (service.report.children[0].name, service.report.children[0].ending) == ("web", Ending.STOPPED)
    assert service.report.children[0].took_s < WEB_GRACE_S


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"query": "x", "kind": "song"}, "kind: there is no kind 'song'; use one of search, tv, movie, music, book"),
        ({"query": "x", "priority": "now"}, "priority: there is no priority 'now'; use one of interactive, rss, completion, background"),
        ({"query": "x", "wait_s": 1000}, "wait_s: 1000.0 is not possible; give seconds, 0 to 90"),
        ({"query": "x", "max_wait_s": -1}, "max_wait_s: -1.0 is not possible; give seconds, 0 or more"),
        ({"query": "x", "querry": "y"}, "querry: there is no such field; there are categories, kind, max_wait_s"),
        ({"query": "x" * 2000}, "query: it has 2,000 characters; 1,000 are allowed, shorten it"),
        ({"query": 7}, "Validation failed for POST /api/v1/searches"),
        ({"query": "x", "categories": ["tv"]}, "Validation failed for POST /api/v1/searches"),
        ([], "Validation failed for POST /api/v1/searches"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named_with_the_right_form(tmp_path: Path, body: Any, words: str) -> None:
    with web_place(tmp_path, red=ScriptedSource()) as place:
        async with place.served() as (_, client):
            answer = await client.post("/api/v1/searches", json=body)

    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["detail"].startswith(words)


async def test_jobs_are_listed_page_by_page_cancelled_and_retried(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            ids = [await service.enqueue("later", {"n": number}, delay_s=3600) for number in range(3)]
            first = (await client.get("/api/v1/jobs", params={"limit": 2})).json()
            second = (await client.get("/api/v1/jobs", params={"limit": 2, "before": first["next_before"]})).json()
            cancelled = (await client.post(f"/api/v1/jobs/{ids[0]}/cancel")).json()
            only = (await client.get("/api/v1/jobs", params={"state": "cancelled", "kind": "later"})).json()
            retried = (await client.post(f"/api/v1/jobs/{ids[0]}/retry")).json()
            illegal = await client.post(f"/api/v1/jobs/{ids[0]}/retry")
            shown = (await client.get(f"/api/v1/jobs/{ids[1]}")).json()
            missing = [await client.get(f"/api/v1/jobs/{number}") for number in (10**6, 2**70, -1)]

    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert second["next_before"] is None
    assert (cancelled["state"], retried["state"]) == ("cancelled", "pending")
    assert [job["id"] for job in only["jobs"]] == [ids[0]]
    assert illegal.status_code == 409
    assert (shown["kind"], shown["payload"]) == ("later", {"n": 1})
    assert {answer.status_code for answer in missing} == {404}


async def test_all_jobs_are_paused_and_go_on(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answers = [await client.post(f"/api/v1/{verb}") for verb in ("pause", "resume")]

    assert [answer.status_code for answer in answers] == [204, 204]


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "x"}, {"before": "-1"}, {"state": "gone"}])
async def test_a_wrong_parameter_is_named(tmp_path: Path, params: dict[str, str]) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.get("/api/v1/jobs", params=params)

    (name,) = params
    assert answer.status_code == 400
    assert any(error.startswith(name) for error in answer.json()["errors"])


async def test_the_description_names_every_address(tmp_path: Path) -> None:
    patient = WebSettings(listen="127.0.0.1:0", key=Secret(KEY), wrong_keys_per_minute=1_000)
    with web_place(tmp_path) as place:
        async with place.served(web=patient) as (_, client):
            described: dict[str, Any] = (await client.get("/api/v1/openapi.json")).json()
            refused = await described_without_key(client, described)

    assert described["info"]["title"] == "Cormorant"
    assert {"/health", "/ready", "/api/v1/searches/{number}/stream", "/api/v1/jobs/{job_id}/retry"} <= set(
        described["paths"]
    )
    assert set(refused.values()) == {401}


async def described_without_key(client: httpx2.AsyncClient, described: dict[str, Any]) -> dict[str, int]:
    """What each described address but the open ones says to strangers."""
    answers = {}
    for path, methods in described["paths"].items():
        if path in {"/health", "/ready"}:
            continue
        for method in methods:
            if path == "/api/v1/session" and method in {"get", "post"}:
                continue
            filled = re.sub(r"\{\w+\}", "1", path)
            answer = await client.request(
                method, filled, headers={"X-Api-Key": "wrong"}, json={} if method == "post" else None
            )
            answers[f"{method} {path}"] = answer.status_code
    return answers

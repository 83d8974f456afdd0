"""Everything that the page shows in one document, what happens as it happens, and the levers for all of it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from attrs import define
from trio.testing import MockClock

from cormorant.rules.search.outcomes import CredentialsRefused
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import SearchRequest
from cormorant.rules.settings.sources import ReserveSettings
from cormorant.testing import TIMEOUT, ScriptedSource
from cormorant.web import event_stream
from supervisors import Service
from tests.bounds import WAIT_S
from tests.web.web_place import KEY, SOURCE_KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("real sockets")


async def overview(client: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/api/v1/overview")
    assert answer.status_code == 200, answer.text
    assert SOURCE_KEY not in answer.text
    said: dict[str, Any] = answer.json()
    return said


async def search(service: Service, query: str, source: str, **how: Any) -> Any:
    return await service.sources.search(SearchRequest(query=query), sources=[source], **how)


async def test_an_account_shows_its_quotas_and_what_is_in_its_way(tmp_path: Path) -> None:
    limits = {"spacing_s": 100.0, "per_day": 10, "grabs_per_day": 5, "reserve": ReserveSettings(interactive=0.2)}
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        async with place.served(limits) as (service, client):
            await (await search(service, "geogaddi", "red", consumer="sonarr")).wait()
            said = await overview(client)

    [red] = said["accounts"]
    assert (red["state"], red["gate"], red["host"]) == ("waits", "spacing", "red.test")
    assert red["why"].endswith("the site allows one every 100 s")
    assert red["opens_at"] == red["gates"][0]["opens_at"]
    assert [(each["lane"], each["per"], each["used"], each["limit"], each["kept"]) for each in red["quotas"]] == [
        ("query", "day", 1, 10, 2),
        ("grab", "day", 0, 5, 1),
    ]
    assert [(each["name"], each["queries"], each["part"]) for each in said["clients"]] == [
        ("sonarr", 1, 1.0),
        ("", 0, 0.0),
    ]
    assert [(each["query"], each["client"], each["results"]) for each in said["history"]] == [("geogaddi", "sonarr", 1)]
    assert said["health"]["unwell"] == []
    assert said["needs_you"] == []


async def test_what_an_app_has_spent_is_counted_over_all_sources(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"]), blue=ScriptedSource(["y"])) as place:
        async with place.served() as (service, client):
            for source, app in (("red", "sonarr"), ("blue", "sonarr"), ("blue", "lidarr")):
                await (await search(service, f"for {app}", source, consumer=app)).wait()
            said = await overview(client)

    assert [(each["name"], each["queries"], each["grabs"]) for each in said["clients"]] == [
        ("sonarr", 2, 0),
        ("lidarr", 1, 0),
        ("", 0, 0),
    ]


async def test_what_runs_and_what_waits_is_told_with_its_reason(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(TIMEOUT)) as place:
        async with place.served() as (service, client):
            runs = await search(service, "runs", "red", consumer="sonarr")
            while not service.sources.directory.by_name["red"].snapshot.running:
                await trio.sleep(0.01)
            later = {"priority": Priority.COMPLETION, "consumer": "lidarr"}
            waits = [await search(service, query, "red", **later) for query in ("one", "two")]
            while service.sources.directory.by_name["red"].snapshot.waiting < len(waits):
                await trio.sleep(0.01)
            said = await overview(client)
            for each in (*waits, runs):
                each.cancel()

    assert [(each["source"], each["query"], each["client"]) for each in said["running"]] == [("red", "runs", "sonarr")]
    [group] = said["waiting"]
    assert (group["client"], group["count"], group["queries"]) == ("lidarr", 2, ["one", "two"])
    assert (group["gate"], group["opens_at"], group["why"]) == ("in_flight", None, "1 of 1 allowed at once")


async def test_a_source_that_refused_our_key_needs_a_person(tmp_path: Path) -> None:
    refusal = CredentialsRefused(f"100 wrong key {SOURCE_KEY}")
    with web_place(tmp_path, red=ScriptedSource(refusal)) as place:
        async with place.served() as (service, client):
            async for _ in await search(service, "x", "red"):
                pass
            said = await overview(client)

    assert said["accounts"][0]["state"] == "stopped"
    [need] = said["needs_you"]
    assert (need["what"], need["name"]) == ("source", "red")
    assert "100 wrong key ***" in need["why"]


async def test_everything_is_paused_and_goes_on(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["x"]), blue=ScriptedSource(["x"])) as place:
        async with place.served() as (_, client):
            paused = (await client.post("/api/v1/everything/pause")).json()
            resumed = (await client.post("/api/v1/everything/resume")).json()

    assert paused["paused_since"] is not None
    assert [account["state"] for account in paused["accounts"]] == ["paused", "paused"]
    assert resumed["paused_since"] is None
    assert [account["state"] for account in resumed["accounts"]] == ["open", "open"]


@define
class Listener:
    """Somebody who listens to what happens, on a connection of their own."""

    stream: trio.SocketStream
    text: str = ""

    async def hear(self, word: str) -> str:
        """Everything up to a word, or to the end."""
        with trio.fail_after(WAIT_S):
            while word not in self.text and (more := await self.stream.receive_some()):
                self.text += more.decode()
        return self.text

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in re.findall(r"^data: (.*)$", self.text, re.MULTILINE)]


@asynccontextmanager
async def listener(place: WebPlace) -> AsyncIterator[Listener]:
    host, _, port = place.address.removeprefix("http://").partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: {KEY}\r\n\r\n".encode())
        yield Listener(stream)


async def test_what_happens_is_heard_without_the_keys_of_sources(tmp_path: Path) -> None:
    refusal = CredentialsRefused(f"wrong key {SOURCE_KEY}")
    with web_place(tmp_path, red=ScriptedSource(refusal)) as place:
        async with place.served() as (service, _), listener(place) as ear:
            head = await ear.hear("retry: ")
            await search(service, "x", "red")
            await ear.hear('"source.stopped"')

    assert "content-type: text/event-stream" in head
    assert [event["name"] for event in ear.events()][:2] == ["search.submitted", "search.started"]
    assert ear.events()[-1]["facts"] == {"source": "red", "because": "wrong key ***"}
    assert SOURCE_KEY not in ear.text


async def test_who_hangs_up_is_forgotten_and_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "FEEDS_MAX", 1)
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            async with listener(place) as ear:
                await ear.hear("retry: ")
                full = await client.get("/api/v1/events")
                readers = len(service._bus._streams)  # noqa: SLF001 - whether anything stays behind
            with trio.fail_after(WAIT_S):
                while service._bus._streams:  # noqa: SLF001 - as above
                    await trio.sleep(0.01)

    assert (readers, full.status_code, full.headers["retry-after"]) == (1, 429, "5")


async def test_a_stop_ends_those_who_listen(tmp_path: Path, socket_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        service = place.service()
        async with AsyncExitStack() as stack:
            async with service:
                ear = await stack.enter_async_context(listener(place))
                await ear.hear("retry: ")
            await ear.hear("never said")

    assert service.report is not None
    assert service.report.clean
    assert ear.text.endswith("0\r\n\r\n")  # an end in good order, and not a connection that broke


async def test_the_page_is_served_with_a_policy_and_only_when_it_has_changed(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            client.headers.pop("X-Api-Key")
            page = await client.get("/")
            script = await client.get("/page/app.js")
            again = await client.get("/page/app.js", headers={"If-None-Match": script.headers["etag"]})
            missing = [await client.get(f"/page/{name}") for name in ("x.js", "..%2fkeys.py", "%2e%2e/app.py")]

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (script.headers["cache-control"], again.status_code, again.content) == ("no-cache", 304, b"")
    assert [answer.status_code for answer in missing] == [404, 400, 400]

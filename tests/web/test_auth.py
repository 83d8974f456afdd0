"""A browser is signed in by the key, stays so for a bounded time, and changes nothing for pages of others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.errors import StorageUnavailable
from cormorant.rules.events import WebKeyRefused
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.services.keys import Keys
from cormorant.testing import START, ScriptedSource, memory_gateway, settings
from cormorant.web.auth import LOOK_S, BrowserSessions, ListenPermit, SignOuts
from storage import access
from storage.database import Database
from tests.environments import environment_of
from tests.web.web_place import KEY, SONARR, WebPlace, web_place


class Clock:
    """A clock that is set by hand."""

    moment = START

    def now(self) -> object:
        return self.moment

    def stopwatch(self) -> float:
        return 0.0


def sessions(clock: Clock, key: str = KEY) -> BrowserSessions:
    given: Any = clock  # set by hand
    environment = environment_of(settings(web=WebSettings(session_s=60.0)), clock=given)
    return BrowserSessions(environment, keys=Keys(web=Secret(key)))


def test_a_cookie_is_known_again_until_its_time_is_over() -> None:
    clock = Clock()
    known = sessions(clock)
    session = known.begin()

    clock.moment = START + timedelta(seconds=59)
    assert known.of(session.cookie) == session
    assert sessions(clock).of(session.cookie) == session  # also after a restart
    clock.moment = START + timedelta(seconds=60)
    assert known.of(session.cookie) is None


def test_whoever_changes_the_key_signs_everyone_out() -> None:
    session = sessions(Clock()).begin()

    assert sessions(Clock(), "another-key").of(session.cookie) is None


def test_one_that_was_signed_out_does_not_come_back() -> None:
    known = sessions(Clock())
    session, other = known.begin(), known.begin()

    known.end(session.number)

    assert known.of(session.cookie) is None
    assert known.of(other.cookie) == other


@pytest.mark.parametrize(
    "spoilt", ["", ".", "..", "1.2.3", "9" * 400, "९.x.y", "x.y.z", "\udcff.1.2", "1" * 12 + ".a.b"]
)
def test_what_we_have_not_written_opens_nothing(spoilt: str) -> None:
    assert sessions(Clock()).of(spoilt) is None


def test_a_longer_life_cannot_be_written_into_a_cookie() -> None:
    known = sessions(Clock())
    expires, number, signature = known.begin().cookie.split(".")

    assert known.of(f"{int(expires) + 1}.{number}.{signature}") is None


@pytest.fixture
def place(tmp_path: Path) -> Iterator[WebPlace]:
    with web_place(tmp_path, red=ScriptedSource(["x"])) as place:
        yield place


async def sign_in(client: httpx2.AsyncClient, key: str = KEY, **headers: str) -> httpx2.Response:
    """As the page does; the client keeps the cookie."""
    client.headers.pop("X-Api-Key", None)
    return await client.post("/api/v1/session", json={"key": key}, headers=headers)


@pytest.mark.slow("real sockets, on the real clock")
async def test_the_cookie_opens_the_api_and_changes_need_the_token(place: WebPlace) -> None:
    async with place.served() as (_, client):
        answer = await sign_in(client)
        token = {"X-Csrf-Token": answer.json()["csrf"]}
        looked = await client.get("/api/v1/sources")
        without = await client.post("/api/v1/pause")
        wrong = await client.post("/api/v1/pause", headers={"X-Csrf-Token": "wrong"})
        elsewhere = await client.post("/api/v1/pause", headers=token | {"Sec-Fetch-Site": "cross-site"})
        other_origin = await client.post("/api/v1/pause", headers=token | {"Origin": "http://evil.example"})
        own_origin = await client.post("/api/v1/pause", headers=token | {"Origin": place.address})
        paused = await client.post("/api/v1/resume", headers=token | {"Sec-Fetch-Site": "same-origin"})

    assert (looked.status_code, own_origin.status_code, paused.status_code) == (200, 204, 204)
    assert [each.status_code for each in (without, wrong, elsewhere, other_origin)] == [403] * 4
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "Path=/", "SameSite=strict", "Max-Age=12095"))
    assert "Secure" not in cookie
    assert KEY not in cookie


@pytest.mark.slow("real sockets, on the real clock")
async def test_behind_https_the_cookie_is_for_https_alone(place: WebPlace) -> None:
    behind = WebSettings(listen="127.0.0.1:0", key=Secret(KEY), trusted_proxies=(ip_network("127.0.0.0/8"),))
    async with place.served(web=behind) as (_, client):
        believed = await sign_in(client, **{"X-Forwarded-Proto": "https"})
    async with place.served() as (_, client):
        claimed = await sign_in(client, **{"X-Forwarded-Proto": "https"})

    assert "Secure" in believed.headers["set-cookie"]
    assert "Secure" not in claimed.headers["set-cookie"]


@pytest.mark.slow("real sockets, on the real clock")
async def test_a_wrong_key_is_refused_and_told_and_so_is_another_page(place: WebPlace) -> None:
    async with place.served() as (_, client):
        wrong = await sign_in(client, "wrong")
        of_client = await sign_in(client, SONARR)
        foreign = await sign_in(client, KEY, **{"Sec-Fetch-Site": "cross-site"})
        state = await client.get("/api/v1/session")

    assert (wrong.status_code, of_client.status_code, foreign.status_code) == (401, 401, 403)
    assert "set-cookie" not in {**wrong.headers, **foreign.headers}
    assert wrong.json()["detail"].startswith("this is not the key; it is in the file keys/web.key")
    assert state.json() == {"is_open": False, "expires_at": None, "csrf": None}
    assert [told.path for told in place.events.of(WebKeyRefused)] == ["/api/v1/session"]  # told once, however many


@pytest.mark.slow("real sockets, on the real clock")
async def test_whoever_signs_out_is_out_with_every_copy_of_the_cookie(place: WebPlace) -> None:
    async with place.served() as (_, client):
        answer = await sign_in(client)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        out = await client.delete("/api/v1/session", headers={"X-Csrf-Token": answer.json()["csrf"]})
        copied = await client.get("/api/v1/sources", headers={"Cookie": cookie})

    assert (out.status_code, copied.status_code) == (200, 401)
    assert "Max-Age=0" in out.headers["set-cookie"]


@pytest.mark.slow("real sockets, on the real clock")
async def test_whoever_has_signed_out_is_out_after_a_restart_and_in_every_process(place: WebPlace) -> None:
    async with place.served() as (_, client):
        answer = await sign_in(client)
        cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0], "X-Api-Key": ""}
        await client.delete("/api/v1/session", headers={"X-Csrf-Token": answer.json()["csrf"]})
        other = await sign_in(client)
        stays = {"Cookie": other.headers["set-cookie"].partition(";")[0], "X-Api-Key": ""}
    async with place.served() as (_, client):
        out = await client.get("/api/v1/sources", headers=cookie)
        shown = await client.get("/api/v1/session", headers=cookie)
        in_still = await client.get("/api/v1/sources", headers=stays)

    assert (out.status_code, in_still.status_code) == (401, 200)
    assert shown.json()["is_open"] is False


def know(gateway: Database) -> SignOuts:
    clock = Clock()
    given: Any = clock  # set by hand
    return SignOuts(environment_of(database=gateway, clock=given), sessions=sessions(clock))


@asynccontextmanager
async def two_processes() -> AsyncIterator[tuple[Database, SignOuts, SignOuts]]:
    """What two processes know of one database."""
    with memory_gateway() as gateway:
        async with trio.open_nursery() as nursery:
            await nursery.start(gateway)
            ours, theirs = know(gateway), know(gateway)
            nursery.start_soon(ours.watch)
            nursery.start_soon(theirs.watch)
            yield gateway, ours, theirs
            nursery.cancel_scope.cancel()


@pytest.mark.slow("makes the tables of a database")
async def test_signing_out_while_the_database_is_away_holds_at_once_and_is_written_down_later(
    autojump_clock: MockClock,
) -> None:
    async with two_processes() as (gateway, ours, theirs):
        session, stranger = ours.sessions.begin(), ours.sessions.begin()
        assert await ours.session_of(session.cookie) == session

        gateway.go_away()
        await ours.end(session)
        assert await ours.session_of(session.cookie) is None
        with pytest.raises(StorageUnavailable):  # this one has never seen who was signed out
            await theirs.session_of(stranger.cookie)
        gateway.come_back()
        await trio.sleep(60)

        assert await gateway.read(access.ended_sessions, now=START) == {session.number}
        assert await theirs.session_of(session.cookie) is None
        assert await theirs.session_of(stranger.cookie) == stranger


@pytest.mark.slow("makes the tables of a database")
async def test_those_who_come_together_while_the_database_is_away_do_not_wait_for_one_another(
    autojump_clock: MockClock,
) -> None:
    async with two_processes() as (gateway, ours, _):
        session = ours.sessions.begin()
        await ours.session_of(session.cookie)
        await trio.sleep(LOOK_S)
        gateway.go_away()
        began = trio.current_time()

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ours.session_of, session.cookie)

        assert trio.current_time() - began == 2.0


@pytest.mark.slow("makes the tables of a database")
async def test_who_listens_hears_no_more_when_signed_out_in_another_process(autojump_clock: MockClock) -> None:
    async with two_processes() as (_, ours, theirs):
        session = ours.sessions.begin()
        permit = ListenPermit(theirs, session.cookie)
        await ours.end(session)

        with trio.fail_after(2 * LOOK_S):
            await permit.run_until_signed_out(trio.sleep_forever)

        assert permit.is_over
        assert not ListenPermit(theirs, "").is_over  # a program with the key


@pytest.mark.slow("real sockets")
@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/searches/{search}/stream"])
async def test_who_listens_hears_no_more_once_the_session_is_over(
    place: WebPlace, path: str, socket_clock: MockClock
) -> None:
    async with place.served() as (service, client):
        await service.pause_source("red")
        search = (await client.post("/api/v1/searches", json={"query": "waits"})).json()["id"]
        answer = await sign_in(client)
        ended: list[str] = []

        async def listen(name: str, headers: dict[str, str]) -> None:
            async with client.stream("GET", path.format(search=search), headers=headers) as stream:
                began.set()
                async for _ in stream.aiter_bytes():
                    pass
            ended.append(name)

        async with trio.open_nursery() as nursery:
            for name, headers in {"program": {"X-Api-Key": KEY, "Cookie": ""}, "page": {"X-Api-Key": ""}}.items():
                began = trio.Event()
                nursery.start_soon(listen, name, headers)
                await began.wait()
            await client.delete("/api/v1/session", headers={"X-Csrf-Token": answer.json()["csrf"], "X-Api-Key": ""})
            with trio.fail_after(2):
                while not ended:
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    assert ended == ["page"]

"""The server as a child of the tree: where it listens, who may ask, how it ends."""

from __future__ import annotations

import signal
import socket
import stat
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from trio.testing import MockClock

from actors.actor import StopServing
from cormorant.rules.errors import ServiceFailed
from cormorant.rules.events import ServiceStopping, WebKeyMade, WebKeyRefused
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings, WebSettings
from cormorant.rules.settings.settings import Settings, SettingsConflict
from tests.cli.program import Program, cormorant
from tests.web.web_place import KEY, SONARR, web_place

pytestmark = pytest.mark.slow("real sockets")


async def test_it_is_alive_and_ready_without_a_key(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            alive = await client.get("/health", headers={"X-Api-Key": ""})
            ready = await client.get("/ready", headers={"X-Api-Key": ""})

    assert (alive.status_code, alive.json()) == (200, {"status": "alive", "service": "cormorant"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "service": "cormorant"})


async def test_it_is_not_ready_while_the_database_is_away(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            place.gateway.go_away()
            answer = await client.get("/ready")
            alive = await client.get("/health")
            place.gateway.come_back()

    assert answer.status_code == 503
    assert answer.json()["detail"] == "the database does not answer"
    assert alive.status_code == 200


@pytest.mark.parametrize("key", ["", "wrong", KEY + " ", KEY[:-1], SONARR])
async def test_without_the_key_there_is_a_problem_document(tmp_path: Path, key: str) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.get(
                "/api/v1/openapi.json", headers={"X-Api-Key": key.strip()}, params={"apikey": key}
            )

    assert answer.status_code == (200 if key.strip() == KEY else 401)
    if answer.status_code == 401:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json() == {
            "title": "Unauthorized",
            "status": 401,
            "detail": "the key is missing or wrong; send it as the header X-Api-Key",
            "errors": [],
        }
        assert len(place.events.of(WebKeyRefused)) == (1 if key else 0)


async def test_the_key_may_stand_in_the_query(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.get("/api/v1/openapi.json", headers={"X-Api-Key": ""}, params={"apikey": KEY})

    assert answer.status_code == 200


async def test_every_answer_has_strict_headers_and_names_no_server(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answers = [await client.get(path) for path in ("/health", "/nothing-here", "/api/v1/openapi.json")]

    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
    assert answers[1].json()["status"] == 404


async def test_all_addresses_begin_with_the_url_base(tmp_path: Path) -> None:
    web = WebSettings(listen="127.0.0.1:0", key=Secret(KEY), url_base="/tools/bird")

    with web_place(tmp_path) as place:
        async with place.served(web=web) as (_, client):
            inside, outside = (
                await client.get("/health"),
                await client.get(place.address[: -len("/tools/bird")] + "/health"),
            )

    assert (inside.status_code, outside.status_code) == (200, 404)


async def test_a_taken_address_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as other, web_place(tmp_path) as place:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(
            ServiceFailed, match=f"web.listen: cannot listen on {taken}: address already in use; end what"
        ):
            async with place.service(web=WebSettings(listen=taken)):
                pytest.fail("the body must not run")


def test_a_public_address_needs_a_key_of_its_own() -> None:
    with pytest.raises(SettingsConflict, match="other machines can reach 0.0.0.0:7979 and web.key is not set"):
        Settings(web=WebSettings(listen="0.0.0.0:7979"))

    Settings(web=WebSettings(listen="0.0.0.0:7979", key=Secret(KEY)))
    Settings(web=WebSettings(listen="0.0.0.0:7979", enabled=False))


def test_two_clients_cannot_have_one_key() -> None:
    with pytest.raises(SettingsConflict, match="the same as clients.a.key"):
        Settings(clients={"a": ClientSettings(key=Secret(KEY)), "b": ClientSettings(key=Secret(KEY))})


async def test_keys_that_are_not_set_are_made_once_and_only_their_place_is_told(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"web": WebSettings(listen="127.0.0.1:0"), "clients": {"radarr": ClientSettings()}}
    with web_place(tmp_path) as place:
        async with place.service(**chosen):
            pass
        file = tmp_path / "keys" / "web.key"
        key = file.read_text().strip()
        async with place.served(**chosen) as (_, client):
            answer = await client.get("/api/v1/openapi.json", headers={"X-Api-Key": key})

    assert answer.status_code == 200
    assert len(key) == 43
    assert [stat.S_IMODE(each.stat().st_mode) for each in sorted((tmp_path / "keys").iterdir())] == [0o600, 0o600]
    assert [made.of for made in place.events.of(WebKeyMade)] == ["the API", "the client radarr"]
    assert not [line for line in place.events.lines() if key in line]


async def test_after_the_end_nobody_listens(tmp_path: Path, socket_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            await client.get("/health")
        with pytest.raises(httpx2.ConnectError):
            async with place.client() as late:
                await late.get("/health")

    assert service.report is not None
    assert service.report.clean
    assert service.report.took_s < 2.0


async def test_a_server_that_is_to_stop_serving_takes_no_more_connections(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            service._assembly.web.tell_nowait(StopServing())  # noqa: SLF001 - the service sends it when it begins to stop
            await trio.sleep(0.01)
            with pytest.raises(httpx2.TransportError):
                await client.get("/health")


async def test_a_service_that_begins_to_stop_tells_its_server(tmp_path: Path) -> None:
    told: list[set[type]] = []

    with web_place(tmp_path) as place:
        async with place.served() as (service, _):
            unread = service._assembly.web._unread_once  # noqa: SLF001 - what the server is still to read
            service.listen(lambda each: told.append(set(unread)) if isinstance(each.event, ServiceStopping) else None)

    assert told == [{StopServing}]


async def test_too_large_a_head_or_body_is_refused_and_the_server_stays(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            long_head = await client.get("/health", headers={"X-Long": "x" * 100_000})
            long_body = await client.post("/health", content=b"x" * 2_000_000)
            after = await client.get("/health")

    assert long_head.status_code in {400, 431}
    assert long_body.status_code in {405, 413}
    assert after.status_code == 200


async def test_a_hundred_connections_that_say_nothing_hold_up_nobody(tmp_path: Path, socket_clock: MockClock) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            host, port = place.address.removeprefix("http://").split(":")
            streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(100)]
            answer = await client.get("/health")
        for stream in streams:
            await stream.aclose()

    assert answer.status_code == 200
    assert service.report is not None
    assert service.report.clean


def test_the_program_says_where_it_listens_and_refuses_a_taken_address(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "config.toml").write_text(f'[web]\nenabled = true\nlisten = "{address}"\n')

    with Program("-m", "cormorant", "run", cwd=tmp_path, CORMORANT_WEB__ENABLED="true") as program:
        ready = program.line_with(" ready in ")
        opened = program.line_with("open http")
        second = cormorant("run", cwd=tmp_path, CORMORANT_WEB__ENABLED="true")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert f" http://{address}/, database " in ready
    assert opened == f"open http://{address}/ - key in data/keys/web.key\n"
    assert (tmp_path / "data" / "keys" / "web.key").exists()
    assert ended.code == 0
    assert second.code == 2
    assert second.out == ""
    said = f"web.listen: Cormorant is running already at {address}; stop it, or set another web.listen"
    assert second.err == f"cormorant: {said}\n"

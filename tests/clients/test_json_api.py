"""Apps that speak JSON behind a key: what is sent to them, and what is made of what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from cormorant.clients.json_api import JsonApi, Refusal
from cormorant.clients.transport import Transport
from cormorant.rules.secrets import Secret
from cormorant.rules.source_errors import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.testing import in_line
from tests.clients.raw_server import Asked, RawServer, page, raw_server, redirect

KEY = "hunter2hunter2"


async def call(server: RawServer, method: str = "GET", body: Any = None) -> Any:
    async with Transport(written=[server.url]) as transport:
        api = JsonApi(app="Sonarr", url=f"{server.url}/", key=Secret(KEY), transport=transport, offload=in_line)
        return await api.get("/x") if method == "GET" else await api.change(method, "/x", body)


async def test_a_body_is_sent_whole_with_the_key_in_a_header() -> None:
    heard: list[bytes] = []

    async def listen(stream: trio.SocketStream, asked: Asked) -> None:
        received = b""
        while len(received) < int(asked.headers["content-length"]):
            received += await stream.receive_some()
        heard.append(received)
        await stream.send_all(page('{"id": 7}'))

    async with raw_server({"/x": listen}) as server:
        said = await call(server, "PUT", {"name": "é" * 40_000})

    assert said == {"id": 7}
    assert json.loads(heard[0]) == {"name": "é" * 40_000}
    assert server.asked[0].headers["x-api-key"] == KEY
    assert server.asked[0].target == "/x"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            page(status="401 No"),
            CredentialsRefused,
            "it does not accept this key; look in Sonarr under Settings, General",
        ),
        (page("<p>", headers={"Content-Type": "text/html"}), SourceRefused, "with a web page, so it is not the API"),
        (page("{}", status="404 No"), SourceRefused, "there is no such thing, so it is not the API of Sonarr"),
        (page("{}", status="429 No"), SourceLimited, "it wants to be asked less"),
        (page("{}", status="500 No"), SourceUnavailable, "it is in trouble itself .HTTP 500.; look at its log"),
        (page("not json"), SourceRefused, "does not answer in JSON, so it is not Sonarr"),
        (page("[" * 100_000), SourceRefused, "does not answer in JSON"),
        (page('{"message": "no, hunter2hunter2"}', status="400 No"), Refusal, r"no, \*\*\*"),
        (page('[{"errorMessage": "a"}, {"errorMessage": "a"}, 3]', status="400 No"), Refusal, "^a$"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_everything_that_is_no_answer_has_its_words(
    answer: bytes, error: type[SourceError], words: str, method: str
) -> None:
    async with raw_server({"/x": answer}) as server:
        with pytest.raises(error, match=words):
            await call(server, method, {})


async def test_what_is_sent_goes_to_no_other_address() -> None:
    async with raw_server({"/x": redirect("/y")}) as server:
        with pytest.raises(SourceRefused, match="redirects; write the address that it redirects to"):
            await call(server, "POST", {})
        said = [asked.path for asked in server.asked]

    assert said == ["/x"]

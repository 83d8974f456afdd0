"""Apps that speak JSON behind a key: what is sent to them, and what is made of what they say."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.playground import open_playground
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, as_json
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.secrets import Secret
from cormorant.testing import in_line

KEY = "hunter2hunter2"


async def call(url: str, method: str = "GET", body: Any = None) -> Any:
    transport = Transport(written=[url])
    api = JsonApi(app="Sonarr", url=f"{url}/", key=Secret(KEY), transport=transport, offload=in_line)
    return await api.get("/x") if method == "GET" else await api.change(method, "/x", body)


@define
class App:
    """Answers everything alike, and remembers what it was asked."""

    reply: StandInResponse
    name: str = "app"
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        self.asked.append(asked)
        return self.reply


async def test_a_body_is_sent_whole_with_the_key_in_a_header() -> None:
    app = App(as_json({"id": 7}))
    async with open_playground(app) as playground:
        said = await call(playground.url_of("app"), "PUT", {"name": "é" * 40_000})

    [asked] = app.asked
    assert said == {"id": 7}
    assert (asked.method, asked.path, asked.json()) == ("PUT", "/x", {"name": "é" * 40_000})
    assert (asked.headers["x-api-key"], asked.headers["content-type"]) == (KEY, "application/json")


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (
            StandInResponse(status=401),
            CredentialsRefused,
            "it does not accept this key; look in Sonarr under Settings, General",
        ),
        (as_html("Welcome"), SourceRefused, "with a web page, so it is not the API"),
        (as_json({}, status=404), SourceRefused, "there is no such thing, so it is not the API of Sonarr"),
        (as_json({}, status=429), SourceLimited, "it wants to be asked less"),
        (as_json({}, status=500), SourceUnavailable, "it is in trouble itself .HTTP 500.; look at its log"),
        (StandInResponse(body=b"not json"), SourceRefused, "does not answer in JSON, so it is not Sonarr"),
        (StandInResponse(body=b"[" * 100_000), SourceRefused, "does not answer in JSON"),
        (as_json({"message": f"no, {KEY}"}, status=400), SourceRefused, r"no, \*\*\*"),
        (as_json([{"errorMessage": "a"}, {"errorMessage": "a"}, 3], status=400), SourceRefused, "^a$"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_everything_that_is_no_answer_has_its_words(
    reply: StandInResponse, error: type[SourceError], words: str, method: str
) -> None:
    async with open_playground(App(reply)) as playground:
        with pytest.raises(error, match=words):
            await call(playground.url_of("app"), method, {})


async def test_what_is_sent_goes_to_no_other_address() -> None:
    app = App(StandInResponse(status=307, headers={"Location": "/app/y"}))
    async with open_playground(app) as playground:
        with pytest.raises(SourceRefused, match="redirects; write the address that it redirects to"):
            await call(playground.url_of("app"), "POST", {})

    assert [asked.path for asked in app.asked] == ["/x"]

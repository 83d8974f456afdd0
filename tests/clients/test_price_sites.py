"""The client of price sources against raw bytes on loopback: any shape by its paths, nothing endless, no key in the open."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cormorant.clients.http.transport import Transport
from cormorant.clients.price_sites import ITEMS_MAX, PriceClient, PriceRecipe
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import PriceFieldSettings
from cormorant.rules.watch.prices import problems_of
from cormorant.testing import SimulatedClock, in_line
from tests.clients.raw_server import page, raw_server, redirect
from tests.environments import environment_of

KEY = Secret("hunter2hunter2")
REQUEST = SearchRequest(query="Morgan Dollar & co", params={"year": "1881"})
ONE = {
    "title": "1881 Morgan Dollar",
    "price": "1,234.50",
    "currency": "USD",
    "id": 7,
    "type": "Sold",
    "date": "2025-12-31",
}


async def asked(
    answer: bytes, recipe: PriceRecipe | None = None, *, key: Secret = KEY
) -> tuple[SearchPage | SourceError, str]:
    """What came of it, and what the server was sent."""
    async with raw_server({"*": answer}) as server:
        transport = Transport(written=[server.url])
        client = PriceClient(
            f"{server.url}/api",
            key,
            transport,
            environment_of(offload=in_line, clock=SimulatedClock()),
            recipe=recipe or PriceRecipe(),
        )
        try:
            came: SearchPage | SourceError = await client.search(REQUEST)
        except SourceError as error:
            came = error
    return came, str(server.asked[0])


async def found(document: Any, recipe: PriceRecipe | None = None) -> list[Any]:
    came, _ = await asked(page(json.dumps(document)), recipe)
    if isinstance(came, SourceError):
        raise came
    return list(came.results)


async def test_a_plain_list_is_read_without_any_setting() -> None:
    [result] = await found([ONE | {"url": "https://shop.test/7?passkey=a1b2c3"}])

    assert (result.title, result.guid, str(result.published)[:10]) == ("1881 Morgan Dollar", "7", "2025-12-31")
    assert result.attributes == {
        "price_cents": ("123450",),
        "price_currency": ("USD",),
        "price_type": ("sold",),
        "price_id": ("7",),
    }
    assert "a1b2c3" not in result.link + result.details


async def test_facts_are_found_by_their_paths() -> None:
    fields = PriceFieldSettings(price="offer.amount", title="names.0", url="", id="", date="", type="", currency="")
    item = {"names": ["Morgan Dollar"], "offer": {"amount": 5}, "url": "https://other.test"}

    [result] = await found({"data": {"lots": [item]}}, PriceRecipe(items="data.lots", fields=fields))

    assert (result.title, result.details, result.attributes) == ("Morgan Dollar", "", {"price_cents": ("500",)})


async def test_what_is_asked_is_encoded_and_the_key_is_where_it_is_wanted() -> None:
    in_query = PriceRecipe(query="q={title}&y={year}&m={mintmark}&token={key}")

    _, redact = await asked(page("[]"), in_query)
    _, header = await asked(page("[]"), PriceRecipe(query="q={title}"))
    _, nothing = await asked(page("[]"), key=Secret(""))

    assert "q=Morgan%20Dollar%20%26%20co&y=1881&m=&token=hunter2hunter2" in redact
    assert parse_qs(urlsplit("?q=Morgan%20Dollar%20%26%20co").query) == {"q": [REQUEST.query]}
    assert "Authorization" not in redact
    assert "Bearer hunter2hunter2" in header
    assert "Bearer" not in nothing


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (page("x", status="401 Unauthorized"), CredentialsRefused, "does not accept our key"),
        (page("x", status="429 Too Many Requests", headers={"Retry-After": "30"}), SourceLimited, "asked less"),
        (page("x", status="404 Not Found"), SourceRefused, "HTTP 404"),
        (page("x", status="503 Busy"), SourceUnavailable, "HTTP 503"),
        (page("<html>"), SourceUnavailable, "no JSON"),
        (page("[" * 100_000), SourceUnavailable, "no JSON"),
        (page("{}"), SourceRefused, "no list of prices.*check items"),
        (page('[{"title": "x"}, 5]'), SourceRefused, "none of its 2 items.*no price at 'price'"),
        (page('[{"title": "x", "price": "cheap"}]'), SourceRefused, '"cheap" is no price'),
        (page('[{"price": 5}]'), SourceRefused, "no title at 'title'"),
        (page('[{"title": "x", "price": 5, "currency": "coins"}]'), SourceRefused, '"COINS" is no currency'),
        (page('[{"title": "x", "price": "hunter2hunter2"}]'), SourceRefused, r"\*\*\*"),
        (redirect("http://10.0.0.1/"), SourceError, "10.0.0.1|private"),
    ],
)
async def test_everything_that_can_go_wrong_has_a_name(answer: bytes, error: type[SourceError], words: str) -> None:
    came, _ = await asked(answer)

    assert isinstance(came, error)
    assert KEY.reveal() not in str(came)
    with pytest.raises(error, match=words):
        raise came


async def test_an_empty_list_is_an_answer_and_bad_items_among_good_ones_are_left_out() -> None:
    assert await found([]) == []
    results = await found([ONE, {"title": "x"}, None, ONE | {"price": -1}])
    assert [result.attributes.get("price_cents") for result in results] == [("123450",), None, None, None]


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ('"price": "cheap"', '"cheap" is no price: give a number'),
        ('"price": -5', "-5 is no price: give 0 to"),
        ('"price": NaN', "is no price: give 0 to"),
        ('"price": 1e400', "is no price: give 0 to"),
        (f'"price": {"9" * 5_000}', "is no price: give 0 to"),
        ('"price": [5]', "is no price: give a number"),
        ('"price": "5 USD", "currency": "EUR"', "its price is in USD, and its currency says EUR"),
        ('"price": 5, "currency": "coins"', '"COINS" is no currency'),
        ('"amount": 5', "there is no price at 'price'"),
    ],
)
async def test_what_is_no_price_says_why_and_the_others_go_on(item: str, why: str) -> None:
    came, _ = await asked(page(f'[{{"title": "bad", {item}}}, {json.dumps(ONE)}]'))

    assert isinstance(came, SearchPage)
    [told] = problems_of(came.results)
    assert why in told
    assert [result.attributes["price_cents"] for result in came.results[1:]] == [("123450",)]


async def test_a_long_list_a_large_body_and_a_day_to_come_have_an_end() -> None:
    assert len(await found([ONE] * (ITEMS_MAX + 1))) == ITEMS_MAX
    came, _ = await asked(page(json.dumps([ONE]), length=5_000_001))
    assert isinstance(came, SourceUnavailable)
    [result] = await found([ONE | {"date": "2031-01-01", "title": "t" * 5_000}])
    assert (result.published, len(result.title)) == (None, 300)

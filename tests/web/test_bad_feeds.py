"""Feeds that are none, too large, too many, or lead astray: each says what is wrong in a sentence, and the others go on."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import pytest

from cormorant.rules.settings.watch import SubscriptionSettings
from tests.bounds import WAIT_S
from tests.clients.raw_server import page, raw_server, redirect
from tests.web.web_place import web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

KEY = "hunter2hunter2"
HERE = "/api/v1/subscriptions"
LASTING = "301 Moved Permanently"


def rss(*items: str) -> bytes:
    return page(f"<rss version='2.0'><channel>{''.join(f'<item>{item}</item>' for item in items)}</channel></rss>")


GOOD = {
    "good": (rss("<guid>1</guid>"), 1),
    "many": (rss(*(f"<guid>{number}</guid>" for number in range(5_000))), 1_000),
    "future and year one": (
        rss(
            "<guid>a</guid><pubDate>Fri, 01 Jan 2999 00:00:00 GMT</pubDate>",
            "<guid>b</guid><pubDate>0001-01-01T00:00:00Z</pubDate>",
        ),
        2,
    ),
    "the same guids": (rss(*["<guid>a</guid><title>x</title>"] * 5, "<guid>a</guid><title>y</title>"), 2),
    "strange links": (
        rss("<guid>a</guid><link>http://169.254.169.254/</link>", "<guid>b</guid><link>file:///x</link>"),
        2,
    ),
}
BAD = {
    "html": (page("<!DOCTYPE html><html><body>Log in</body></html>"), "a web page came instead of a feed; write the"),
    "entities": (
        page("<!DOCTYPE rss [<!ENTITY a 'x'>]><rss>&a;</rss>"),
        "declares XML entities, which may be an attack",
    ),
    "packed": (
        page(gzip.compress(b"<rss>" + b" " * 11_000_000, 1), headers={"Content-Encoding": "gzip"}),
        "has more than 10,000,000 bytes",
    ),
    "a gigabyte": (page(b"<rss>", length=1_000_000_000), "has more than 10,000,000 bytes"),
    "in a circle": (redirect("/in%20a%20circle"), "redirects"),
    "into the house": (redirect("http://10.0.0.1/", status=LASTING), "10.0.0.1 is an address of a private network"),
    "into the cloud": (redirect("http://169.254.169.254/"), "169.254.169.254 is an address of a private network"),
    "to a file": (redirect("file:///etc/passwd"), "redirects to what is neither http nor https"),
    "with our key": (redirect(f"http://other.example/?passkey={KEY}"), "with our key, which is not sent to others"),
    "gone": (page(status="410 Gone"), "is gone for good (HTTP 410); remove it, or write its new address"),
    "not ours": (page(status="401 Unauthorized"), "(HTTP 401); check the key or password in its address"),
    "json": (page('{"a": 1}'), "JSON came that is no JSON Feed; write the address of an RSS, Atom or JSON feed"),
    "nothing": (page(), "the feed is empty; if it stays so, check its address"),
}


async def test_what_is_no_feed_is_told_in_a_sentence_without_its_key_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    routes = {f"/{name.replace(' ', '%20')}": answer for name, (answer, _) in (BAD | GOOD).items()}
    said: dict[str, dict[str, object]] = {}
    with web_place(tmp_path) as place:
        options = SubscriptionSettings(domain_request_delay_s=0.0, check_timeout_s=20.0)
        async with raw_server(routes) as server, place.served(subscriptions=options) as (service, client):
            for name in BAD | GOOD:
                url = f"{server.url}/{name.replace(' ', '%20')}?passkey={KEY}"
                body = {"name": name, "url": url, "first_check": "take", "auto_import": False}
                made = (await client.post(HERE, json=body)).json()
                said[name] = (await client.post(f"{HERE}/{made['id']}/check", timeout=WAIT_S)).json()
            listed = await client.get(HERE, params={"limit": 100})
            kept = {each.name: each.url for each in await service.feeds.page()}

    assert {name: said[name]["items_found"] for name in GOOD} == {name: count for name, (_, count) in GOOD.items()}
    assert {name: said[name] for name, (_, words) in BAD.items() if words not in str(said[name]["error"])} == {}
    assert {said[name]["status"] for name in BAD} == {"failed"}
    assert all(url.startswith(server.url) for url in kept.values())
    assert KEY not in json.dumps(said) + listed.text + caplog.text

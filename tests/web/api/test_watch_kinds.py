"""What the API offers for all four kinds of watches: add, list, pause, resume, check and remove."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from attrs import frozen

from cormorant.rules.settings.watch import FeedSettings, PriceSettings, SavedSettings
from cormorant.rules.watch.feeds import FetchedFeed, Subscription
from cormorant.testing import ScriptedSource, named_sources
from tests.web.web_place import web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")


@frozen
class Kind:
    """One kind at the API."""

    path: str
    body: dict[str, Any]
    what: str
    command: str
    listed: str = ""
    """Where the list is in the answer; empty: the answer is the list."""
    shown: str = ""
    """Where the watch is in the answer of a verb."""
    has_file: bool = True

    def __str__(self) -> str:
        return self.path


KINDS: Final = (
    Kind("watchlist", {"id": "x1", "name": "one"}, "artist", "watchlist", has_file=False),
    Kind("saved-searches", {"name": "one", "query": "words"}, "saved search", "saved"),
    Kind(
        "subscriptions",
        {"name": "one", "url": "http://x.test/rss"},
        "subscription",
        "subscriptions",
        listed="subscriptions",
    ),
    Kind("prices", {"name": "one", "title": "Morgan"}, "price", "prices", shown="price"),
)


async def _empty_feed(_subscription: Subscription) -> FetchedFeed:
    await trio.lowlevel.checkpoint()
    return FetchedFeed()


SETTINGS: Final[dict[str, Any]] = {
    "sources": {
        "shop": attrs.evolve(named_sources("shop", spacing_s=0.0, pace_s=0.0)["shop"], kind="prices"),
        **named_sources("red", spacing_s=0.0, pace_s=0.0),
    },
    "saved": {"written": SavedSettings(query="words")},
    "feeds": {"written": FeedSettings(url="http://y.test/rss")},
    "prices": {"written": PriceSettings(title="Peace Dollar")},
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_one_is_added_once_listed_paused_resumed_checked_and_removed(tmp_path: Path, kind: Kind) -> None:
    here = f"/api/v1/{kind.path}"
    with web_place(tmp_path, red=ScriptedSource(), shop=ScriptedSource()) as place:
        async with place.served(given={"feed": _empty_feed}, **SETTINGS) as (_, client):
            added, again = [await client.post(here, json=kind.body) for _ in range(2)]
            paused = await client.post(f"{here}/one/pause")
            listed = (await client.get(here)).json()
            resumed = await client.post(f"{here}/one/resume")
            checked = await client.post(f"{here}/one/check")
            removed = await client.delete(f"{here}/one")
            unknown = [
                await client.post(f"{here}/one/pause"),
                await client.post(f"{here}/one/resume"),
                await client.post(f"{here}/one/check"),
                await client.delete(f"{here}/one"),
            ]
            odd = await client.delete(f"{here}/a%00b")
            written = await client.delete(f"{here}/written")

    assert [each.status_code for each in (added, again, paused, resumed, checked, removed)] == [
        *(201, 409, 200, 200, 200, 204)
    ]
    assert again.json()["detail"].endswith(f"{kind.what} 'one' already; choose another name, or remove it first")
    found = [each for each in (listed[kind.listed] if kind.listed else listed) if each["name"] == "one"]
    states = [(each.json()[kind.shown] if kind.shown else each.json())["is_paused"] for each in (paused, resumed)]
    assert ([each["is_paused"] for each in found], states) == ([True], [True, False])
    assert {(each.status_code, each.json()["detail"]) for each in unknown} == {
        (404, f"there is no {kind.what} 'one'; `cormorant {kind.command} list` shows them")
    }
    assert (odd.status_code, written.status_code) == (400, 409 if kind.has_file else 404)

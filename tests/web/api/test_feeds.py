"""The API of subscriptions as programs use it, with scripted feeds; and the metrics that checks move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.watch import FeedSettings, SubscriptionSettings, TargetSettings
from cormorant.rules.watch.feeds import FeedEntryItem, FetchedFeed, Subscription
from cormorant.scripted import ScriptedTarget
from tests.web.web_place import web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")

KEY = "hunter2hunter2"
URL = f"http://me:{KEY}@x.test/rss?passkey={KEY}"
HERE = "/api/v1/subscriptions"


async def feeds(subscription: Subscription) -> FetchedFeed:
    """Two items; a feed that is called bad fails, and tells its key."""
    await trio.lowlevel.checkpoint()
    if subscription.name == "bad":
        raise SourceUnavailable(f"no answer from {subscription.url}")
    return FetchedFeed(
        items=tuple(FeedEntryItem(key=title, title=title, link="http://x.test/1") for title in ("one", "two"))
    )


def given() -> dict[str, Any]:
    return {"feed": feeds, "targets": {"box": ScriptedTarget()}}


SETTINGS: dict[str, Any] = {
    "targets": {"box": TargetSettings(url="http://box.test")},
    "feeds": {"written": FeedSettings(url=URL)},
    "subscriptions": SubscriptionSettings(domain_request_delay_s=0.0),
}


async def test_a_feed_is_subscribed_to_checked_paused_rescheduled_and_removed_and_its_key_is_never_told(
    tmp_path: Path,
) -> None:
    with web_place(tmp_path) as place:
        async with place.served(given=given(), **SETTINGS) as (_, client):
            body = {"name": "good", "url": URL, "cron": "0 9 * * MON", "zone": "Europe/Berlin", "hand_to": ["box"]}
            answers = [
                await client.post(HERE, json=body),
                await client.post(HERE, json=body),
                await client.post(f"{HERE}/good/check"),
                await client.get(f"{HERE}/good"),
                await client.post(f"{HERE}/good/pause"),
                await client.post(f"{HERE}/good/resume"),
                await client.post(f"{HERE}/good/reschedule", json={"at": "2100-01-02T03:04:05+01:00"}),
                await client.post(f"{HERE}/good/reschedule", json={}),
                await client.delete(f"{HERE}/written"),
                await client.delete(f"{HERE}/good"),
                await client.get(f"{HERE}/good"),
                await client.get(f"{HERE}/a%00b"),
            ]

    codes = [answer.status_code for answer in answers]
    assert codes == [201, 409, 200, 200, 200, 200, 200, 200, 409, 204, 404, 400]
    said: list[Any] = [answer.json() if answer.content else None for answer in answers]
    assert (said[2]["status"], said[2]["items_found"], said[2]["new_items"]) == ("success", 2, 0)
    assert [check["status"] for check in said[3]["checks"]][:1] == ["success"]
    assert (said[4]["is_paused"], said[4]["paused_because"], said[5]["is_paused"]) == (True, "paused by hand", False)
    assert said[6]["next_check_at"] == "2100-01-02T02:04:05Z"
    assert said[7]["next_check_at"] < "2100"
    assert said[0]["url"] == "http://***@x.test/rss?passkey=***"
    assert not [answer.url for answer in answers if KEY in answer.text]


async def test_pages_have_a_cursor_and_a_failed_check_is_told_without_its_key_and_counted(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served(given=given(), **SETTINGS | {"feeds": {}}) as (_, client):
            for name in ("a", "bad", "c"):
                await client.post(HERE, json={"name": name, "url": f"http://{name}.test/rss?passkey={KEY}"})
            first = (await client.get(HERE, params={"limit": 2})).json()
            second = (await client.get(HERE, params={"limit": 2, "after": first["next_after"]})).json()
            await client.post(f"{HERE}/a/check")
            failed = (await client.post(f"{HERE}/2/check")).json()
            shown = await client.get(f"{HERE}/bad")
            listed = await client.get(HERE)
            metrics = (await client.get("/metrics")).text.splitlines()
            unknown = await client.post(f"{HERE}/nobody/check")

    assert [each["name"] for each in first["subscriptions"]] == ["a", "bad"]
    assert ([each["name"] for each in second["subscriptions"]], second["next_after"]) == (["c"], None)
    assert (failed["status"], failed["error"]) == ("failed", "no answer from http://bad.test/rss?passkey=***")
    assert (shown.json()["subscription"]["failures"] >= 1, KEY in shown.text) == (True, False)
    last = {name: listed.json()["last_checks"][name] for name in ("1", "2")}
    assert [(each["status"], each["items_found"]) for each in last.values()] == [("success", 2), ("failed", 0)]
    assert KEY not in listed.text
    assert "active_subscription_checks 0.0" in metrics
    assert "scheduled_jobs_total 9.0" in metrics
    counted = dict(line.rsplit(" ", 1) for line in metrics if line.startswith("subscription_check"))
    success, failures = (float(counted[f'subscription_checks_total{{status="{s}"}}']) for s in ("success", "failed"))
    assert (success >= 1, failures >= 1) == (True, True)
    assert float(counted["subscription_check_duration_seconds_count"]) == success + failures
    assert unknown.status_code == 404


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": " "}, "name: give a single line"),
    ({"name": "written"}, "name: the settings file has [feeds.written] already"),
    ({"url": f"ftp://x.test/{KEY}"}, "url: it is no address of http or https"),
    ({"every_s": 59}, "every: 59s is out of range; allowed: 1m to 365d"),
    ({"every_s": 60, "cron": "* * * * *"}, "cron: give either an interval or a cron text"),
    ({"cron": "0 9 * *"}, "cron: '0 9 * *' has not five fields"),
    ({"cron": "0 9 * * *", "zone": "Mars/Base"}, "zone: 'Mars/Base' is no time zone"),
    ({"accept": ["("]}, 'accept: "(" is no pattern'),
    ({"hand_to": ["bin"]}, "hand_to: there is no target 'bin'; write [targets.bin], or one of: box"),
    ({"first_check": "maybe"}, 'first_check: "maybe" is not one of the choices; allowed: skip, take'),
    ({"interval": 5}, "interval: there is no such field"),
]


async def test_what_cannot_be_is_told_with_its_part_and_the_remedy(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served(given=given(), **SETTINGS) as (service, client):
            answers = [await client.post(HERE, json={"name": "x", "url": URL} | wrong) for wrong, _ in BAD]
            late = await client.post(f"{HERE}/written/reschedule", json={"at": "2026-01-01T00:00:00"})
            with pytest.raises(BadRequest, match='^feed "odd": name: give a single line'):
                await service.feeds.add_all([("x", URL, ()), ("odd ", URL, ())], FeedSettings(every_s=3_600.0))
            names = await service.feeds.names()

    assert [answer.status_code for answer in answers] == [400] * len(BAD)
    assert [
        answer.json()["detail"]
        for answer, (_, told) in zip(answers, BAD, strict=True)
        if told not in answer.text and not answer.json()["detail"].startswith(told)
    ] == []
    assert not [answer for answer in answers if KEY in answer.text]
    assert (late.status_code, late.json()["detail"]) == (400, "at: it has no zone; write it like 2026-11-16T12:00:00Z")
    assert {name for name, _ in names} <= {"written"}

"""What runs at its time, under the seed's paths and with its keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.settings.watch import FeedSettings
from cormorant.rules.watch.feeds import FetchedFeed, Subscription
from tests.web.web_place import web_place

OWN = [
    "watchlist_ticker",
    "subscription_ticker",
    "saved_search_ticker",
    "price_ticker",
    "reclaim_sweeper",
    "maintenance",
]
pytestmark = pytest.mark.slow("real sockets")


@pytest.mark.parametrize("base", ["/api/v1/scheduler", "/scheduler"])
async def test_the_scheduler_says_what_runs_when_and_pauses_and_resumes(
    tmp_path: Path, base: str, socket_clock: MockClock
) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (service, client):
            await trio.sleep(5)
            began = service.clock.now()
            listed = (await client.get(f"{base}/jobs")).json()["jobs"]
            before = (await client.get(f"{base}/status")).json()
            paused = (await client.post(f"{base}/pause")).json()
            during = (await client.get(f"{base}/status")).json()
            resumed = (await client.post(f"{base}/resume")).json()
            after = (await client.get(f"{base}/status")).json()
            stranger = await client.get(f"{base}/status", headers={"X-Api-Key": ""})

    assert [(job["id"], job["name"], job["pending"]) for job in listed] == [
        (name, name.replace("_", " "), name not in {"reclaim_sweeper", "maintenance"})
        for name in OWN  # nothing else is due
    ]
    assert [job["next_run"] is None for job in listed] == [job["pending"] for job in listed]
    next_run = datetime.fromisoformat(before.pop("next_run"))
    assert timedelta(0) <= next_run - began < timedelta(minutes=2)
    assert before == {"running": True, "total_jobs": 6, "active_checks": 0, "pending_jobs": 4, "concurrent_limit": 5}
    assert (paused, during["running"]) == ({"status": "paused"}, False)
    assert (resumed, after["running"]) == ({"status": "resumed"}, True)
    assert stranger.status_code == 401


async def test_a_subscription_that_there_is_not_cannot_be_rescheduled(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.post("/api/v1/scheduler/subscriptions/7/reschedule")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith("there is no subscription 7; ")


async def test_subscriptions_are_among_what_runs_page_by_page_and_are_rescheduled(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=3)
    with web_place(tmp_path) as place:
        async with place.served(given={"feed": empty_feed}) as (service, client):
            await client.post("/scheduler/pause")
            options = {name: FeedSettings(url=f"http://x.test/{name}", every_s=3_600.0) for name in "abc"}
            made = [await service.feeds.add(name, given) for name, given in options.items()]
            for each in made:
                await service.feeds.reschedule(each.id, later)
            await service.feeds.pause("b")
            first = (await client.get("/scheduler/jobs", params={"limit": 2})).json()
            second = (await client.get("/scheduler/jobs", params={"limit": 2, "after": first["next_after"]})).json()
            status = (await client.get("/scheduler/status")).json()
            done = await client.post(f"/scheduler/subscriptions/{made[2].id}/reschedule")
            moved = await service.feeds.find("c")
            statistics = (await client.get("/scheduler/statistics")).json()

    assert [job["id"] for job in first["jobs"]] == [*OWN, "subscription_1", "subscription_2"]
    assert [(job["name"], job["next_run"] is None, job["pending"]) for job in first["jobs"][len(OWN) :]] == [
        ("Check a", False, False),
        ("Check b", True, True),
    ]
    assert ([job["id"] for job in second["jobs"]], second["next_after"]) == (["subscription_3"], None)
    assert (status["total_jobs"], status["pending_jobs"], status["active_checks"]) == (9, 1, 0)
    assert (done.json(), moved.next_attempt_at < datetime.now(UTC)) == ({"status": "rescheduled"}, True)
    assert (statistics["total_checks"], statistics["success_rate"]) == (0, 0)


async def empty_feed(_subscription: Subscription) -> FetchedFeed:
    await trio.lowlevel.checkpoint()
    return FetchedFeed()

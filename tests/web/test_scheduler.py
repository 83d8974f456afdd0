"""What runs at its time, under the seed's paths and with its keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.web.web_place import web_place

pytestmark = pytest.mark.slow("real sockets, on the real clock")


@pytest.mark.parametrize("base", ["/api/v1/scheduler", "/scheduler"])
async def test_the_scheduler_says_what_runs_when_and_pauses_and_resumes(tmp_path: Path, base: str) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            listed = (await client.get(f"{base}/jobs")).json()["jobs"]
            before = (await client.get(f"{base}/status")).json()
            paused = (await client.post(f"{base}/pause")).json()
            during = (await client.get(f"{base}/status")).json()
            resumed = (await client.post(f"{base}/resume")).json()
            after = (await client.get(f"{base}/status")).json()
            stranger = await client.get(f"{base}/status", headers={"X-Api-Key": ""})

    assert [(job["id"], job["name"], job["pending"]) for job in listed] == [
        ("reclaim_sweeper", "reclaim sweeper", False),
        ("maintenance", "maintenance", False),
    ]
    next_run = datetime.fromisoformat(before.pop("next_run"))
    assert timedelta(0) < next_run - datetime.now(UTC) < timedelta(minutes=2)
    assert before == {"running": True, "total_jobs": 2, "active_checks": 0, "pending_jobs": 0, "concurrent_limit": 20}
    assert (paused, during["running"]) == ({"status": "paused"}, False)
    assert (resumed, after["running"]) == ({"status": "resumed"}, True)
    assert stranger.status_code == 401


async def test_a_subscription_that_there_is_not_cannot_be_rescheduled(tmp_path: Path) -> None:
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            answer = await client.post("/api/v1/scheduler/subscriptions/7/reschedule")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == "there is no subscription 7"

"""What Prometheus is given: the seeds' names, sources with their quotas, and nothing to those without a key."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from cormorant.rules.errors import CormorantError
from cormorant.rules.events import ChildStarted, EventsLost, ItemFailed, Stamped
from cormorant.rules.jobs.events import About, JobCompleted, JobFailed, JobRetried, JobStarted
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.testing import BROKEN, START, ScriptedSource
from cormorant.web.metrics import METRICS, Metrics, MetricValue
from tests.web.web_place import KEY, web_place

ABOUT = About(job_id=1, kind="sync", correlation_id=None)


def read(text: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


def told(*events: object) -> dict[str, float]:
    metrics = Metrics()
    for event in events:
        metrics(Stamped(1, START, event))  # type: ignore[arg-type]  # events, by construction
    return read(metrics.text().decode())


def test_jobs_are_counted_by_kind_and_by_how_they_ended() -> None:
    found = told(
        JobStarted(**ABOUT, attempt=1, waited_s=0.02),
        JobCompleted(**ABOUT, took_s=2.0, runs_again=False),
        JobRetried(**ABOUT, attempts=1, retry_in_s=5.0, error="x"),
        JobFailed(**ABOUT, attempts=2, error="x"),
        ItemFailed(kind="artist", item="A1", error="KeyError: 'x'", traceback=""),
        EventsLost(count=7),
        ChildStarted(supervisor="root", child="web", restarts=1),
    )

    assert found["dequeue_latency_histogram_count"] == 1
    assert found["job_processing_duration_sum sync"] == 2.0
    assert (found["job_failures_total sync retry"], found["job_failures_total sync fail"]) == (1, 1)
    assert found["cormorant_item_failures_total artist"] == 1
    assert found["cormorant_events_lost_total"] == 7


def test_two_services_in_one_process_count_apart_and_what_is_gone_is_not_shown() -> None:
    one, other = Metrics(), Metrics()
    one.set_gauges([MetricValue(metric="cormorant_source_waiting", value=3, labels=("red",))])

    assert "cormorant_source_waiting red" not in read(other.text().decode())
    one.set_gauges([])
    assert "cormorant_source_waiting red" not in read(one.text().decode())


@pytest.mark.slow("counts thousands")
def test_more_names_than_there_is_room_for_are_counted_together() -> None:
    metrics = Metrics()
    for number in range(6_000):
        metrics(Stamped(1, START, JobFailed(job_id=1, kind=f"k{number}", correlation_id=None, attempts=1, error="")))

    assert read(metrics.text().decode())["job_failures_total other other"] > 900


@pytest.mark.slow("real sockets, on the real clock")
async def test_sources_are_shown_with_requests_waits_and_what_is_left_of_their_quota(tmp_path: Path) -> None:
    with web_place(tmp_path, red=ScriptedSource(["a", "b"], ["c"]), blue=ScriptedSource(BROKEN)) as place:
        async with place.served({"per_day": 5, "per_hour": 3}) as (service, client):
            for number in range(2):
                async with await service.search(f"birds {number}", sources=["red", "blue"]) as search:
                    try:
                        await search.wait()
                    except CormorantError:
                        pytest.fail("red answers")
            answer = await client.get("/metrics", headers={"X-Api-Key": "", "Authorization": f"Bearer {KEY}"})
            place.gateway.go_away()
            during_outage = await client.get("/metrics")
            place.gateway.come_back()

    found = read(answer.text)
    assert answer.headers["content-type"].startswith("text/plain")
    assert found["cormorant_source_requests_total query found red"] == 2
    assert found["cormorant_source_wait_seconds_count red"] == 2
    assert (
        found["cormorant_source_quota_left query red day"],
        found["cormorant_source_quota_left query red hour"],
    ) == (3, 1)
    assert (found["breaker_state_gauge red"], found["cormorant_source_cooldown_seconds red"]) == (0, 0)
    assert (found["queue_depth jobs"], found["queue_depth searches"]) == (0, 0)
    assert (found["scheduled_jobs_total"], found["subscription_checks_total success"]) == (6, 0)
    assert (found["cormorant_child_restarts web"], found["cormorant_web_connections"]) == (0, 1)
    families = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {metric.name.removesuffix("_total") for metric in METRICS} <= {
        name.removesuffix("_total") for name in families
    }
    assert "queue_depth jobs" not in read(during_outage.text)
    assert "breaker_state_gauge red" in read(during_outage.text)


@pytest.mark.slow("real sockets, on the real clock")
@pytest.mark.parametrize(("is_open", "status"), [(False, 401), (True, 200)])
async def test_metrics_need_the_key_unless_they_are_set_open(tmp_path: Path, is_open: bool, status: int) -> None:  # noqa: FBT001 - a case of the test
    web = WebSettings(listen="127.0.0.1:0", key=Secret(KEY), metrics_open=is_open)
    with web_place(tmp_path) as place:
        async with place.served(web=web) as (_, client):
            answer = await client.get("/metrics", headers={"X-Api-Key": ""})

    assert answer.status_code == status


@pytest.mark.slow("real sockets")
async def test_every_2_s_is_looked_how_late_the_event_loop_is(tmp_path: Path, socket_clock: MockClock) -> None:
    counts, found = [], dict[str, float]()
    with web_place(tmp_path) as place:
        async with place.served() as (_, client):
            for _ in range(2):
                found = read((await client.get("/metrics")).text)
                counts.append((trio.current_time(), found["cormorant_event_loop_lag_seconds_count"]))
                await trio.sleep(200)

    (began_at, first), (ended_at, last) = counts
    assert last - first == pytest.approx(
        (ended_at - began_at) / 2, abs=2
    )  # a request takes some beats of the mock clock
    assert found["cormorant_event_loop_lag_seconds_sum"] == pytest.approx(0.0, abs=1e-6)

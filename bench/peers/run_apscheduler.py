"""What does a due job cost in APScheduler's SQLAlchemy store? `run_apscheduler.py prepare|work SETTINGS`.

As its scheduler does it on every wake: ask for the due jobs, and write each back with its next time. Nothing is run.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import apscheduler  # type: ignore[import-not-found] # installed by the bench, in an environment of its own
from apscheduler.job import Job  # type: ignore[import-not-found] # as above
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-not-found] # as above
from apscheduler.schedulers.blocking import BlockingScheduler  # type: ignore[import-not-found] # as above
from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-not-found] # as above


def noop(number: int) -> None:
    """What would be run."""


def open_store(settings: dict[str, Any]) -> tuple[Any, Any]:
    """A scheduler that is not started, and its store: nothing is run."""
    scheduler = BlockingScheduler(timezone=UTC)
    store = SQLAlchemyJobStore(url=f"sqlite:///{settings['file']}")
    store.start(scheduler, "default")
    return scheduler, store


def prepare(settings: dict[str, Any]) -> None:
    """Some are due, the others in a day. Written in one transaction, by its own serialisation."""
    scheduler, store = open_store(settings)
    now = datetime.now(UTC)
    rows = []
    for number in range(settings["rows"]):
        at = now - timedelta(hours=1) if number < settings["due"] else now + timedelta(days=1)
        job = Job(
            scheduler,
            id=str(number),
            func=noop,
            trigger=IntervalTrigger(hours=1, timezone=UTC),
            args=(number,),
            kwargs={},
            executor="default",
            name="noop",
            misfire_grace_time=300,
            coalesce=True,
            max_instances=1,
            next_run_time=at,
        )
        state = pickle.dumps(job.__getstate__(), store.pickle_protocol)
        rows.append({"id": job.id, "next_run_time": at.timestamp(), "job_state": state})
    with store.engine.begin() as connection:
        connection.execute(store.jobs_t.insert(), rows)


def work(settings: dict[str, Any]) -> dict[str, Any]:
    _, store = open_store(settings)
    now = datetime.now(UTC)
    began, began_cpu_s = time.perf_counter(), time.process_time()
    due = store.get_due_jobs(now)
    for job in due:
        job.next_run_time = job.trigger.get_next_fire_time(now, now)
        store.update_job(job)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu_s
    if len(due) != settings["due"]:
        sys.exit(f"{len(due)} of {settings['due']} jobs were due")
    return {"seconds": seconds, "cpu_s": cpu_s, "version": f"APScheduler {apscheduler.__version__}"}


if __name__ == "__main__":
    told = json.loads(sys.argv[2])
    if sys.argv[1] == "prepare":
        prepare(told)
    else:
        print(json.dumps(work(told)))

"""How fast does huey work off a backlog of no-op tasks on SQLite with fsync? `run_huey.py prepare|work SETTINGS`.

A worker deletes a task in a transaction of its own before it runs it, and a task that returns nothing stores no result:
when the last task has run, everything is durable. That is one COMMIT a job; a task that was begun is lost in a crash.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import sys
import time
from typing import Any

import huey as package  # type: ignore[import-not-found] # installed by the bench, in an environment of its own
from huey.consumer import Consumer  # type: ignore[import-not-found] # as above

SQLITE_FULL = 2

# The consumer forks its workers, so one counter serves threads and processes.
context = multiprocessing.get_context("fork")
left = context.Value("q", 0)
all_done = context.Event()


def noop(number: int) -> None:
    with left.get_lock():
        left.value -= 1
        if not left.value:
            all_done.set()


def cpu_s() -> float:
    """Of this process and of the workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def prepare(queue: Any, task: Any, jobs: int) -> None:
    """Enqueue by huey's own serialisation, but in one transaction: how long this takes is not the question."""
    rows = [(queue.name, queue.serialize_task(task.s(number)), 0) for number in range(jobs)]
    with queue.storage.db(commit=True) as cursor:
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)


def work(queue: Any, settings: dict[str, Any]) -> dict[str, Any]:
    left.value = settings["jobs"]
    consumer = Consumer(
        queue,
        workers=settings["workers"],
        worker_type=settings["worker_type"],
        periodic=False,
        initial_delay=0.001,
        check_worker_health=False,
    )
    began, began_cpu_s = time.perf_counter(), cpu_s()
    consumer.start()
    finished = all_done.wait(settings["limit_s"])
    seconds = time.perf_counter() - began
    remaining = queue.pending_count()
    consumer.stop(graceful=True)
    if not finished or remaining:
        sys.exit(f"{remaining} tasks were left after {seconds:.0f} s")
    if queue.storage.sql("pragma synchronous", results=True)[0][0] != SQLITE_FULL:
        sys.exit("the database does not wait for the disk")
    version = f"huey {package.__version__}, SQLite {sqlite3.sqlite_version}"
    return {"seconds": seconds, "cpu_s": cpu_s() - began_cpu_s, "version": version}


def main(step: str, settings: dict[str, Any]) -> None:
    queue = package.SqliteHuey(filename=settings["file"], fsync=True)
    task = queue.task()(noop)
    if step == "prepare":
        prepare(queue, task, settings["jobs"])
    else:
        print(json.dumps(work(queue, settings)))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))

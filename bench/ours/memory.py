"""How much memory do claimed jobs take in the queue? `-m bench.ours.memory measure SETTINGS`."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from actors.jobs.queue import JobQueue
from storage.jobs.jobs import ClaimedJob


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def claimed_job(number: int, *, now: int) -> ClaimedJob:
    """No two share a text: so they come from a database, apart from the kind's name, of which there are few."""
    return ClaimedJob(
        id=number,
        token=1,
        kind="sync_playlist",
        payload=json.dumps({"playlist": f"37i9dQZF1DX{number:011}", "page": number}),
        priority=5,
        attempts=0,
        max_attempts=10,
        correlation_id=f"{number:032x}",
        last_errors=None,
        run_at_us=now + number,
    )


def main(jobs: int) -> None:
    queue: JobQueue[ClaimedJob] = JobQueue(max_in_memory=jobs, warn_depth=jobs + 1)
    now = 18 * 10**14
    queue.put_claimed(claimed_job(1_000_000_000, now=now), priority=5, now=0.0)
    queue.purge()
    gc.collect()
    before = rss_bytes()
    for number in range(1_000_000, 1_000_000 + jobs):
        # Every other one is ready now, the rest later: both heaps are used.
        if number % 2:
            queue.put_claimed(claimed_job(number, now=now), priority=5, now=float(number))
        else:
            queue.put(claimed_job(number, now=now), label="normal", now=float(number), delay_s=60.0 + number)
    gc.collect()
    assert len(queue) == jobs
    print(json.dumps({"mb": (rss_bytes() - before) / 1e6}))


if __name__ == "__main__":
    main(json.loads(sys.argv[2])["jobs"])

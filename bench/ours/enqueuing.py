"""What does another program need to enqueue? A connection, `storage.jobs.jobs.enqueue` and COMMIT. `-m bench.ours.enqueuing`."""

from __future__ import annotations

import json
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, create_engine, make_url

from bench.ours.seeding import KIND
from storage.jobs.jobs import NewJob, enqueue


def enqueue_one(connection: Connection, number: int) -> tuple[float, float]:
    """When it was begun, and when COMMIT had returned."""
    called_at = time.monotonic()
    now = datetime.now(UTC)
    job = NewJob(
        uid=uuid.uuid4().hex,
        kind=KIND,
        payload=json.dumps({"n": number}),
        priority=5,
        run_at=now,
        max_attempts=10,
    )
    enqueue(connection, job, now=now)
    connection.commit()
    return called_at, time.monotonic()


def main(chosen: dict[str, Any]) -> None:
    calls = []
    engine = create_engine(make_url(chosen["url"]).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        for number in range(chosen["samples"]):
            calls.append((number, *enqueue_one(connection, number)))
            time.sleep(chosen["spacing_s"])
    print(json.dumps(calls))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

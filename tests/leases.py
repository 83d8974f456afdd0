"""A worker and its lease, for tests of what claims rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import trio
from sqlalchemy import Connection

from actors.jobs.working_set import OwnerLease
from storage import Database
from storage.jobs import workers

WORKER = "a worker"


def register(connection: Connection, worker: str = WORKER) -> None:
    """Make a worker known, which claims nothing before."""
    workers.register(connection, worker, kinds=(), version="0", now=datetime(2026, 1, 1, tzinfo=UTC))


async def held_lease(database: Database, worker: str = WORKER) -> OwnerLease:
    """The lease of a worker, which is held for ever."""
    await database.run(register, worker)
    lease = OwnerLease(owner=worker)
    lease.confirm(trio.current_time(), doubtful_after_s=math.inf)
    return lease

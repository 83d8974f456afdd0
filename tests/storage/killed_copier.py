"""Copies a database and stays half-way until it is killed. Run as `python -m tests.storage.killed_copier FROM TO TO`."""

from __future__ import annotations

import os
import sys
import threading
from datetime import UTC, datetime

from storage.engine.copy_database import copy_all

HALF_WAY = "jobs"


def stay(table: str, _done: int, _total: int) -> None:
    """Say so when the rows of a table are written, and go no further."""
    if table == HALF_WAY:
        os.write(1, b"half-way\n")  # whole, also when two speak
        threading.Event().wait()


def copy(target: str) -> None:
    """Copy what is there into one target."""
    copy_all(sys.argv[1], target, now=lambda: datetime.now(UTC), tell=stay)


if __name__ == "__main__":
    for target in sys.argv[2:]:
        threading.Thread(target=copy, args=[target]).start()

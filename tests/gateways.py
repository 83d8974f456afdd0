"""A database that other processes may use, without threads."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from cormorant.rules.ports import ignore
from cormorant.testing import memory_gateway
from storage.database import Database, Mode, StorageOptions


@contextmanager
def shared_gateway() -> Iterator[Database]:
    """A SQLite file, so that leases are kept and dead processes are looked for. A test plays the other processes."""
    with tempfile.TemporaryDirectory() as folder:
        options = StorageOptions(url=f"sqlite:///{folder}/shared.db")
        database = Database(options, mode=Mode.INLINE, emit=ignore, chance=random.Random(0))
        try:
            yield database
        finally:
            database.dispose()


@contextmanager
def gateway(*, is_shared: bool) -> Iterator[Database]:
    """A database in memory, or one that is shared."""
    with shared_gateway() if is_shared else memory_gateway() as database:
        yield database

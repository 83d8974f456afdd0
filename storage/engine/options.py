"""StorageOptions and Mode."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from attrs import field, frozen
from attrs.validators import ge, gt

from cormorant.rules.addresses import shown_address
from storage.engine.data_files import FILE_MODE


class Mode(Enum):
    """Where functions run."""

    THREADS = "threads"
    """In worker threads: the loop never waits for the database."""
    INLINE = "inline"
    """In the caller's task, without any thread: for tests and the simulator, which must be deterministic."""


@frozen(kw_only=True)
class StorageOptions:
    """Which database, and the limits of talking to it."""

    url: str = field(repr=shown_address)
    """SQLAlchemy's form: sqlite:///path, sqlite:// (in memory) or postgresql://user@host/name."""
    connections: int = field(default=2, validator=ge(1))
    """Connections to PostgreSQL. SQLite has one writer and one reader."""
    group_max: int = field(default=512, validator=ge(1))
    """Calls that share one transaction on SQLite at most."""
    queue_max: int = field(default=10_000, validator=ge(1))
    """Calls that may be under way. Whoever comes then waits outside."""
    statement_timeout_s: float = field(default=15.0, validator=gt(0))
    lock_timeout_s: float = field(default=5.0, validator=gt(0))
    busy_timeout_s: float = field(default=5.0, validator=gt(0))
    hold_s: float = field(default=30.0, validator=ge(0))
    """How long a call that did not run waits out an outage before it gets `StorageUnavailable`."""
    backup_folder: Path | None = None
    """Where SQLite is saved before a migration. None: beside the database."""
    file_mode: int = FILE_MODE
    """Mode of a SQLite file, its lock files and its backups."""

"""What can be set? One small class per part, composed in `Settings`: defaults, ranges and meaning. Pure data.

A new part is a class here and a line in `Settings`; loading, environment names, checks and documentation follow from it.
"""

from __future__ import annotations

from attrs import field, frozen

from cormorant.rules.fields import Alias, choice, database, duration, number, path, text, zone
from cormorant.rules.secrets import Secret

__all__ = ["LogSettings", "ServiceSettings", "Settings", "StorageSettings"]

DATABASE_FILE = "cormorant.db"


@frozen(kw_only=True)
class StorageSettings:
    """The database, where everything is remembered."""

    url: Secret = database(  # noqa: RUF009  # an attrs field is made, not a value
        "Address of the database, such as postgresql://me@host/cormorant. "
        f"Empty: the SQLite file {DATABASE_FILE} in the data folder.",
    )
    statement_timeout_s: float = duration(
        15.0, "Longest time one statement may take before it is given up.", low_s=0.1, high_s=600.0
    )
    lock_timeout_s: float = duration(
        5.0, "Longest time a statement waits for what another process has locked.", low_s=0.1, high_s=600.0
    )
    hold_s: float = duration(
        30.0, "How long a call waits out a database that is away before it fails.", low_s=0.0, high_s=3600.0
    )
    connections: int = number(2, "Connections to PostgreSQL. SQLite has one writer.", low=1, high=100)
    queue_max: int = number(10_000, "Calls that may be under way; whoever comes then waits.", low=1, high=1_000_000)
    group_max: int = number(512, "Calls that share one transaction on SQLite at most.", low=1, high=100_000)


@frozen(kw_only=True)
class ServiceSettings:
    """The process as a whole."""

    worker_id: str = text(
        "",
        "Name of this process among those that share the database. Empty: the name of the host.",
        aliases=(Alias("WORKER_ID"),),
    )
    stop_total_s: float = duration(
        30.0, "Longest time an orderly stop may take; what is left then is cancelled.", low_s=0.1, high_s=600.0
    )


@frozen(kw_only=True)
class LogSettings:
    """The log, one line per event on standard error."""

    format: str = choice("logfmt", "How a line is written.", choices=("logfmt", "json"))
    level: str = choice(
        "info", "The least important events that are written.", choices=("debug", "info", "warning", "error")
    )
    ring: int = number(
        10_000,
        "Events that may wait to be written. Beyond that the oldest are dropped, and a line says how many.",
        low=1,
        high=1_000_000,
    )


@frozen(kw_only=True)
class Settings:
    """Everything that can be set. With the defaults it runs anywhere."""

    data: str = path("data", "Folder for the database and all else that is kept. Made when it is missing.")
    time_zone: str = zone("UTC", "Zone of times of day and of days, such as Europe/Berlin.")
    storage: StorageSettings = field(factory=StorageSettings)
    service: ServiceSettings = field(factory=ServiceSettings)
    log: LogSettings = field(factory=LogSettings)

    @property
    def database_url(self) -> Secret:
        """Where the database is: as set, or the file in the data folder."""
        return self.storage.url or Secret(f"sqlite:///{self.data}/{DATABASE_FILE}")

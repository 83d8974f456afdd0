"""The steps from an empty database to the tables of today, in order. A step is never changed once it was released.

Expand first, contract a release later: `MIN_CODE_VERSION` is the oldest schema version whose code still works with the
database after the step, so that old and new processes can share it during an upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.migrations import (
    v0001_flags,
    v0002_jobs,
    v0003_sources,
    v0004_gate_links,
    v0005_gate_feeds,
    v0006_watches,
    v0007_subscriptions,
    v0008_prices,
    v0009_job_uids,
    v0010_price_pauses,
    v0011_catalogue_walks,
    v0012_feed_memory,
    v0013_written_feeds,
)
from storage.migrations.runner import Migration

MIGRATIONS: Final[Sequence[Migration]] = (
    v0001_flags,
    v0002_jobs,
    v0003_sources,
    v0004_gate_links,
    v0005_gate_feeds,
    v0006_watches,
    v0007_subscriptions,
    v0008_prices,
    v0009_job_uids,
    v0010_price_pauses,
    v0011_catalogue_walks,
    v0012_feed_memory,
    v0013_written_feeds,
)
SCHEMA_VERSION: Final = MIGRATIONS[-1].VERSION

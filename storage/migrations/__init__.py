"""The steps from an older schema to that of today, in order. A step is never changed once it was released.

A new database gets all tables at once, as `storage/tables.py` declares them, and the later steps count as done there. So a
change is made twice: in the table, for new databases, and in a step, for those that exist. `tests/upgrades` compares both.

Expand first, contract a release later: `MIN_CODE_VERSION` is the oldest schema version whose code still works with the
database after the step, so that old and new processes can share it during an upgrade.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.engine.schema import Migration
from storage.migrations import v0001_initial

MIGRATIONS: Final[Sequence[Migration]] = (v0001_initial,)
SCHEMA_VERSION: Final = MIGRATIONS[-1].VERSION

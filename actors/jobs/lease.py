"""Under which name does this process own jobs, and may it still believe that it does?"""

from __future__ import annotations

import math

from attrs import define


@define(eq=False)
class OwnerLease:
    """The owner id of this run, and when the database last confirmed it. A new run has a new id."""

    owner: str = ""
    confirmed_at: float = -math.inf
    doubtful_at: float = -math.inf
    """From when on others may be taking our jobs, unless it is confirmed before: nothing is begun then."""
    is_held: bool = False
    """Whether jobs may be claimed under it."""

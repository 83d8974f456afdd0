"""How much is done? A look in the normal run; with SOAK=1 in the environment, `make soak`, as much as a day of real life."""

from __future__ import annotations

import os

IS_SOAK = os.environ.get("SOAK") == "1"

JOBS = 20_000 if IS_SOAK else 2_000
"""Jobs that several processes share."""
KILLS = 20 if IS_SOAK else 6
"""How often a process is ended while they do, once a second."""
AWAY_S = 20.0 if IS_SOAK else 8.0
"""How long a database is away that is away for long."""
PATIENCE_S = 600.0 if IS_SOAK else 60.0
"""Longest wait for all jobs to be done."""

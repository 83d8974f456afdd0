"""How much is done? A look in the normal run; with SOAK=1 in the environment, `make soak`, as much as a day of real life."""

from __future__ import annotations

import os

from tests.bounds import WAIT_S

IS_SOAK = os.environ.get("SOAK") == "1"

JOBS = 20_000 if IS_SOAK else 2_000
"""Jobs that several processes share."""
KILLS = 20 if IS_SOAK else 6
"""How often a process is ended while they do, once a second."""
PATIENCE_S = 4 * WAIT_S if IS_SOAK else WAIT_S
"""Longest wait for all jobs to be done."""

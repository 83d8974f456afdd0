"""An environment from the parts that a test replaces."""

from __future__ import annotations

from collections.abc import Iterable
from random import SystemRandom
from typing import Any

from actors import Clients, Environment, SystemClock
from actors.environment import in_thread
from cormorant.rules.ports import Chance, Clock, Emit, Listener, Offload
from cormorant.settings import Settings
from storage import Database


def environment_of(  # noqa: PLR0913 - what a test may replace, all of it with a default
    settings: Settings | None = None,
    *,
    database: Database | None = None,
    clock: Clock | None = None,
    chance: Chance | None = None,
    emit: Emit | None = None,
    offload: Offload = in_thread,
    listeners: Iterable[Listener] = (),
    **clients: Any,
) -> Environment:
    """The environment; `clients` as `Clients` has them. What is left out, `open_service` makes."""
    given: dict[str, Any] = {"database": database, "emit": emit}
    return Environment(
        settings or Settings(),
        clock=clock or SystemClock(),
        chance=chance or SystemRandom(),
        offload=offload,
        listeners=tuple(listeners),
        clients=Clients(**clients),
        **given,
    )

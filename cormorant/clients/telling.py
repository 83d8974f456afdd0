"""How is Apprise kept within bounds? It sends from a process of its own, which is ended when its time is up or nobody waits.

A thread that hangs in a socket cannot be ended; a process can, whatever it does. Run as `python -m cormorant.clients.telling` it is
that process: what to send comes by standard input, where nobody else sees the address, and what came of it goes out as one line.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from cormorant.clients.apprise import NotTold, tell
from cormorant.clients.subprocesses import ProgramResult, RunLimits, run_program
from cormorant.rules.notices import Message

__all__ = ["TELL_S", "Tell", "tell_apart"]

TELL_S: Final = 45.0
"""All that one notification may take, with loading Apprise, however slowly a service answers."""
_ORPHANED_S: Final = 5
"""So much longer it may live if we were killed and cannot end it."""
_SELF: Final = "cormorant.clients.telling"
_MARK: Final = "told: "
_GRACE_S: Final = 0.5

Tell = Callable[[str, Message], Awaitable[None]]
"""Tells a person at an address, or raises `NotTold`."""


async def tell_apart(address: str, message: Message, *, within_s: float = TELL_S) -> None:
    """Send a message, or raise `NotTold`. However it ends, nothing of it goes on afterwards."""
    said = {"address": address, "title": message.title, "body": message.body, "within_s": within_s}
    # The modules that we have, and none that lies in the folder we happen to be in.
    places = os.pathsep.join(place for place in sys.path if place)
    try:
        ended = await run_program(
            [sys.executable, "-P", "-m", _SELF],
            environment={**os.environ, "PYTHONPATH": places},
            folder=None,
            limits=RunLimits(timeout_s=within_s, grace_s=_GRACE_S),
            fed=json.dumps(said).encode(),
        )
    except OSError as error:
        raise NotTold(f"the process that sends could not be started: {error.strerror}") from error
    problem = _problem(ended, within_s)
    if problem is not None:
        raise NotTold(problem)


def _problem(ended: ProgramResult, within_s: float) -> str | None:
    if ended.code is None:
        return f"the service had not taken it after {within_s:g} s"
    last = [line for line in ended.words.splitlines() if line.startswith(_MARK)]
    if ended.code or not last:
        # What it said besides may hold the address.
        return f"the process that sends ended with {ended.code} and did not say why"
    problem: str | None = json.loads(last[-1].removeprefix(_MARK))
    return problem


def _main() -> None:
    said = json.load(sys.stdin)
    # Ends this process whatever it is doing, also when nobody is left who would.
    signal.alarm(math.ceil(said["within_s"]) + _ORPHANED_S)
    problem = None
    try:
        tell(said["address"], Message(title=said["title"], body=said["body"]))
    except NotTold as error:
        problem = str(error)
    sys.stdout.write(f"\n{_MARK}{json.dumps(problem)}\n")


if __name__ == "__main__":
    _main()

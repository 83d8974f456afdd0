"""How is somebody told, any number of times, that there is something to look at? One who never makes the ringer wait."""

from __future__ import annotations

import math

import trio


class WakeUp:
    """Wake-ups that are coalesced: a hundred rings before the next look are one."""

    def __init__(self) -> None:
        self._rings, self._heard = trio.open_memory_channel[None](1)
        self._has_rung = False

    def ring(self) -> None:
        """There is something to look at."""
        if not self._has_rung:  # otherwise nobody has looked since the last ring
            self._has_rung = True
            self._rings.send_nowait(None)

    async def wait(self, until: float = math.inf) -> bool:
        """Wait for a ring. False: the time came first."""
        if until == math.inf:
            await self._heard.receive()
            self._has_rung = False
            return True
        with trio.CancelScope(deadline=until):
            await self._heard.receive()
            self._has_rung = False
            return True
        return False

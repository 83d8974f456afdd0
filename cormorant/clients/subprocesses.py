"""Runs a program in bounded time and memory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

_PIECE_BYTES: Final = 65_536
_LINGER_S: Final = 0.5
"""How long is read on after the end of a program: what it started may hold its output open for ever."""
_GONE_S: Final = 5.0
"""How long a killed program may take to be gone; one that hangs in the kernel takes longer."""


@frozen(kw_only=True)
class RunLimits:
    """How long a program may run, how long it has to end when asked to, and how much of its last words is kept."""

    timeout_s: float = 60.0
    grace_s: float = 2.0
    words_max_bytes: int = 4_000


@frozen(kw_only=True)
class ProgramResult:
    """How a program ended: its exit code, less than zero for a signal, None when it took too long. And its last words."""

    code: int | None
    words: str


async def run_program(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path | None,
    limits: RunLimits,
    fed: bytes | None = None,
) -> ProgramResult:
    """Run it to its end; `fed` is what it reads. Raises OSError if it cannot start.

    At the time-out, or when cancelled, its whole process group is ended.
    """
    process = await trio.lowlevel.open_process(
        list(arguments),
        stdin=subprocess.DEVNULL if fed is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
    )
    words = bytearray()
    try:
        with trio.move_on_after(limits.timeout_s):
            await _follow(process, words, limits, fed)
        code = process.returncode
    finally:
        with trio.move_on_after(limits.grace_s + _GONE_S, shield=True):
            await _end(process, limits.grace_s)
    return ProgramResult(code=code, words=words.decode("utf-8", "replace"))


async def _follow(process: trio.Process, words: bytearray, limits: RunLimits, fed: bytes | None) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_listen, process, words, limits.words_max_bytes)
        if fed is not None:
            nursery.start_soon(_feed, process, fed)
        await process.wait()
        nursery.cancel_scope.deadline = trio.current_time() + _LINGER_S


async def _feed(process: trio.Process, fed: bytes) -> None:
    """Give it all that it is to read, unless it does not want it."""
    assert process.stdin is not None
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async with process.stdin:
            await process.stdin.send_all(fed)


async def _listen(process: trio.Process, words: bytearray, bytes_max: int) -> None:
    """Read all that it says, so that it never waits for us, and keep the last of it."""
    assert process.stdout is not None
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while piece := await process.stdout.receive_some(_PIECE_BYTES):
            words += piece
            del words[:-bytes_max]


async def _end(process: trio.Process, grace_s: float) -> None:
    """End what still runs. A program that ended by itself may leave others running; that is its own business."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        with trio.move_on_after(grace_s):
            await process.wait()
        # Also when it has ended: those of its group that would not listen have not.
        _signal(process, signal.SIGKILL)
        await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()


def _signal(process: trio.Process, number: signal.Signals) -> None:
    # It leads a group of its own, whose number stays taken as long as one of the group lives.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

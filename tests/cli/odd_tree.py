"""`cormorant run` with a child of odd habits beside the database: `python odd_tree.py HABIT`, for tests of awkward ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import trio
from typing_extensions import override

from actors import Environment
from cormorant.cli import main, serve
from cormorant.cli.console.output import write
from cormorant.log import LogWriter
from cormorant.rules.events import MessageLost
from cormorant.rules.settings.settings import LogSettings
from supervisors import ChildSpec, Supervisor, assembly
from supervisors.tree import TreeChildren, tree


def announce(text: str) -> None:
    """Tell the test; beside the streams, where they may be stuck."""
    os.write(int(os.environ.get("HERALD", "1")), f"{text}\n".encode())


class Stubborn:
    """Goes on when it is asked to stop."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run until cancelled."""
        task_status.started()
        await trio.sleep_forever()

    def stop(self) -> None:
        """Be asked, and do nothing."""
        announce("asked to stop")


async def crash(*, task_status: trio.TaskStatus[None]) -> None:
    """Come up and crash, each time."""
    task_status.started()
    await trio.lowlevel.checkpoint()
    raise RuntimeError("the gauge is gone") from ConnectionError("postgresql://me:hunter2@db/x hung up")


async def freeze(*, task_status: trio.TaskStatus[None]) -> None:
    """Come up and hold the whole loop."""
    task_status.started()
    await trio.sleep(0.05)
    announce("frozen")
    time.sleep(1000)  # noqa: ASYNC251  # that is the habit


async def hesitate(*, task_status: trio.TaskStatus[None]) -> None:
    """Never come up."""
    announce("hesitating")
    await trio.sleep_forever()


def chatter(environment: Environment) -> ChildSpec:
    """Say more than a pipe holds."""

    async def chat(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        for number in range(5_000):
            environment.emit(MessageLost(actor="chatter", message=str(number), why="nobody listens"))
        announce("said it all")
        await trio.sleep_forever()

    return ChildSpec("chatter", chat)


def dawdler() -> ChildSpec:
    """Take longer to stop than any test."""
    return ChildSpec("stubborn", Stubborn(), grace_s=1000.0)


DRAIN_S = {"chatter for ever": 1000.0}
"""How long the log waits at the end for a reader, where that is longer than usual."""


class AnnouncedLog(LogWriter):
    """Says when it begins to write what is left."""

    @override
    def __init__(self, settings: LogSettings, **more: Any) -> None:
        super().__init__(settings, **more, drain_s=DRAIN_S.get(sys.argv[1], 2.0))

    @override
    def close(self, within_s: float | None = None) -> None:
        announce("draining")
        super().close(within_s)


def write_and_announce(text: str, **more: Any) -> None:
    """Tell the test when something was said, or could not be."""
    write(text, **more)
    announce("spoke")


HABITS: dict[str, Callable[[Environment], list[ChildSpec]]] = {
    "none": lambda _: [],
    "overrun": lambda _: [ChildSpec("stubborn", Stubborn(), grace_s=0.05)],
    "dawdle": lambda _: [dawdler()],
    "crash": lambda _: [ChildSpec("gauge", crash)],
    "hesitate": lambda _: [ChildSpec("hesitant", hesitate)],
    "freeze": lambda _: [ChildSpec("frozen", freeze)],
    "chatter": lambda environment: [chatter(environment)],
    "chatter for ever": lambda environment: [chatter(environment)],
    "chatter and dawdle": lambda environment: [chatter(environment), dawdler()],
}


def odd_tree(environment: Environment, children: TreeChildren) -> Supervisor:
    """The usual tree as a child of a root that has the odd ones, too."""
    usual = ChildSpec("usual", tree(environment, children), grace_s=environment.settings.service.stop_total_s)
    return Supervisor(
        [usual, *HABITS[sys.argv[1]](environment)],
        name="root",
        intensity=1,
        emit=environment.emit,
        chance=environment.chance,
    )


if __name__ == "__main__":
    assembly.tree = odd_tree  # type: ignore[attr-defined]  # imported there, swapped for the test
    serve.LogWriter = AnnouncedLog  # type: ignore[attr-defined]  # as above
    serve.write = write_and_announce  # type: ignore[attr-defined]  # as above
    main(["run"])

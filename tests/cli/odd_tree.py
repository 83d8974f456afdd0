"""`cormorant run` with a child of odd habits beside the database: `python odd_tree.py HABIT`, for tests of awkward ends."""

from __future__ import annotations

import sys
import time

import trio

from cormorant.cli import main
from cormorant.rules.events import MessageLost
from supervisors import ChildSpec, Supervisor, service
from supervisors.tree import Parts, tree


class Stubborn:
    """Goes on when it is asked to stop."""

    async def __call__(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run until cancelled."""
        task_status.started()
        await trio.sleep_forever()

    def stop(self) -> None:
        """Be asked, and do nothing."""
        print("asked to stop", flush=True)  # noqa: T201  # the test reads it


async def crash(*, task_status: trio.TaskStatus[None]) -> None:
    """Come up and crash, each time."""
    task_status.started()
    await trio.lowlevel.checkpoint()
    raise RuntimeError("the gauge is gone") from ConnectionError("postgresql://me:hunter2@db/x hung up")


async def freeze(*, task_status: trio.TaskStatus[None]) -> None:
    """Come up and hold the whole loop."""
    task_status.started()
    await trio.sleep(0.05)
    print("frozen", flush=True)  # noqa: T201  # the test reads it
    time.sleep(1000)  # noqa: ASYNC251  # that is the habit


async def hesitate(*, task_status: trio.TaskStatus[None]) -> None:
    """Never come up."""
    print("hesitating", flush=True)  # noqa: T201  # the test reads it
    await trio.sleep_forever()


def chatter(parts: Parts) -> ChildSpec:
    """Say more than a pipe holds."""

    async def chat(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        for number in range(5_000):
            parts.emit(MessageLost(actor="chatter", message=str(number), why="nobody listens"))
        print("said it all", flush=True)  # noqa: T201  # the test reads it
        await trio.sleep_forever()

    return ChildSpec("chatter", chat)


HABITS = {
    "overrun": ChildSpec("stubborn", Stubborn(), grace_s=0.05),
    "dawdle": ChildSpec("stubborn", Stubborn(), grace_s=20.0),
    "crash": ChildSpec("gauge", crash),
    "hesitate": ChildSpec("hesitant", hesitate),
    "freeze": ChildSpec("frozen", freeze),
}


def odd_tree(parts: Parts) -> Supervisor:
    """The usual tree as a child of a root that has the odd one, too."""
    return Supervisor(
        [ChildSpec("usual", tree(parts), grace_s=parts.stop_total_s), HABITS.get(sys.argv[1]) or chatter(parts)],
        name="root",
        intensity=1,
        emit=parts.emit,
        chance=parts.chance,
    )


if __name__ == "__main__":
    service.tree = odd_tree  # type: ignore[attr-defined]  # imported there, swapped for the test
    main(["run"])

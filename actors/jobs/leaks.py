"""Has a handler left something open in the task that it ran in? The one place that looks into the scopes of trio, which is pinned."""

from __future__ import annotations

import trio


def is_left_open(task: trio.lowlevel.Task, scope: trio.CancelScope) -> bool:
    """Whether `scope`, entered by `task`, is not the innermost one: a generator that was dropped half-way holds another."""
    return task._cancel_status is not scope._cancel_status  # noqa: SLF001 - there is no public word for it


def give_up(task: trio.lowlevel.Task) -> None:
    """Let a task end quietly in which nurseries were left open. What runs in them is cancelled with the scope around."""
    task._child_nurseries.clear()  # noqa: SLF001 - otherwise its end would be a crash

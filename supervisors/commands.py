"""What can a supervisor be told to do with single children?"""

from __future__ import annotations

from attrs import frozen

from actors.reply import Reply
from cormorant.rules.errors import StartFailed, in_words
from supervisors.child import Child, ChildSpec
from supervisors.report import ChildReport


@frozen
class StartChild:
    """Command: add a child and start it. Answered when it is up."""

    spec: ChildSpec
    reply: Reply[None]


@frozen
class StopChild:
    """Command: stop a child and forget it. Answered with how it ended."""

    name: str
    reply: Reply[ChildReport]


def subject_of(command: StartChild | StopChild) -> str:
    """The name of the child a command is about."""
    return command.spec.name if isinstance(command, StartChild) else command.name


def start_failed(child: Child) -> StartFailed:
    """What whoever wanted a child is told when it did not come up."""
    if isinstance(child.crash, StartFailed) and child.crash.child == child.name:
        return child.crash
    error = StartFailed(child.name, in_words(child.crash))
    error.__cause__ = child.crash
    return error

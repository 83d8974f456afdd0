"""What can go wrong with a handover, by name. The class says what follows: repeat, give up, mend, or ask first."""

from __future__ import annotations

from collections.abc import Sequence

from cormorant.rules.errors import CormorantError


class TargetError(CormorantError):
    """A target did not take what it was given. `target` is its name, set by whoever knows it."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, target: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.target = target


class TargetUnavailable(TargetError):
    """The target surely has not got it, and cannot take it now. Giving it again later, after `retry_after_s`, may work."""


class TargetRefused(TargetError):
    """The target understood and said no, or must not get this at all. Giving the same again will not help."""


class TargetMisconfigured(TargetRefused):
    """The target takes nothing as it is set up: a wrong password, a missing folder. The find is good; a person has to act."""


class TargetInDoubt(TargetError):
    """It may have arrived, and may not. Look before giving it again, or it is there twice."""


class UnknownTarget(CormorantError):
    """There is no target of this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        there = f"there are {', '.join(sorted(known))}" if known else "write [targets.NAME] in the settings file first"
        super().__init__(f"there is no target {name[:40]!r}; {there}")

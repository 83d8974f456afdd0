"""How did everything end? The report of an orderly stop."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cormorant.rules.supervision import Ending

_FORCED = frozenset({Ending.OVERRAN, Ending.CRASHED})


@frozen(kw_only=True)
class ChildReport:
    """How one child stopped."""

    name: str
    ending: Ending
    took_s: float
    error: BaseException | None = None
    children: tuple[ChildReport, ...] = ()

    def forced(self, above: str = "") -> Iterator[str]:
        """The names, with the path to them, of what did not stop as it should."""
        path = f"{above}{self.name}"
        if self.ending in _FORCED:
            yield path
        for child in self.children:
            yield from child.forced(f"{path}/")


@frozen(kw_only=True)
class ShutdownReport:
    """How a supervisor stopped, in the order its children ended."""

    took_s: float
    children: tuple[ChildReport, ...] = ()

    @property
    def forced(self) -> tuple[str, ...]:
        """What had to be cancelled past its grace, or crashed while stopping."""
        return tuple(name for child in self.children for name in child.forced())

    @property
    def clean(self) -> bool:
        """Whether everything stopped by itself, in time."""
        return not self.forced

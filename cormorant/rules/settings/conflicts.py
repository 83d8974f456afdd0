"""Which settings do not go together? How that is told."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

__all__ = ["Conflict", "SettingsConflict"]


@frozen
class Conflict:
    """Settings that do not go together although each is allowed. It is told under the first key."""

    keys: tuple[str, ...]
    text: str


class SettingsConflict(ValueError):
    """Some settings do not go together. All such conflicts are listed."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__("; ".join(f"{conflict.keys[0]}: {conflict.text}" for conflict in conflicts))
        self.conflicts = tuple(conflicts)

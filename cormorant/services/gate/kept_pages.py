"""Which pages need not be written again? Those of what is new, until a source was polled anew; bounded in age and in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

import trio
from attrs import define, field, frozen

from cormorant.rules.latest_polls import Times
from storage.search.sources import SourceRecord

__all__ = ["PageCache", "Version"]

LIFE_S: Final = 60.0
"""Finds that are forgotten because they are too old are shown so much longer."""
BYTES_MAX: Final = 8_000_000
PAGES_MAX: Final = 500
"""What is known beside the documents is not counted in bytes."""

Version = Sequence[tuple[SourceRecord, Times]]
"""The sources as they are asked, and when each category was: what a page is made of changes with nothing else."""


@frozen
class _CachedPage:
    document: bytes
    version: Version
    written_at: float


@define(eq=False)
class PageCache:
    """Pages as they were sent; when there are too many the one that was not asked for for longest is forgotten."""

    bytes_max: int = BYTES_MAX
    size_bytes: int = field(init=False, default=0)
    _kept: OrderedDict[Hashable, _CachedPage] = field(init=False, factory=OrderedDict)

    def get(self, asked: Hashable, version: Version) -> bytes | None:
        """A page that is still as it would be written now."""
        kept = self._kept.get(asked)
        if kept is None or kept.version != version or trio.current_time() - kept.written_at >= LIFE_S:
            return None
        self._kept.move_to_end(asked)
        return kept.document

    def put(self, asked: Hashable, version: Version, document: bytes) -> None:
        """Keep a page in the place of the one before."""
        self._forget(asked)
        self._kept[asked] = _CachedPage(document, version, trio.current_time())
        self.size_bytes += len(document)
        while self.size_bytes > self.bytes_max or len(self._kept) > PAGES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, asked: Hashable) -> None:
        kept = self._kept.pop(asked, None)
        if kept is not None:
            self.size_bytes -= len(kept.document)

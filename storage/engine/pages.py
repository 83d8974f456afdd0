"""How is a change to very many jobs made? A page at a time, so that nobody waits long for the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.database import Database

PAGE = 1_000


async def in_pages(
    database: Database, change: Callable[..., Sequence[int]], tell: Callable[[int], object] = lambda _: None
) -> int:
    """Call `change` until it finds nothing more after the last id; `tell` hears of each page. Returns how many in all."""
    total = after = 0
    while changed := await database.run(change, limit=PAGE, after=after):
        total += len(changed)
        after = changed[-1]
        tell(len(changed))
    return total

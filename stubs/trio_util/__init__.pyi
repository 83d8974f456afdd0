# The parts of trio-util 0.8 that Cormorant uses. The package itself has no types.

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")

class AsyncValue(Generic[_T]):
    value: _T
    def __init__(self, value: _T) -> None: ...
    async def wait_value(self, value_or_predicate: _T | Callable[[_T], bool], *, held_for: float = ...) -> _T: ...

class AsyncBool(AsyncValue[bool]):
    def __init__(self, value: bool = ...) -> None: ...

def periodic(period: float) -> AsyncIterator[tuple[float, float | None]]: ...
async def wait_any(*args: Callable[[], Awaitable[object]]) -> None: ...

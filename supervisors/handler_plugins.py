"""Loads job handlers of installed packages (entry points).

A package names them in its pyproject.toml:

    [project.entry-points."cormorant.handlers"]
    reconcile = "my_package.jobs:reconcile"     # an async function of a JobContext, or an `actors.Handler`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from actors.jobs.handler import Handler, Run
from cormorant.rules.errors import CormorantError
from cormorant.rules.jobs.error_log import describe_error

__all__ = ["GROUP", "HandlersBroken", "installed_handlers"]

GROUP = "cormorant.handlers"


class HandlersBroken(CormorantError):
    """Handlers of installed packages cannot be used. All of them are named; mend or uninstall the packages."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def installed_handlers() -> dict[str, Run | Handler]:
    """The handlers of all installed packages, by kind, or `HandlersBroken` with everything that is wrong."""
    found = sorted(entry_points(group=GROUP), key=lambda point: (point.name, _package(point)))
    handlers: dict[str, Run | Handler] = {}
    problems = list(_kinds_claimed_twice(found))
    for point in found:
        try:
            handlers[point.name] = _load(point)
        except Exception as error:  # foreign code; nothing of it has run before
            problems.append(f"{_named(point)} cannot be used: {describe_error(error)}")
    if problems:
        raise HandlersBroken(problems)
    return handlers


def _load(point: EntryPoint) -> Run | Handler:
    loaded: object = point.load()
    if isinstance(loaded, Handler):
        return loaded
    if isinstance(loaded, type) or not callable(loaded):
        raise TypeError(f"it is {_sort_of(loaded)}; name an async function or an actors.Handler")
    return loaded


def _kinds_claimed_twice(found: Iterable[EntryPoint]) -> Iterable[str]:
    for kind, times in Counter(point.name for point in found).items():
        if times > 1:
            packages = " and ".join(sorted(_package(point) for point in found if point.name == kind))
            yield f"the kind {kind} has handlers from {packages}: uninstall all but one of them"


def _named(point: EntryPoint) -> str:
    return f"the handler {point.name} = {point.value!r} of {_package(point)}"


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _sort_of(loaded: object) -> str:
    return f"the class {loaded.__name__}" if isinstance(loaded, type) else f"of type {type(loaded).__name__}"

"""How a test makes parts of the search branch crash, and looks at what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from attrs import frozen

from actors.actor import Address, Recheck, Reply
from actors.search.callbacks import CallbackStream
from actors.search.dispatcher import Submit
from actors.search.rate_limiter import Admit
from actors.search.source_requests import SourceRequests
from actors.search.waiting import SlotWaiters
from cormorant.rules.errors import ActorError
from cormorant.testing import START
from storage.search import sources
from supervisors import Service
from supervisors.search_assembly import SearchAssembly


class Exploding:
    """A part of a message that cannot be read."""

    def __iter__(self) -> NoReturn:
        raise ValueError("broken")

    def __len__(self) -> NoReturn:
        raise ValueError("broken")

    async def __aenter__(self) -> NoReturn:
        raise ValueError("broken")

    async def __aexit__(self, *_: object) -> None:
        """It is never entered."""


BROKEN: Any = Exploding()


@frozen(kw_only=True)
class BrokenAdmit(Admit):
    """A message at which a limiter crashes."""

    tickets: Any = BROKEN

    def lost(self, error: ActorError) -> None:
        """There are no tickets."""


def broken_submit() -> Submit:
    """A message at which the dispatcher crashes."""
    return Submit(
        request=BROKEN,
        sources=BROKEN,
        cached={},
        terms=BROKEN,
        submitted_at=START,
        on_complete=None,
        on_job_done=None,
        reply=Reply(),
    )


def broken_stream() -> CallbackStream:
    """A message at which the callbacks crash."""
    return CallbackStream(search_id=0, outcomes=BROKEN, on_complete=None, on_job_done=None)


def _child(service: Service, *path: str) -> Any:
    found: Any = service._root  # noqa: SLF001 - there is no polite way to make a part crash
    for name in path:
        found = found._table[name].spec.run  # noqa: SLF001 - as above
    return found


def address_of(service: Service, part: str) -> Address[Any]:
    """Where messages for a child of the search branch go."""
    address: Address[Any] = _child(service, "search", part)._address  # noqa: SLF001 - as above
    return address


def crash_part(service: Service, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child of the search branch crash."""
    address = address_of(service, part)
    if part == "source_keeper":
        monkeypatch.setattr(sources, "usable_sources", _broken_once(monkeypatch))
        address.tell_nowait(Recheck())
    else:
        address.tell_nowait({"dispatcher": broken_submit, "callbacks": broken_stream}[part]())


def _broken_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., NoReturn]:
    """Fails like a mistake in a query, once."""

    def broken(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise ValueError("broken")

    return broken


def crash_limiter(service: Service, source: str, *, times: int = 1) -> None:
    """Let the limiter of a source crash, and so many of its successors."""
    for _ in range(times):
        service.sources.directory.by_name[source].address.tell_nowait(BrokenAdmit())


def crash_dispatcher(service: Service) -> None:
    """Let the dispatcher crash."""
    service.sources.dispatcher.tell_nowait(broken_submit())


def assembly_of(service: Service) -> SearchAssembly:
    """What the search branch shares and outlives its children."""
    assembly: SearchAssembly = _child(service, "search", "dispatcher")._make.__self__
    return assembly


def slots_of(service: Service) -> SlotWaiters:
    """The slots that all sources share."""
    return assembly_of(service).slots


def unread_of(address: Address[Any]) -> list[Any]:
    """The messages in a mailbox, the oldest first."""
    data = address._receive._state.data  # noqa: SLF001 - trio shows only their number
    return [envelope.message for envelope in data if envelope is not None]


def requests_of(service: Service, source: str) -> SourceRequests:
    """The requests of a source, to look at."""
    return service.sources.directory.by_name[source].requests

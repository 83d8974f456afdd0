"""What happened: every event the service tells about, defined once. Names are stable; logs, metrics and traces use them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import attrs
from attrs import frozen
from typing_extensions import dataclass_transform

from cormorant.rules.errors import leaves_of

__all__ = ["Event", "Stamped", "event", "fields_of"]


@frozen(kw_only=True)
class Event:
    """A fact, past tense. `name` is how logs, metrics and documentation call it."""

    name: ClassVar[str]
    level: ClassVar[str] = "info"


E = TypeVar("E", bound=Event)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
def event(name: str, *, level: str = "info") -> Callable[[type[E]], type[E]]:
    """Make a class the event of this name."""

    def make(cls: type[E]) -> type[E]:
        cls.name, cls.level = name, level
        return frozen(kw_only=True)(cls)

    return make


@frozen
class Stamped:
    """An event with its place in the stream and the wall time it was emitted at."""

    sequence: int
    at: datetime
    event: Event


def fields_of(event: Event) -> dict[str, Any]:
    """The facts of an event as plain values; an error becomes its type and its text. Only the log shows a `traceback`.

    >>> fields_of(ChildExited(supervisor="root", child="web", how="returned", ran_s=2.5))
    {'supervisor': 'root', 'child': 'web', 'how': 'returned', 'ran_s': 2.5}
    """
    names = (field.name for field in attrs.fields(type(event)))
    return {name: _plain(getattr(event, name)) for name in names if name != "traceback"}


def _plain(value: object) -> object:
    if isinstance(value, BaseException):
        return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves_of(value))
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


# The web


@event("web.listening")
class WebListening(Event):
    """The HTTP server takes connections at this address."""

    address: str


@event("web.key_made")
class WebKeyMade(Event):
    """A key was made, because none is set; it is in this file, which only its owner can read."""

    of: str
    file: str


@event("web.request_crashed", level="error")
class WebRequestCrashed(Event):
    """A request was answered with 500, because handling it raised an error that nobody expected.

    The same error of the same line is told at most once a minute; left_out counts the others since the last time.
    """

    method: str
    path: str
    error: BaseException
    left_out: int = 0


@event("web.body_too_deep", level="warning")
class WebBodyTooDeep(Event):
    """A request was refused because its JSON has more than 100 arrays and objects within each other.

    It is told at most once a minute for all clients; left_out counts the others since the last time.
    """

    client: str
    path: str
    left_out: int = 0


@event("web.key_refused", level="warning")
class WebKeyRefused(Event):
    """Somebody asked with a wrong key."""

    path: str
    client: str


@event("web.client_blocked", level="warning")
class WebClientBlocked(Event):
    """An address has tried so many wrong keys that its keys are not looked at for a while. Told once for all of them."""

    client: str
    for_s: float


@event("web.client_too_fast", level="warning")
class WebClientTooFast(Event):
    """An address asks faster than web.requests_per_second and is told to wait. Told once a minute."""

    client: str


@event("web.full", level="warning")
class WebFull(Event):
    """There are as many connections as there may be: the oldest that asks nothing makes room, or the new one is refused.

    Told once a minute.
    """

    client: str
    connections: int
    limit: str


@event("web.connection_crashed", level="error")
class WebConnectionCrashed(Event):
    """A connection ended with an error that nobody expected. The others go on.

    The same error of the same line is told at most once a minute; left_out counts the others since the last time.
    """

    client: str
    error: BaseException
    left_out: int = 0


# Supervision


@event("child.started")
class ChildStarted(Event):
    """A child acknowledged its start. `restarts` is 0 the first time."""

    supervisor: str
    child: str
    restarts: int


@event("child.exited")
class ChildExited(Event):
    """A child ended without an error: it returned, or its supervisor stopped or cancelled it."""

    supervisor: str
    child: str
    how: str
    ran_s: float


@event("child.crashed", level="error")
class ChildCrashed(Event):
    """A child ended with an error. `restart_in_s` is None when it is not started again."""

    supervisor: str
    child: str
    error: BaseException
    ran_s: float
    restart_in_s: float | None


@event("child.overran", level="warning")
class ChildOverran(Event):
    """A child was asked to stop, used up its grace and was cancelled."""

    supervisor: str
    child: str
    grace_s: float


@event("child.set_aside", level="error")
class ChildSetAside(Event):
    """A child used up its restarts and stays stopped; the rest goes on."""

    supervisor: str
    child: str
    error: BaseException


@event("supervisor.stopped")
class SupervisorStopped(Event):
    """All children of a supervisor have ended. `forced` names those that had to be cancelled or crashed while stopping."""

    supervisor: str
    took_s: float
    forced: tuple[str, ...]


# Actors


@event("clock.stepped", level="warning")
class ClockStepped(Event):
    """The wall clock was set, or the machine slept: it has moved by so much against the time that passed."""

    by_s: float


@event("actor.tick_cut_off", level="warning")
class TickCutOff(Event):
    """A tick of an actor took longer than its budget and one item more, and was cancelled. The next one goes on."""

    actor: str
    after_s: float


@event("actor.message_lost", level="warning")
class MessageLost(Event):
    """A message that nobody waits for was not handled, or only in part: its actor crashed, was restarted or is gone."""

    actor: str
    message: str
    why: str


# Items of loops over external things


@event("item.failed", level="error")
class ItemFailed(Event):
    """An unexpected exception failed one artist, feed, saved search, price, handover, want or job. The others go on."""

    kind: str
    item: str
    error: str
    traceback: str


# Storage


@event("storage.lost", level="error")
class StorageLost(Event):
    """The database went away; calls that did not run are held."""

    error: str


@event("storage.back")
class StorageBack(Event):
    """The database answers again; held calls go on."""

    away_s: float


@event("storage.listener_lost", level="warning")
class ListenerLost(Event):
    """The connection that hears what other processes change cannot be opened. It is tried again; until then changes are seen late."""

    error: str


@event("storage.listener_restored")
class ListenerRestored(Event):
    """The connection that hears what other processes change is open again. Everything counts as changed once."""


@event("storage.migrated")
class SchemaMigrated(Event):
    """The database was brought to a newer schema. `backup` is the file made before, if there was anything to save."""

    from_version: int
    to_version: int
    backup: str | None


@event("disk.low", level="warning")
class DiskLow(Event):
    """The folder of the data has less free space than it should. Told when it is found, then once a day while it lasts."""

    folder: str
    free_bytes: int
    wanted_bytes: int


@event("notify.told")
class NoticeSent(Event):
    """A person was told: one address took a notification with this title, and as many lines."""

    title: str
    lines: int


# The stream itself


@event("events.lost", level="warning")
class EventsLost(Event):
    """A reader of the stream was too slow; the oldest events were dropped for it."""

    count: int


@event("events.listener_failed", level="error")
class ListenerFailed(Event):
    """A listener raised and is not called again."""

    listener: str
    error: BaseException


# The playground


@event("playground.opened", level="warning")
class PlaygroundOpened(Event):
    """The sites are invented ones on this machine; nothing leaves it. `leave_with` makes settings for real ones."""

    address: str
    sites: int
    leave_with: str


@event("playground.searched")
class PlaygroundSearched(Event):
    """An invented person has searched, and this came of it."""

    words: str
    found: int
    answered: tuple[str, ...]
    not_answered: tuple[str, ...]


# The service


@event("service.ready")
class ServiceReady(Event):
    """Every child of the tree has acknowledged its start."""

    version: str
    took_s: float


@event("service.stopping")
class ServiceStopping(Event):
    """The service was told to stop, or has failed, and stops its children in reverse order."""

    why: str

"""What happened: every event the service tells about, defined once. Names are stable; logs, metrics and traces use them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import attrs
from attrs import frozen

__all__ = ["Event", "Stamped", "fields_of"]


@frozen(kw_only=True)
class Event:
    """A fact, past tense. `name` is how logs, metrics and documentation call it."""

    name: ClassVar[str]
    level: ClassVar[str] = "info"


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
    if isinstance(value, BaseExceptionGroup):
        return "; ".join(str(_plain(error)) for error in value.exceptions)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


# The web


@frozen(kw_only=True)
class WebListening(Event):
    """The HTTP server takes connections at this address."""

    name: ClassVar[str] = "web.listening"

    address: str


@frozen(kw_only=True)
class WebKeyMade(Event):
    """A key was made, because none is set; it is in this file, which only its owner can read."""

    name: ClassVar[str] = "web.key_made"

    of: str
    file: str


@frozen(kw_only=True)
class WebRequestCrashed(Event):
    """A request was answered with 500, because handling it raised an error that nobody expected.

    The same error of the same line is told at most once a minute; left_out counts the others since the last time.
    """

    name: ClassVar[str] = "web.request_crashed"
    level: ClassVar[str] = "error"

    method: str
    path: str
    error: BaseException
    left_out: int = 0


@frozen(kw_only=True)
class WebBodyTooDeep(Event):
    """A request was refused because its JSON has more than 100 arrays and objects within each other.

    It is told at most once a minute for all clients; left_out counts the others since the last time.
    """

    name: ClassVar[str] = "web.body_too_deep"
    level: ClassVar[str] = "warning"

    client: str
    path: str
    left_out: int = 0


@frozen(kw_only=True)
class WebKeyRefused(Event):
    """Somebody asked with a wrong key."""

    name: ClassVar[str] = "web.key_refused"
    level: ClassVar[str] = "warning"

    path: str
    client: str


@frozen(kw_only=True)
class WebClientBlocked(Event):
    """An address has tried so many wrong keys that its keys are not looked at for a while. Told once for all of them."""

    name: ClassVar[str] = "web.client_blocked"
    level: ClassVar[str] = "warning"

    client: str
    for_s: float


@frozen(kw_only=True)
class WebClientTooFast(Event):
    """An address asks faster than web.requests_per_second and is told to wait. Told once a minute."""

    name: ClassVar[str] = "web.client_too_fast"
    level: ClassVar[str] = "warning"

    client: str


@frozen(kw_only=True)
class WebFull(Event):
    """There are as many connections as there may be: the oldest that asks nothing makes room, or the new one is refused.

    Told once a minute.
    """

    name: ClassVar[str] = "web.full"
    level: ClassVar[str] = "warning"

    client: str
    connections: int
    limit: str


@frozen(kw_only=True)
class WebConnectionCrashed(Event):
    """A connection ended with an error that nobody expected. The others go on.

    The same error of the same line is told at most once a minute; left_out counts the others since the last time.
    """

    name: ClassVar[str] = "web.connection_crashed"
    level: ClassVar[str] = "error"

    client: str
    error: BaseException
    left_out: int = 0


# Supervision


@frozen(kw_only=True)
class ChildStarted(Event):
    """A child acknowledged its start. `restarts` is 0 the first time."""

    name: ClassVar[str] = "child.started"

    supervisor: str
    child: str
    restarts: int


@frozen(kw_only=True)
class ChildExited(Event):
    """A child ended without an error: it returned, or its supervisor stopped or cancelled it."""

    name: ClassVar[str] = "child.exited"

    supervisor: str
    child: str
    how: str
    ran_s: float


@frozen(kw_only=True)
class ChildCrashed(Event):
    """A child ended with an error. `restart_in_s` is None when it is not started again."""

    name: ClassVar[str] = "child.crashed"
    level: ClassVar[str] = "error"

    supervisor: str
    child: str
    error: BaseException
    ran_s: float
    restart_in_s: float | None


@frozen(kw_only=True)
class ChildOverran(Event):
    """A child was asked to stop, used up its grace and was cancelled."""

    name: ClassVar[str] = "child.overran"
    level: ClassVar[str] = "warning"

    supervisor: str
    child: str
    grace_s: float


@frozen(kw_only=True)
class ChildSetAside(Event):
    """A child used up its restarts and stays stopped; the rest goes on."""

    name: ClassVar[str] = "child.set_aside"
    level: ClassVar[str] = "error"

    supervisor: str
    child: str
    error: BaseException


@frozen(kw_only=True)
class SupervisorStopped(Event):
    """All children of a supervisor have ended. `forced` names those that had to be cancelled or crashed while stopping."""

    name: ClassVar[str] = "supervisor.stopped"

    supervisor: str
    took_s: float
    forced: tuple[str, ...]


# Actors


@frozen(kw_only=True)
class MessageLost(Event):
    """A message that nobody waits for was not handled, or only in part: its actor crashed, was restarted or is gone."""

    name: ClassVar[str] = "actor.message_lost"
    level: ClassVar[str] = "warning"

    actor: str
    message: str
    why: str


# Items of loops over external things


@frozen(kw_only=True)
class ItemFailed(Event):
    """An unexpected exception failed one artist, feed, saved search, price, handover, want or job. The others go on."""

    name: ClassVar[str] = "item.failed"
    level: ClassVar[str] = "error"

    kind: str
    item: str
    error: str
    traceback: str


# Storage


@frozen(kw_only=True)
class StorageLost(Event):
    """The database went away; calls that did not run are held."""

    name: ClassVar[str] = "storage.lost"
    level: ClassVar[str] = "error"

    error: str


@frozen(kw_only=True)
class StorageBack(Event):
    """The database answers again; held calls go on."""

    name: ClassVar[str] = "storage.back"

    away_s: float


@frozen(kw_only=True)
class SchemaMigrated(Event):
    """The database was brought to a newer schema. `backup` is the file made before, if there was anything to save."""

    name: ClassVar[str] = "storage.migrated"

    from_version: int
    to_version: int
    backup: str | None


@frozen(kw_only=True)
class DiskLow(Event):
    """The folder of the data has less free space than it should. Told when it is found, then once a day while it lasts."""

    name: ClassVar[str] = "disk.low"
    level: ClassVar[str] = "warning"

    folder: str
    free_bytes: int
    wanted_bytes: int


@frozen(kw_only=True)
class NoticeSent(Event):
    """A person was told: one address took a notification with this title, and as many lines."""

    name: ClassVar[str] = "notify.told"

    title: str
    lines: int


# The stream itself


@frozen(kw_only=True)
class EventsLost(Event):
    """A reader of the stream was too slow; the oldest events were dropped for it."""

    name: ClassVar[str] = "events.lost"
    level: ClassVar[str] = "warning"

    count: int


@frozen(kw_only=True)
class ListenerFailed(Event):
    """A listener raised and is not called again."""

    name: ClassVar[str] = "events.listener_failed"
    level: ClassVar[str] = "error"

    listener: str
    error: BaseException


# The playground


@frozen(kw_only=True)
class PlaygroundOpened(Event):
    """The sites are invented ones on this machine; nothing leaves it. `leave_with` makes settings for real ones."""

    name: ClassVar[str] = "playground.opened"
    level: ClassVar[str] = "warning"

    address: str
    sites: int
    leave_with: str


@frozen(kw_only=True)
class PlaygroundSearched(Event):
    """An invented person has searched, and this came of it."""

    name: ClassVar[str] = "playground.searched"

    words: str
    found: int
    answered: tuple[str, ...]
    not_answered: tuple[str, ...]


# The service


@frozen(kw_only=True)
class ServiceReady(Event):
    """Every child of the tree has acknowledged its start."""

    name: ClassVar[str] = "service.ready"

    version: str
    took_s: float


@frozen(kw_only=True)
class ServiceStopping(Event):
    """The service was told to stop, or has failed, and stops its children in reverse order."""

    name: ClassVar[str] = "service.stopping"

    why: str

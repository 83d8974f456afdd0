"""Parcel, Handover states, what to do in doubt, TargetError family, infohash of a magnet."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Final

from attrs import Attribute, field, frozen

from cormorant.rules.errors import CormorantError, NotFound
from cormorant.rules.secrets import redact_link

DOUBT_S: Final = 10.0
"""How long after a sending in doubt its target is asked, and how long until it is asked again: some show an item late."""
DOUBT_S_MAX: Final = 3_600.0
ASKED_MAX: Final = 2
"""So often it is asked before its silence counts as a no."""
FOLLOW_S: Final = 60.0
"""How often a target is asked how far it is, at first."""
FOLLOW_S_MAX: Final = 900.0
GONE_S: Final = 3_600.0
"""So long a target that is missed is waited for: another process may know it, or somebody notices the mistake."""


class HandoverState(StrEnum):
    """Where a handover is."""

    SENDING = "sending"
    """It is about to be sent, or was: after a crash nobody knows."""
    IN_DOUBT = "in doubt"
    WAITING = "waiting"
    """The target could not be reached, so surely nothing has arrived; it is sent again."""
    HELD = "held"
    """It may have arrived, the target cannot be asked, and a person decides."""
    HANDED_OVER = "handed over"
    DONE = "done"
    FAILED = "failed"


class InDoubt(StrEnum):
    """What to do about a target that cannot be asked."""

    RESEND = "resend"
    """Send again under the same key; the target may get it twice."""
    HOLD = "hold"
    """Send no more until a person says so; the target may not have got it."""


@frozen(kw_only=True)
class Handover:
    """One candidate of a want given to one target, once."""

    id: int = 0
    want_id: int
    ref: str
    """Which candidate."""
    target: str
    key: str
    """What the target recognises it by: the same however often it is sent."""
    title: str
    state: HandoverState = HandoverState.SENDING
    reason: str = ""
    asked: int = 0
    """How often the target was asked since the last sending, and said no."""
    sent: int = 0
    facts: Mapping[str, Any] = field(factory=dict, hash=False)
    """The infohash, the peer: what the target is asked by."""
    target_id: str | None = None
    created_at: datetime
    changed_at: datetime
    next_at: datetime | None = None
    token: int = field(default=0, repr=False)
    """Rises with each claim: only the current owner may write."""


class NextStep(StrEnum):
    """What comes next for a sending of which nobody knows whether it arrived."""

    ASK = "ask"
    SEND = "send"
    HOLD = "hold"


def step_in_doubt(*, can_be_asked: bool, asked: int, otherwise: InDoubt) -> NextStep:
    """What to do when it may have arrived. A target that twice does not know of it has not got it.

    >>> [step_in_doubt(can_be_asked=True, asked=n, otherwise=InDoubt.HOLD).value for n in (0, 1, 2)]
    ['ask', 'ask', 'send']
    >>> step_in_doubt(can_be_asked=False, asked=0, otherwise=InDoubt.HOLD).value
    'hold'
    """
    if can_be_asked:
        return NextStep.ASK if asked < ASKED_MAX else NextStep.SEND
    return NextStep.SEND if otherwise is InDoubt.RESEND else NextStep.HOLD


def doubt_s(sent: int) -> float:
    """How long after a sending that did not arrive it is sent again: longer each time, as that may go on for ever.

    >>> [doubt_s(sent) for sent in (1, 2, 5, 50)]
    [10.0, 20.0, 160.0, 3600.0]
    """
    return min(DOUBT_S_MAX, DOUBT_S * 2.0 ** min(max(0, sent - 1), 20))


def follow_again_s(age_s: float, *, least_s: float = FOLLOW_S) -> float:
    """After how long a target is asked again how far it is: a tenth of the time it took so far, within bounds.

    >>> [follow_again_s(age) for age in (0, 3_000, 86_400)]
    [60.0, 300.0, 900.0]
    """
    return min(FOLLOW_S_MAX, max(least_s, age_s / 10))


def missing_target_wait_s(handover: Handover, *, now: datetime) -> float | None:
    """How long a target has been missed that is not known here. None: nobody has written that down, or who knows it came since."""
    age_s = (now - handover.changed_at).total_seconds()
    return age_s if handover.reason == target_removed_reason(handover.target) and age_s >= 0 else None


def target_removed_reason(target: str) -> str:
    """What is told of a target that has gone."""
    return f"target {target} is no longer configured"


KEY_LENGTH_MAX = 64
_KEY = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{KEY_LENGTH_MAX - 1}}}")


class ParcelKind(Enum):
    """What is in a parcel."""

    TORRENT = "torrent"
    MAGNET = "magnet"
    NZB = "nzb"
    URL = "url"
    """An enclosure that is still to be fetched."""
    FILES = "files"
    """Files of a peer."""


def _check_key(_parcel: object, _attribute: Attribute[Any], key: str) -> None:
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"the key of a parcel has 1 to {KEY_LENGTH_MAX} of a-z, 0-9 and -, not - first; this is {key!r}"
        )


@frozen(kw_only=True)
class Parcel:
    """What is handed over, once.

    A torrent has a body, a magnet a link, an NZB either; files of a peer have `username` and `files`.
    `folder_parts` are what name templates may use: feed, artist, title.
    """

    key: str = field(validator=_check_key)
    """Ours, the same at every attempt and no other parcel's: targets recognise it by this."""
    title: str
    """As it was found: it may hold anything."""
    kind: ParcelKind
    body: bytes | None = field(default=None, repr=lambda body: "None" if body is None else f"<{len(body)} bytes>")
    link: str | None = field(default=None, repr=lambda link: "None" if link is None else redact_link(link))
    infohash: str | None = None
    folder_parts: Mapping[str, str] = field(factory=dict)
    username: str = ""
    """The peer whose files these are."""
    files: tuple[tuple[str, int], ...] = field(default=(), repr=lambda files: f"<{len(files)} files>")
    """Their names and sizes, exactly as the peer states them."""


class ParcelState(Enum):
    """What a target says of a parcel."""

    ABSENT = "absent"
    """It has not got it. Right after giving, that may still change."""
    PRESENT = "present"
    """It has it and is not working on it: queued, paused, or just taken."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It cannot say."""


@frozen(kw_only=True)
class ParcelStatus:
    """What a target said of a parcel, and under which name it keeps it. Kept, and shown to it at the next look."""

    target_id: str | None = None
    standing: ParcelState
    reason: str | None = None
    is_stalled: bool = False
    """It runs and gets nothing. If that lasts, another candidate is better."""


@frozen(kw_only=True)
class TargetView:
    """A target as it is shown: what it takes, and what happens in doubt. No address, no key."""

    name: str
    kind: str
    takes: tuple[str, ...]
    can_be_asked: bool
    in_doubt: str


class TargetError(CormorantError):
    """A target did not take what it was given. `target` is its name, set by whoever knows it."""

    http_status = 502
    exit_code = 1

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


def no_target(name: str, known: Sequence[str]) -> NotFound:
    """The error for a target that there is not."""
    there = f"there are {', '.join(sorted(known))}" if known else "write [targets.NAME] in the settings file first"
    return NotFound("target", name[:40], there)


_HASH = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_BTIH = re.compile(r"[?&]xt(?:\.\d+)?=urn(?::|%3A)btih(?::|%3A)([0-9A-Za-z]{32,40})(?![0-9A-Za-z])", re.IGNORECASE)
_BTMH = re.compile(r"[?&]xt(?:\.\d+)?=urn(?::|%3A)btmh(?::|%3A)1220([0-9A-Fa-f]{64})(?![0-9A-Za-z])", re.IGNORECASE)
_BASE32_LENGTH = 32


def read_infohash(text: str | None) -> str | None:
    """An infohash in its usual spelling; None when it is none.

    >>> read_infohash("38C747C92231B893C6C00CDD8C1E32F6547E21B0"), read_infohash("(removed)")
    ('38c747c92231b893c6c00cdd8c1e32f6547e21b0', None)
    """
    text = (text or "").strip()
    if len(text) == _BASE32_LENGTH:
        try:
            return base64.b32decode(text.upper()).hex()
        except ValueError:
            return None
    return text.lower() if _HASH.fullmatch(text) else None


def infohash_of_magnet(link: str) -> str | None:
    """The infohash that a magnet link names; None when it names none.

    >>> infohash_of_magnet("magnet:?dn=x&xt=urn:btih:VU2QYN66WU7FTPXSG3TFDRXW6KTEBPBF")
    'ad350c37deb53e59bef236e651c6f6f2a640bc25'
    """
    found = _BTIH.search(link)
    return read_infohash(found[1]) if found else None


def infohash_v2_of_magnet(link: str) -> str | None:
    """The infohash of version 2 that a magnet link names, alone or beside the other; None when it names none.

    >>> infohash_v2_of_magnet("magnet:?xt=urn:btmh:1220" + "AB" * 32) == "ab" * 32
    True
    """
    found = _BTMH.search(link)
    return found[1].lower() if found else None

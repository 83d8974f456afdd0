"""Want, its states and changes; keys cut to length."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from cormorant.rules.errors import ConflictError

LOOKS_S: Final = (3_600.0, 6 * 3_600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0)
"""How long after a look that found nothing the next one follows."""
LOOKS_MAX: Final = 12
"""After so many it is given up: about two months."""
WANT_KIND: Final = "want"
HANDOVER_KIND: Final = "handover"
"""The kinds of the jobs that search for a want, and that hand over what was chosen."""
KEY_LENGTH_MAX: Final = 500
TRACKS_MAX: Final = 40
"""An album with more tracks is not wanted piece by piece."""
TRACKS_AFTER: Final = 2
"""After so many looks in vain for a whole album its tracks are wanted one by one."""


class WantState(StrEnum):
    """Where a want is."""

    WANTED = "wanted"
    """It is to be searched, now or at `next_at`."""
    SEARCHING = "searching"
    CHOSEN = "chosen"
    """A candidate is chosen and waits to be handed over, by a job or, in observe mode, by hand."""
    SENDING = "sending"
    IN_DOUBT = "in doubt"
    """It may have arrived at its target; that is being found out, or held for a person."""
    HANDED_OVER = "handed over"
    DONE = "done"
    GAVE_UP = "gave up"
    IGNORED = "ignored"


_S = WantState
_CHANGES: Final[Mapping[WantState, frozenset[WantState]]] = {
    _S.WANTED: frozenset({_S.WANTED, _S.SEARCHING, _S.CHOSEN, _S.IGNORED, _S.GAVE_UP}),
    _S.SEARCHING: frozenset({_S.SEARCHING, _S.WANTED, _S.CHOSEN, _S.GAVE_UP, _S.IGNORED}),
    _S.CHOSEN: frozenset({_S.CHOSEN, _S.SENDING, _S.WANTED, _S.GAVE_UP, _S.IGNORED}),
    _S.SENDING: frozenset({_S.SENDING, _S.IN_DOUBT, _S.HANDED_OVER, _S.DONE, _S.CHOSEN, _S.GAVE_UP}),
    _S.IN_DOUBT: frozenset({_S.IN_DOUBT, _S.SENDING, _S.HANDED_OVER, _S.DONE, _S.CHOSEN, _S.GAVE_UP}),
    _S.HANDED_OVER: frozenset({_S.DONE, _S.CHOSEN, _S.GAVE_UP}),
    _S.DONE: frozenset(),
    _S.GAVE_UP: frozenset({_S.WANTED, _S.CHOSEN, _S.IGNORED}),
    _S.IGNORED: frozenset({_S.WANTED}),
}
SETTLED: Final = frozenset({_S.DONE, _S.GAVE_UP, _S.IGNORED})
LIVE: Final = frozenset(WantState) - SETTLED
_ON_ITS_WAY: Final = frozenset({_S.SENDING, _S.IN_DOUBT, _S.HANDED_OVER})
_SHORT: Final = 12


class WantError(ConflictError):
    """Something cannot be done with a want."""


class WantChangeRefused(WantError):
    """A want cannot go from where it is to where it was told to."""

    def __init__(self, want_id: int, state: WantState, wanted: WantState) -> None:
        told = {
            _S.DONE: "is done and stays so: its target has it",
            _S.IGNORED: f"is ignored; want it again first: `cormorant wants retry {want_id}`",
        }
        super().__init__(f"want {want_id} {told.get(state, f'is {state.value} and cannot become {wanted.value}')}")
        self.want_id = want_id
        self.state = state


class CannotHandOver(WantError):
    """A find cannot be handed over by hand as things are; the message says why."""


@frozen(kw_only=True)
class Want:
    """Something that is wanted once, whatever found it."""

    id: int = 0
    key: str
    """The same for the same thing, whoever wants it."""
    kind: str
    """album, track, item or search."""
    title: str
    artist: str = ""
    watch: str = ""
    """Which watch found it, such as artist:12 or saved:freeleech."""
    state: WantState = WantState.WANTED
    reason: str = ""
    sources: tuple[str, ...] = ()
    """Where it is searched; nothing: everywhere."""
    profile: str = ""
    targets: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(factory=dict, hash=False)
    """What is known of it: year, number of tracks, their titles."""
    looks: int = 0
    chosen_ref: str | None = None
    found_at: datetime
    changed_at: datetime
    next_at: datetime | None = None
    """When it is searched again, or since when a chosen one waits for its job; None: nothing is to happen by itself."""

    @property
    def words(self) -> str:
        """What it is searched by.

        >>> from datetime import UTC
        >>> now = datetime(2026, 1, 1, tzinfo=UTC)
        >>> Want(key="k", kind="album", artist="A", title="B", found_at=now, changed_at=now).words
        'A B'
        """
        return " ".join(f"{self.artist} {self.title}".split())


def tracks_of(want: Want, *, now: datetime) -> list[Want]:
    """The tracks of an album, to be wanted one by one where nobody has all of it. Nothing where they are not known."""
    titles = [str(title) for title in want.facts.get("tracks", ())]
    if want.kind != "album" or not 0 < len(titles) <= TRACKS_MAX:
        return []
    return [
        Want(
            key=f"{want.key[: KEY_LENGTH_MAX - 8]}/{number}",
            kind="track",
            title=title,
            artist=want.artist,
            watch=want.watch,
            reason=f"part of {want.title}, which nobody has whole",
            sources=want.sources,
            profile=want.profile,
            targets=want.targets,
            facts={"album": want.title, "number": number},
            found_at=now,
            changed_at=now,
        )
        for number, title in enumerate(titles, 1)
    ]


def check_change(want: Want, wanted: WantState) -> None:
    """Raise `WantChangeRefused` unless the want may become this."""
    if wanted not in _CHANGES[want.state]:
        raise WantChangeRefused(want.id, want.state, wanted)


def check_by_hand(want: Want) -> None:
    """Raise `CannotHandOver` for what is on its way: sent or searched once more, it could arrive twice."""
    if want.state in _ON_ITS_WAY:
        told = f"want {want.id} is {want.state.value} and may be at its target already"
        raise CannotHandOver(
            f"{told}; `cormorant wants show {want.id}` has its downloads, where what is held is decided"
        )


def short_ref(ref: str) -> str:
    """What a candidate is called where it is shown: its own ref may be a link with a key in it.

    >>> short_ref("attic/1166992")
    'ccbb2a8840ec'
    """
    return hashlib.sha256(ref.encode(errors="replace")).hexdigest()[:_SHORT]


def next_search_at(*, looks: int, now: datetime, jitter: float) -> datetime | None:
    """When to search again after `looks` searches in vain; None: no more. `jitter` in [0, 1) spreads them by a tenth.

    >>> from datetime import UTC
    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> [(next_search_at(looks=n, now=now, jitter=0.0) - now).days for n in (3, 5, 11)], next_search_at(looks=12, now=now, jitter=0)
    ([1, 7, 7], None)
    """
    if looks >= LOOKS_MAX:
        return None
    wait_s = LOOKS_S[min(looks, len(LOOKS_S)) - 1 if looks else 0]
    return now + timedelta(seconds=wait_s * (1 + 0.1 * jitter))


def short_key(key: str, most: int) -> str:
    """A key of at most so many characters; long ones that differ at their end alone stay different.

    >>> short_key("short", 60)
    'short'
    >>> len(short_key("x" * 99, 60)), short_key("x" * 99 + "a", 60) == short_key("x" * 99 + "b", 60)
    (60, False)
    """
    if len(key) <= most:
        return key
    told = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{key[: most - len(told) - 1]}#{told}"

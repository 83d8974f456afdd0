"""What is handed over, and what does a target say of it?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from attrs import Attribute, field, frozen

from cormorant.rules.redaction import hide_link

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
    link: str | None = field(default=None, repr=lambda link: "None" if link is None else hide_link(link))
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

    @property
    def is_final(self) -> bool:
        """Whether nothing more will come.

        >>> ParcelStatus(standing=ParcelState.DONE).is_final, ParcelStatus(standing=ParcelState.PRESENT).is_final
        (True, False)
        """
        return self.standing in {ParcelState.DONE, ParcelState.FAILED}


@frozen(kw_only=True)
class TargetView:
    """A target as it is shown: what it takes, and what happens in doubt. No address, no key."""

    name: str
    kind: str
    takes: tuple[str, ...]
    can_be_asked: bool
    in_doubt: str

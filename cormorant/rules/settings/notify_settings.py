"""What can be set for notifications: where they go, of what, and when not?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import frozen

from cormorant.rules.notices import NoticeKind
from cormorant.rules.quiet_hours import QuietHours, format_quiet_hours, parse_quiet_hours
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.conflicts import Conflict
from cormorant.rules.settings.fields import Kind, Setting, duration, setting_field, size
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.word_lists import words
from cormorant.rules.units import as_written

__all__ = ["ADDRESSES_MAX", "APPRISE", "NotifySettings", "notify_conflicts"]

ADDRESSES_MAX: Final = 10
_LENGTH_MAX: Final = 1_000


def _parse_addresses(value: object) -> Secret:
    # Invariant: no message here holds the value, for it has keys in it.
    given = value.split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or len(given) > ADDRESSES_MAX:
        raise ValueError(
            f"it is not one Apprise address or a list of at most {ADDRESSES_MAX}; write one, several with spaces "
            'between them, a list, { env = "NAME" } or { file = "PATH" }'
        )
    for number, each in enumerate(given, 1):
        if not isinstance(each, str) or not each.isprintable() or not 0 < len(each) <= _LENGTH_MAX or " " in each:
            raise ValueError(
                f"address {number} is not one word of at most {_LENGTH_MAX} characters; write a space as %20"
            )
    return Secret(" ".join(given))


APPRISE: Final = Kind(
    name="Apprise addresses, a secret", parse=_parse_addresses, write=lambda secret: as_written(str(secret))
)
_QUIET: Final = Kind(name="hours of the day with their zone", parse=parse_quiet_hours, write=format_quiet_hours)


@frozen(kw_only=True)
class NotifySettings:
    """Notifications to a phone, a chat or a mailbox, by Apprise. Without an address nobody is told."""

    apprise: Secret = setting_field(  # noqa: RUF009 - an attrs field is made, not a value
        Secret(""),
        Setting(
            kind=APPRISE,
            meaning="Where they go: one or several Apprise addresses, such as ntfy://my-topic or tgram://token/chat.",
        ),
    )
    on: tuple[str, ...] = words(f"Of what: {', '.join(NoticeKind)}.", default=tuple(kind.value for kind in NoticeKind))
    quiet: QuietHours | None = setting_field(  # noqa: RUF009 - as above
        None,
        Setting(
            kind=_QUIET,
            meaning='When nobody is told, such as "22:00-07:00 Europe/Berlin"; afterwards all of it is told together.',
        ),
    )
    min_interval_s: float = duration(
        60.0,
        "Between two notifications of one kind; what comes meanwhile is told together.",
        low_s=1.0,
        high_s=86_400.0,
    )
    disk_free_bytes: int = size(
        10**9, "Free space of the data folder below which is told. 0: never.", low_bytes=0, high_bytes=10**15
    )


def notify_conflicts(notify: NotifySettings) -> Iterator[Conflict]:
    """What is named and does not exist."""
    for name in notify.on:
        if name not in set(NoticeKind):
            known = [kind.value for kind in NoticeKind]
            what = f"{as_written(name)} is nothing that can be told{suggestion(name, known)}"
            yield Conflict(("notify.on",), f"{what}; allowed: {', '.join(known)}")

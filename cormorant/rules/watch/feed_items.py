"""Stable keys of feed entries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from html import unescape
from typing import Final
from urllib.parse import urljoin

from attrs import field, frozen

from cormorant.rules.secrets import Secret, keys_in, redact_keys, redact_link, shortened, spellings
from cormorant.rules.watch.feeds import FeedEntryItem

ITEMS_MAX: Final = 1_000
"""So many of a document are taken, from its top, where the new ones are."""
TITLE_MAX: Final = 300
LINK_MAX: Final = 4_000
_KEY_MAX: Final = 300
_READ_MAX: Final = 2_000
"""So much of a guid or link is looked at for secrets; the rest only tells entries apart."""
_SUMMARY_MAX: Final = 100
_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_AHEAD_MAX: Final = timedelta(days=1)
_LINKS: Final = ("http://", "https://", "magnet:")
_PACKED: Final = ("bittorrent", "nzb")
_SCHEME: Final = re.compile(r"\Ahttps?:(?=//)", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->")
# `pid=17` is a post and no password.
_NUMBERED: Final = re.compile(r"(?<=[?&;])(?:r|pid|uk|user|key|sid)=\d{1,9}(?=[&#;]|$)")
# A part of an address that means nothing to a reader: a key, or a name that only machines use.
_OPAQUE: Final = re.compile(r"(?<=/)(?=[^/?#\s]*\d)[0-9A-Za-z_-]{20,}(?=[/?#.]|$)")


@frozen(kw_only=True)
class FeedEnclosure:
    """What hangs on an entry."""

    url: str = field(repr=False)
    type: str = ""
    size_bytes: int | None = None


@frozen(kw_only=True)
class FeedEntry:
    """An entry as it is written in the document. Links are whole."""

    guid: str = field(default="", repr=False)
    link: str = field(default="", repr=False)
    title: str = ""
    summary: str = ""
    date: str = ""
    published: datetime | None = None
    enclosures: tuple[FeedEnclosure, ...] = ()


def items_of(entries: Sequence[FeedEntry], *, addresses: Iterable[str], now: datetime) -> tuple[FeedEntryItem, ...]:
    """The items of a document in its order. `addresses` are the feed's own: what is secret in them is so in the items.

    >>> now = datetime(2026, 11, 16, tzinfo=UTC)
    >>> found = items_of([FeedEntry(guid="1", title="One"), FeedEntry(title="Two")], addresses=["https://x.org/feed"], now=now)
    >>> [item.key for item in found]
    ['1', 'sha256:accdb5504f491f176056666232dc82ff']
    """
    secrets = spellings(secret for address in addresses for secret in keys_in(address))
    told_apart = [entry for entry in entries if entry.guid or entry.link or entry.title or entry.summary]
    keys = [_first_key(entry, secrets) for entry in told_apart]
    times = Counter(keys)
    found: dict[str, FeedEntryItem] = {}
    for entry, key in zip(told_apart, keys, strict=True):
        whole = _shortened(key if times[key] == 1 else f"{key}#{_hash(_safe(entry.link, secrets), entry.title)}")
        if whole not in found:  # what agrees in all of these is the same entry, written twice
            found[whole] = _item(entry, whole, secrets, now=now)
    return tuple(found.values())


def _first_key(entry: FeedEntry, secrets: Sequence[Secret]) -> str:
    if entry.guid.strip():
        return _safe(entry.guid, secrets)
    if entry.link.strip():
        # Without its scheme: a site that learns https has nothing new to tell by that.
        return _SCHEME.sub("", _safe(entry.link, secrets), count=1)
    return f"sha256:{_hash(entry.title or entry.summary, entry.date)}"


def _safe(text: str, secrets: Sequence[Secret]) -> str:
    """The same text for the same entry, that tells no key: what could be one is replaced by its digest."""
    text = text if len(text) <= _READ_MAX else f"{text[:_READ_MAX]}#{_hash(text)}"
    text = _without(_CONTROL.sub(" ", text).strip(), secrets)
    numbers = "&".join(_NUMBERED.findall(text))
    text = redact_keys(text)
    if "://" not in text:
        return text
    text = f"{text}#{numbers}" if numbers else text
    return _OPAQUE.sub(lambda found: f"~{_hash(found[0])[:16]}", text)


def _without(text: str, secrets: Iterable[Secret]) -> str:
    for secret in secrets:
        text = text.replace(secret.reveal(), "***")
    return text


def _shortened(key: str) -> str:
    return key if len(key) <= _KEY_MAX else f"{key[: _KEY_MAX - 40]}#{_hash(key)}"


def _hash(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]


def _item(entry: FeedEntry, key: str, secrets: Sequence[Secret], *, now: datetime) -> FeedEntryItem:
    chosen = _chosen(entry.enclosures)
    return FeedEntryItem(
        key=key,
        title=_title(entry, secrets) or key[:TITLE_MAX],
        link=_usable(entry.link),
        enclosure="" if chosen is None else chosen.url,
        enclosure_type="" if chosen is None else chosen.type,
        size_bytes=None if chosen is None else chosen.size_bytes,
        published=sane_date(entry.published, now=now),
    )


def _title(entry: FeedEntry, secrets: Sequence[Secret]) -> str:
    title = shortened(entry.title, secrets, length_max=TITLE_MAX)
    return (
        title
        or shortened(entry.summary, secrets, length_max=_SUMMARY_MAX)
        or redact_link(_without(entry.link, secrets))
    )


def _chosen(enclosures: Sequence[FeedEnclosure]) -> FeedEnclosure | None:
    """What can be handed over if there is such a thing, otherwise the first."""
    usable = [each for each in enclosures if _usable(each.url)]
    packed = [each for each in usable if any(word in each.type.lower() for word in _PACKED)]
    return next(iter([*packed, *usable]), None)


def _usable(link: str) -> str:
    """A link that may be followed; what would run a script or open a file is none."""
    is_link = link.lower().startswith(_LINKS) and len(link) <= LINK_MAX and not _CONTROL.search(link)
    return link if is_link else ""


def sane_date(date: datetime | None, *, now: datetime) -> datetime | None:
    """The date, if something can have been published then. A clock may be ahead by a day, for time zones.

    >>> now = datetime(2026, 11, 16, tzinfo=UTC)
    >>> [sane_date(datetime(year, 1, 1, tzinfo=UTC), now=now) is None for year in (1, 1999, 2026, 2027)]
    [True, False, False, True]
    """
    return date if date is not None and _EARLIEST <= date <= now + _AHEAD_MAX else None


def plain(text: str) -> str:
    r"""Text without its tags, on one line.

    >>> plain(" The <b>new</b> &amp; only\n one, 2 < 3 ")
    'The new & only one, 2 < 3'
    """
    text = _TAG.sub("", text) if "<" in text else text
    return " ".join(unescaped(text).split())


def unescaped(text: str) -> str:
    """Text with the characters that its entities stand for; as it is, when one has more digits than Python reads.

    >>> unescaped("A &amp; B &#65;"), unescaped(f"&#{'9' * 5000};")[:4]
    ('A & B A', '&#99')
    """
    try:
        return unescape(text) if "&" in text else text
    except ValueError:
        return text


def is_whole(link: str) -> bool:
    """Whether a link says all of its address."""
    return link.startswith(_LINKS)


def joined(base: str, link: str) -> str:
    """A link made whole; as it is, when that is impossible.

    >>> joined("https://x.org/feed/a.xml", "../b"), joined("https://x.org/", "magnet:?xt=1")
    ('https://x.org/b', 'magnet:?xt=1')
    """
    link = link.strip()
    try:
        return urljoin(base, link) if link and base and not is_whole(link) else link
    except ValueError:
        return link

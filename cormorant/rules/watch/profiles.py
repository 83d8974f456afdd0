"""Accepts, rejects and ranks candidates with reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache

from attrs import field, frozen

from cormorant.rules.search.requests import Result
from cormorant.rules.units import format_duration, format_size

__all__ = ["FREELEECH", "Judgement", "Profile", "best_first", "judge", "matches", "pattern_problem"]

FREELEECH = "freeleech"
"""In `prefer`: what costs no ratio, whatever its title says."""

PATTERN_LENGTH_MAX = 200
_TITLE_LENGTH_MAX = 500
"""No more of a title is looked at: it comes from outside, and patterns take their time."""


@frozen(kw_only=True)
class Profile:
    """What is wanted of a find. What is empty or None is not asked for. Patterns are regular expressions without case."""

    accept: tuple[str, ...] = ()
    """One of these must be in the title."""
    reject: tuple[str, ...] = ()
    """None of these may be."""
    size_min_bytes: int | None = None
    size_max_bytes: int | None = None
    min_seeders: int | None = None
    max_age_s: float | None = None
    freeleech: bool = False
    categories: tuple[str, ...] = ()
    """It must be in one of these; a whole group counts, such as 3000 for 3040."""
    prefer: tuple[str, ...] = ()
    """What goes first, the most important first."""


@frozen(kw_only=True)
class Judgement:
    """What a profile says of a find: why it is out, or where it stands. A higher rank goes first."""

    reasons: tuple[str, ...] = ()
    """Why it is rejected; nothing for one that is accepted."""
    merits: tuple[str, ...] = ()
    """What speaks for it."""
    rank: tuple[float, ...] = field(default=(), repr=False)

    @property
    def is_accepted(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def judge(profile: Profile, result: Result, *, now: datetime) -> Judgement:
    """What the profile says of one find.

    >>> from datetime import UTC
    >>> find = Result(title="A - B [MP3]", guid="1", link="", protocol="torrent", seeders=1)
    >>> judge(Profile(accept=("flac",), min_seeders=2), find, now=datetime(2026, 1, 1, tzinfo=UTC)).reasons
    ('title: none of flac', '1 seeder, wanted 2')
    """
    reasons = tuple(_reasons(profile, result, now))
    liked = [_has(preference, result) for preference in profile.prefer]
    merits = tuple(preference for preference, is_so in zip(profile.prefer, liked, strict=True) if is_so)
    return Judgement(reasons=reasons, merits=merits, rank=(*map(float, liked), *_standing(result)))


def best_first(judged: Iterable[tuple[str, Result, Judgement]]) -> list[tuple[str, Result, Judgement]]:
    """Those that are accepted, the best first; whoever stands equal is ordered by source and guid, the same every time."""
    accepted = [each for each in judged if each[2].is_accepted]
    return sorted(accepted, key=lambda each: (*(-part for part in each[2].rank), each[0], each[1].guid))


def pattern_problem(pattern: str) -> str | None:
    r"""Why a pattern cannot be used.

    >>> pattern_problem("(flac")
    '"(flac" is no pattern: missing ), unterminated subpattern at position 0; put \\ before a sign that means itself'
    """
    if not pattern.strip() or len(pattern) > PATTERN_LENGTH_MAX:
        return f"a pattern has 1 to {PATTERN_LENGTH_MAX} characters"
    try:
        _compiled(pattern)
    except re.error as error:
        return f'"{pattern}" is no pattern: {error}; put \\ before a sign that means itself'
    return None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def matches(pattern: str, title: str) -> bool:
    """Whether a pattern is in a title, whatever its case."""
    return _compiled(pattern).search(title[:_TITLE_LENGTH_MAX]) is not None


def _reasons(profile: Profile, result: Result, now: datetime) -> Iterator[str]:
    if profile.accept and not any(matches(pattern, result.title) for pattern in profile.accept):
        yield f"title: none of {', '.join(profile.accept)}"
    for pattern in profile.reject:
        if matches(pattern, result.title):
            yield f"title: {pattern} is rejected"
    yield from _size_reasons(profile, result.size_bytes)
    if profile.min_seeders is not None and result.protocol == "torrent":
        yield from _seeder_reasons(profile.min_seeders, result.seeders)
    if profile.max_age_s is not None and result.published is not None:
        age_s = (now - result.published).total_seconds()
        if age_s > profile.max_age_s:
            yield f"{format_duration(float(int(age_s)))} old, wanted at most {format_duration(profile.max_age_s)}"
    if profile.freeleech and result.protocol == "torrent" and not result.is_freeleech:
        yield "not freeleech"
    if profile.categories and not _is_in(profile.categories, result.categories):
        yield f"category {', '.join(result.categories) or 'unknown'}, wanted {', '.join(profile.categories)}"


def _size_reasons(profile: Profile, size_bytes: int | None) -> Iterator[str]:
    least, most = profile.size_min_bytes, profile.size_max_bytes
    if size_bytes is None:
        if least is not None or most is not None:
            yield "size unknown"
        return
    if least is not None and size_bytes < least:
        yield f"{format_size(size_bytes)}, wanted at least {format_size(least)}"
    if most is not None and size_bytes > most:
        yield f"{format_size(size_bytes)}, wanted at most {format_size(most)}"


def _seeder_reasons(least: int, seeders: int | None) -> Iterator[str]:
    if seeders is None:
        yield f"seeders unknown, wanted {least}"
    elif seeders < least:
        yield f"{seeders} seeder{'' if seeders == 1 else 's'}, wanted {least}"


def _is_in(wanted: Sequence[str], given: Sequence[str]) -> bool:
    groups = {category for category in wanted if category.endswith("000")}
    return any(each in wanted or each[:-3] + "000" in groups for each in given)


def _has(preference: str, result: Result) -> bool:
    if preference == FREELEECH:
        return result.is_freeleech
    return matches(preference, result.title)


def _standing(result: Result) -> tuple[float, ...]:
    """What counts when all that is preferred is equal: whether it will come soon, then how much of it there is."""
    # Only ours: an indexer may state an attribute of that name, and anything as its value.
    soulseek = result.attributes.get("rank", ()) if result.protocol == "soulseek" else ()
    if soulseek:
        return (float(soulseek[0]), float(result.size_bytes or 0))
    return (float(min(result.seeders or 0, 1_000)), float(result.size_bytes or 0))

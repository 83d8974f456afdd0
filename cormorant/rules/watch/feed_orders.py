"""May a feed be subscribed to as it was asked for? What is wrong is told by its part, and never with the address: it may hold a key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from cormorant.rules.schedules import Schedule, ScheduleProblem
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.times_of_day import zone_of
from cormorant.rules.watch.feeds import Subscription
from cormorant.rules.watch.profiles import pattern_problem
from cormorant.rules.web_addresses import feed_address_problem

__all__ = ["NAME_LENGTH_MAX", "USUAL_S", "check_order", "fit_name", "schedule_from"]

NAME_LENGTH_MAX: Final = 120
CRON_LENGTH_MAX: Final = 200
PATTERNS_MAX: Final = 100
TARGETS_MAX: Final = 100
FOLDERS_MAX: Final = 10
USUAL_S: Final = 6 * 3_600.0


def schedule_from(*, every_s: float | None = None, cron: str = "", zone: str = "") -> Schedule:
    """The schedule that was asked for, every 6 hours if nothing was said; or `BadRequest` that names the part.

    >>> schedule_from(cron="0 9 * * MON", zone="Europe/Berlin").zone
    'Europe/Berlin'
    """
    if every_s is not None and cron:
        raise BadRequest("cron", "an interval is given, too; leave one of both out")
    if len(cron) > CRON_LENGTH_MAX or not cron.isprintable():
        raise BadRequest("cron", "it is too long, or no single line; write it like 0 */6 * * *")
    if zone and not _is_zone(zone):
        raise BadRequest("zone", f"{zone[:40]!r} is no time zone; write one like Europe/Berlin")
    if zone and not cron:
        raise BadRequest("zone", "an interval is the same in every zone; give cron with it, or leave it out")
    try:
        if cron:
            return Schedule(cron=" ".join(cron.split()), zone=zone or "UTC")
        return Schedule(every_s=USUAL_S if every_s is None else every_s)
    except ScheduleProblem as problem:
        raise BadRequest("cron" if cron else "every", str(problem)) from None


def _is_zone(zone: str) -> bool:
    try:
        zone_of(zone)
    except (ValueError, KeyError):
        return False
    return True


def fit_name(said: str) -> str:
    r"""What is left of a name or folder when all is taken out that none may have; maybe nothing.

    >>> fit_name(" soft\xadhyphen\n\u2028and  more\u200d ")
    'softhyphen and more'
    """
    kept = "".join(mark for mark in said if mark.isprintable() or mark.isspace())
    return " ".join(kept.split())[:NAME_LENGTH_MAX].strip()


def check_order(wanted: Subscription, *, targets: Collection[str] | None, configured: Collection[str]) -> None:
    """Raise `BadRequest` unless it can be subscribed to like this."""
    name = wanted.name
    if not name.strip() or name != name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise BadRequest("name", f"give a single line of 1 to {NAME_LENGTH_MAX} characters, without spaces around it")
    if name.isdecimal():
        raise BadRequest("name", f"{name} would be taken for the number of a feed; add a word")
    if name in configured:
        raise BadRequest("name", f"the settings file has [feeds.{name}] already; change it there, or choose another")
    problem = feed_address_problem(wanted.url)
    if problem:
        raise BadRequest("url", problem)
    for part, given in (("accept", wanted.accept), ("reject", wanted.reject)):
        _check_patterns(part, given)
    _check_folder(wanted.folder)
    if targets is not None:
        _check_targets(wanted.targets, targets)


def _check_folder(given: Sequence[str]) -> None:
    if len(given) > FOLDERS_MAX:
        raise BadRequest("folder", f"{len(given)} are within each other; {FOLDERS_MAX} are allowed")
    if not all(0 < len(name) <= NAME_LENGTH_MAX and name.isprintable() for name in given):
        raise BadRequest("folder", f"give single lines of 1 to {NAME_LENGTH_MAX} characters")


def _check_patterns(part: str, given: Sequence[str]) -> None:
    if len(given) > PATTERNS_MAX:
        raise BadRequest(part, f"{len(given)} patterns are given; {PATTERNS_MAX} are allowed")
    for pattern in given:
        problem = pattern_problem(pattern)
        if problem:
            raise BadRequest(part, problem)


def _check_targets(given: Sequence[str], known: Collection[str]) -> None:
    if len(given) > TARGETS_MAX:
        raise BadRequest("hand_to", f"{len(given)} are named; {TARGETS_MAX} are allowed")
    for name in given:
        if name not in known:
            there = f"; there are {', '.join(sorted(known))}" if known else "; write [targets.NAME] first"
            raise BadRequest("hand_to", f"there is no target {name[:40]!r}{there}")

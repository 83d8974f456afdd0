"""How are subscriptions told to people? What each is, when it is checked, and how it went; never a key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from attrs import frozen

from cormorant.cli.console.output import painter, pairs, printable, table
from cormorant.rules.schedules import SchedulePreview
from cormorant.rules.units import clock_time, format_duration, from_now
from cormorant.services.watch.feed_views import CheckOut, SubscriptionOut, SubscriptionShownOut

__all__ = ["FeedText", "timing"]

_PAINT = painter({"paused": "yellow", "failed": "red", "success": "green"})


@frozen(kw_only=True)
class FeedText:
    """Words for one look."""

    now: datetime
    zone: tzinfo

    def listed(self, found: Sequence[SubscriptionOut], *, after: int | None) -> Iterator[str]:
        """A page of them."""
        if not found:
            yield "nothing is subscribed to here; subscribe: cormorant subscriptions add NAME URL"
            return
        rows = [
            (str(each.id), each.name, timing(each), self._next(each), each.url, self._state(each)) for each in found
        ]
        head = ("NO", "NAME", "WHEN", "NEXT CHECK", "FEED", "HOW IT WENT")
        yield from table(head, rows, right=("NO",), paint=_PAINT)
        if after is not None:
            yield f"there are more: --after {after}"

    def shown(self, shown: SubscriptionShownOut) -> Iterator[str]:
        """One of them with its last checks."""
        each = shown.subscription
        yield f"subscription {each.id}  {printable(each.name)}"
        yield from pairs(list(self._facts(each)), indent="  ")
        yield ""
        yield from self._checks(shown.checks)

    def plan(self, plan: SchedulePreview, *, empty: str) -> Iterator[str]:
        """What runs when."""
        if not plan.runs:
            yield empty
            return
        rows = [(clock_time(run.at, self.now, self.zone), self._due(run.at), run.kind, run.name) for run in plan.runs]
        yield from table(("AT", "FROM NOW", "WHAT", "NAME"), rows)
        if plan.has_more:
            yield "there is more: raise --limit, or look less far ahead"

    def _facts(self, each: SubscriptionOut) -> Iterator[tuple[str, str]]:
        yield "feed", each.url
        yield "checked", timing(each)
        if each.effective_s is not None:
            why = f"after {each.failures} failures" if each.failures else "by its activity"
            yield "really", f"every {format_duration(each.effective_s)} {why}"
        yield "next check", f"paused: {each.paused_because}" if each.is_paused else self._when(each.next_check_at)
        yield "what is new", "is wanted" if each.auto_import else "is only counted"
        yield "first check", "takes all that is there" if each.first_check == "take" else "leaves out what is there"
        yield "must have", ", ".join(each.accept) or "anything"
        yield "must not have", ", ".join(each.reject) or "nothing is left out"
        yield "handed to", ", ".join(each.hand_to) or "nobody: what is new is only shown"
        if each.folder:
            yield "folder", " / ".join(each.folder)
        yield "set", "in the settings file" if each.origin == "configured" else each.origin
        yield "how it went", self._state(each)

    def _checks(self, checks: Sequence[CheckOut]) -> Iterator[str]:
        if not checks:
            yield "no check yet"
            return
        rows = [
            (
                self._when(each.started_at),
                each.status,
                str(each.items_found),
                str(each.new_items),
                f"{each.duration_ms} ms",
                each.error or "",
            )
            for each in checks
        ]
        head = ("CHECKED", "STATUS", "ITEMS", "NEW", "TOOK", "ERROR")
        yield from table(head, rows, right=("ITEMS", "NEW", "TOOK"), paint=_PAINT)

    def _next(self, each: SubscriptionOut) -> str:
        return "paused" if each.is_paused else self._due(each.next_check_at)

    def _state(self, each: SubscriptionOut) -> str:
        if each.paused_because:
            return each.paused_because
        if each.last_checked_at is None:
            return "not checked yet"
        checked = f"checked {from_now(each.last_checked_at, self.now)}"
        often = "once" if each.failures == 1 else f"{each.failures} times"
        return f"{checked}, failed {often}: {each.last_error}" if each.last_error else checked

    def _due(self, moment: datetime) -> str:
        return "now" if moment <= self.now else from_now(moment, self.now)

    def _when(self, moment: datetime) -> str:
        return f"{clock_time(moment, self.now, self.zone)} ({from_now(moment, self.now)})"


def timing(each: SubscriptionOut) -> str:
    """When it is checked, as it was said."""
    return f"every {format_duration(each.every_s)}" if each.every_s is not None else f"{each.cron} {each.zone}"

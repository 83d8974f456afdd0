"""Feeds over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import attrs
from litestar import Router, delete, get, post
from litestar.enums import RequestEncodingType
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath, QueryParameter

from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.watch import other_feed_values
from cormorant.rules.watch.feeds import schedule_from
from cormorant.services.watch.feed_views import (
    CheckOut,
    RescheduleBody,
    SubscriptionBody,
    SubscriptionOut,
    SubscriptionShownOut,
    SubscriptionsOut,
    check_out,
    subscription_out,
)
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown

__all__ = ["subscription_routes"]

_ID_MAX: Final = 2**53
"""As large as JSON can say it exactly: the document of the API names it as a float."""
_FIRST: Final = ("skip", "take")
_YEAR_MAX: Final = 9_000
_FEEDS: Final = [
    Example(
        summary="Every hour, what is new and fits is handed over",
        value={
            "name": "releases",
            "url": "https://example.org/feed.xml",
            "every_s": 3600,
            "accept": ["flac"],
            "hand_to": [],
        },
    ),
    Example(
        summary="At nine on Mondays",
        value={
            "name": "weekly",
            "url": "https://example.org/weekly.xml",
            "cron": "0 9 * * MON",
            "zone": "Europe/Berlin",
        },
    ),
]
_TIMES: Final = [
    Example(summary="As its schedule says", value={}),
    Example(summary="At a time", value={"at": "2026-11-16T12:00:00Z"}),
]


@get("/subscriptions", summary="Subscriptions")
async def list_subscriptions(
    request: AnyRequest,
    after: Annotated[int, QueryParameter(ge=0, le=_ID_MAX)] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = 50,
) -> SubscriptionsOut:
    """In the order they came, a page at a time; those of the settings file too. Keys in addresses are hidden."""
    port = parts_of(request).subscriptions
    found = await port.page(after_id=after, limit=limit)
    last = await port.last_checks([each.id for each in found])
    return SubscriptionsOut(
        subscriptions=[subscription_out(each) for each in found],
        last_checks={str(each.id): check_out(each, last[each.id]) for each in found if each.id in last},
        next_after=found[-1].id if len(found) == limit else None,
    )


@get("/subscriptions/{subscription:str}", summary="One subscription and its last checks")
async def show_subscription(
    request: AnyRequest,
    subscription: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = 20,
) -> SubscriptionShownOut:
    """By name, or by number."""
    port = parts_of(request).subscriptions
    found = await port.find_any(subscription)
    checks = await port.checks(found.id, limit=limit)
    return SubscriptionShownOut(
        subscription=subscription_out(found), checks=[check_out(found, each) for each in checks]
    )


@post("/subscriptions", summary="Subscribe to a feed", status_code=201)
async def subscribe(
    request: AnyRequest, data: Annotated[SubscriptionBody, Body(media_type=RequestEncodingType.JSON, examples=_FEEDS)]
) -> SubscriptionOut:
    """It is checked at once. A name that is taken is a conflict."""
    refuse_unknown(await request.json(), SubscriptionBody)
    if data.first_check not in _FIRST:
        raise BadRequest("first_check", f"{data.first_check[:40]!r} is not possible; use skip or take")
    made = await parts_of(request).subscriptions.subscribe(
        data.name,
        data.url,
        schedule_from(every_s=data.every_s, cron=data.cron, zone=data.zone),
        is_adaptive=data.adaptive,
        auto_import=data.auto_import,
        takes_first=data.first_check == "take",
        accept=tuple(data.accept),
        reject=tuple(data.reject),
        targets=tuple(data.hand_to),
        folder=tuple(data.folder),
        **other_feed_values(attrs.asdict(data)),
    )
    return subscription_out(made)


@delete("/subscriptions/{subscription:str}", summary="Subscribe no more", status_code=204)
async def unsubscribe(request: AnyRequest, subscription: FromPath[str]) -> None:
    """What was wanted stays. One of the settings file is a conflict: take it out there."""
    await parts_of(request).subscriptions.unsubscribe(subscription)


@post("/subscriptions/{subscription:str}/check", summary="Check a feed now", status_code=200)
async def check(request: AnyRequest, subscription: FromPath[str]) -> CheckOut:
    """Waits for what comes of it; a check that runs is joined. One that is paused is checked, too, and stays paused."""
    port = parts_of(request).subscriptions
    found = await port.find_any(subscription)
    return check_out(found, await port.check(found.id))


@post("/subscriptions/{subscription:str}/pause", summary="Leave a feed alone", status_code=200)
async def pause(request: AnyRequest, subscription: FromPath[str]) -> SubscriptionOut:
    """Until it is resumed."""
    port = parts_of(request).subscriptions
    found = await port.find_any(subscription)
    await port.pause(found.name)
    return subscription_out(await port.find_any(found.name))


@post("/subscriptions/{subscription:str}/resume", summary="Go on with a feed", status_code=200)
async def resume(request: AnyRequest, subscription: FromPath[str]) -> SubscriptionOut:
    """Failures are forgotten, and it is due at once."""
    port = parts_of(request).subscriptions
    found = await port.find_any(subscription)
    await port.resume(found.name)
    return subscription_out(await port.find_any(found.name))


@post("/subscriptions/{subscription:str}/reschedule", summary="Give a feed another time", status_code=200)
async def reschedule(
    request: AnyRequest,
    subscription: FromPath[str],
    data: Annotated[RescheduleBody, Body(media_type=RequestEncodingType.JSON, examples=_TIMES)],
) -> SubscriptionOut:
    """Once; after it the schedule holds again."""
    refuse_unknown(await request.json(), RescheduleBody)
    port = parts_of(request).subscriptions
    found = await port.find_any(subscription)
    if data.at is None:
        return subscription_out(await port.reschedule_anew(found.id))
    await port.reschedule(found.id, _moment(data.at))
    return subscription_out(await port.find_any(found.name))


def _moment(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadRequest("at", "it has no zone; write it like 2026-11-16T12:00:00Z")
    if not 1970 < at.year < _YEAR_MAX:  # noqa: PLR2004 - the year in which clocks began
        raise BadRequest("at", "it is too far away")
    return at.astimezone(UTC)


def subscription_routes() -> Router:
    """The addresses of this file."""
    handlers = [list_subscriptions, show_subscription, subscribe, unsubscribe, check, pause, resume, reschedule]
    return Router("/", route_handlers=handlers, tags=["subscriptions"])

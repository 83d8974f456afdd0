"""Artists, saved searches, feeds and prices over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import attrs
from litestar import Response, Router, delete, get, post
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath, QueryParameter

from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.settings.watch import other_feed_values
from cormorant.rules.watch.artists import read_start
from cormorant.rules.watch.feeds import schedule_from
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from cormorant.services.watch.views import (
    ArtistBody,
    ArtistOut,
    CheckOut,
    PriceBody,
    PriceOut,
    PriceShownOut,
    RescheduleBody,
    SavedBody,
    SavedOut,
    SubscriptionBody,
    SubscriptionOut,
    SubscriptionShownOut,
    SubscriptionsOut,
    ValueOut,
    artist_out,
    check_out,
    price_out,
    price_shown_out,
    saved_out,
    subscription_out,
    value_out,
)
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown
from storage.watch.artists import ARTIST
from storage.watch.saved_searches import SAVED

_ARTISTS: Final = [
    Example(summary="By name, looked up at Spotify", value={"artist": "Boards of Canada"}),
    Example(
        summary="By id, nobody is asked",
        value={"id": "2VAvhf61GgLYmC6C8anyX1", "name": "Boards of Canada", "start": "all", "hand_to": ["qbittorrent"]},
    ),
]
_SEARCHES: Final = [
    Example(
        summary="Freeleech music, every hour",
        value={
            "name": "freeleech",
            "categories": [3040],
            "every_s": 3600,
            "choose": "flac",
            "hand_to": ["qbittorrent"],
        },
    )
]


@get("/watchlist", summary="All artists on the watchlist")
async def list_artists(request: AnyRequest) -> list[ArtistOut]:
    """In the order they came."""
    return [artist_out(each) for each in await parts_of(request).watches.artists()]


@post("/watchlist", summary="Watch an artist", status_code=201)
async def add_artist(
    request: AnyRequest, data: Annotated[ArtistBody, Body(media_type=RequestEncodingType.JSON, examples=_ARTISTS)]
) -> Response[ArtistOut]:
    """What comes out from `start` on is wanted. Who is watched already is a conflict."""
    refuse_unknown(await request.json(), ArtistBody)
    watches = parts_of(request).watches
    try:
        start, start_on = read_start(data.start)
    except ValueError as error:
        raise BadRequest("start", str(error)) from None
    artist_id, name = data.id, data.name or data.artist
    if not artist_id:
        found = await watches.find_artist(data.artist)
        artist_id, name = found.id, data.name or found.name
    artist = await watches.watch_artist(
        artist_id,
        name=name,
        start=start,
        start_on=start_on,
        every_s=data.every_s,
        sources=data.search,
        profile=data.choose,
        targets=data.hand_to,
    )
    if artist is None:
        raise ARTIST.already_exists(name)
    return Response(artist_out(artist), status_code=201)


@delete("/watchlist/{artist:str}", summary="Watch an artist no more", status_code=204)
async def remove_artist(request: AnyRequest, artist: FromPath[str]) -> None:
    """By number, id or name. What was found stays."""
    await parts_of(request).watches.unwatch_artist(artist)


@post("/watchlist/{artist:str}/check", summary="Look at an artist at the next tick", status_code=200)
async def check_artist(request: AnyRequest, artist: FromPath[str]) -> ArtistOut:
    """Whatever failed before is forgotten."""
    return artist_out(await parts_of(request).watches.check_artist(artist))


@post("/watchlist/{artist:str}/pause", summary="Leave an artist alone", status_code=200)
async def pause_artist(request: AnyRequest, artist: FromPath[str]) -> ArtistOut:
    """Until it is resumed; what came out meanwhile is found then. What was found already goes its way."""
    return artist_out(await parts_of(request).watches.pause_artist(artist))


@post("/watchlist/{artist:str}/resume", summary="Go on with an artist", status_code=200)
async def resume_artist(request: AnyRequest, artist: FromPath[str]) -> ArtistOut:
    """End a pause. It is looked at when it is due, which may be at once."""
    return artist_out(await parts_of(request).watches.pause_artist(artist, is_paused=False))


@get("/saved-searches", summary="All saved searches")
async def list_saved(request: AnyRequest) -> list[SavedOut]:
    """By name; those of the settings file too."""
    return [saved_out(each) for each in await parts_of(request).watches.saved()]


@post("/saved-searches", summary="Repeat a search", status_code=201)
async def save_search(
    request: AnyRequest, data: Annotated[SavedBody, Body(media_type=RequestEncodingType.JSON, examples=_SEARCHES)]
) -> SavedOut:
    """What is new in it is wanted."""
    refuse_unknown(await request.json(), SavedBody)
    if data.first_check not in set(FirstCheck):
        raise BadRequest("first_check", f"{data.first_check[:40]!r} is not possible; use skip or take")
    saved = await parts_of(request).watches.save_search(
        data.name,
        SearchRequest(query=data.query, categories=data.categories),
        every_s=data.every_s,
        sources=data.search,
        profile=data.choose,
        targets=data.hand_to,
        first_check=FirstCheck(data.first_check),
    )
    return saved_out(saved)


@delete("/saved-searches/{name:str}", summary="Repeat a search no more", status_code=204)
async def remove_search(request: AnyRequest, name: FromPath[str]) -> None:
    """What was found stays."""
    await parts_of(request).watches.remove_search(name)


@post("/saved-searches/{name:str}/pause", summary="Leave a saved search alone", status_code=200)
async def pause_search(request: AnyRequest, name: FromPath[str]) -> SavedOut:
    """Until it is resumed."""
    await parts_of(request).watches.pause_search(name)
    return saved_out(await _saved(request, name))


@post("/saved-searches/{name:str}/resume", summary="Go on with a saved search", status_code=200)
async def resume_search(request: AnyRequest, name: FromPath[str]) -> SavedOut:
    """End a pause."""
    await parts_of(request).watches.pause_search(name, is_paused=False)
    return saved_out(await _saved(request, name))


@post("/saved-searches/{name:str}/check", summary="Repeat a saved search now, also while it is paused", status_code=200)
async def check_search(request: AnyRequest, name: FromPath[str]) -> SavedOut:
    """As soon as its sources may be asked."""
    await parts_of(request).watches.check_search(name)
    return saved_out(await _saved(request, name))


async def _saved(request: AnyRequest, name: str) -> SavedSearch:
    for each in await parts_of(request).watches.saved():
        if each.name == name:
            return each
    raise SAVED.not_found(name)


def watch_routes() -> Router:
    """The addresses of this file."""
    artists = [list_artists, add_artist, remove_artist, check_artist, pause_artist, resume_artist]
    saved = [list_saved, save_search, remove_search, pause_search, resume_search, check_search]
    return Router("/", route_handlers=[*artists, *saved], tags=["watches"])


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


_PRICES: Final = [
    Example(
        summary="A coin, once a day",
        value={"name": "morgan", "title": "Morgan Dollar", "year": "1881", "currency": "USD", "below_cents": 9000},
    )
]


@get("/prices", summary="All prices that are watched")
async def list_prices(request: AnyRequest) -> list[PriceOut]:
    """By name, each with its value if one is known; those of the settings file too."""
    return [price_out(each.intake, each.valuation) for each in await parts_of(request).prices.all()]


@post("/prices", summary="Watch a price", status_code=201)
async def watch_price(
    request: AnyRequest, data: Annotated[PriceBody, Body(media_type=RequestEncodingType.JSON, examples=_PRICES)]
) -> PriceOut:
    """Its sources are asked at once, two seconds apart, and then again and again."""
    refuse_unknown(await request.json(), PriceBody)
    intake = await parts_of(request).prices.watch(
        data.name,
        data.title,
        year=data.year,
        mintmark=data.mintmark,
        denomination=data.denomination,
        series=data.series,
        sources=data.search,
        every_s=data.every_s,
        currency=data.currency,
        below_cents=data.below_cents,
        above_cents=data.above_cents,
    )
    return price_out(intake, None)


@get("/prices/{name:str}", summary="One price with what sources state of it")
async def show_price(
    request: AnyRequest, name: FromPath[str], limit: Annotated[int, QueryParameter(ge=1, le=500)] = 100
) -> PriceShownOut:
    """Newest first."""
    return price_shown_out(await parts_of(request).prices.show(name, limit=limit))


@get("/prices/{name:str}/history", summary="The values that it had")
async def price_history(
    request: AnyRequest, name: FromPath[str], limit: Annotated[int, QueryParameter(ge=1, le=500)] = 100
) -> list[ValueOut]:
    """Newest first, one for each change."""
    return [value_out(each) for each in await parts_of(request).prices.history(name, limit=limit)]


@post("/prices/{name:str}/check", summary="Ask its sources now", status_code=200)
async def check_price(request: AnyRequest, name: FromPath[str]) -> PriceShownOut:
    """As soon as they may be asked; what one has answered lately is not asked again."""
    prices = parts_of(request).prices
    await prices.check(name)
    return price_shown_out(await prices.show(name))


@post("/prices/{name:str}/pause", summary="Leave a price alone for now", status_code=200)
async def pause_price(request: AnyRequest, name: FromPath[str]) -> PriceShownOut:
    """Nobody is asked about it until it is resumed, also after a restart, unless it is checked by hand."""
    prices = parts_of(request).prices
    await prices.pause(name)
    return price_shown_out(await prices.show(name))


@post("/prices/{name:str}/resume", summary="End a pause", status_code=200)
async def resume_price(request: AnyRequest, name: FromPath[str]) -> PriceShownOut:
    """Its sources are asked at its time, and soon if that has passed."""
    prices = parts_of(request).prices
    await prices.resume(name)
    return price_shown_out(await prices.show(name))


@delete("/prices/{name:str}", summary="Watch a price no more", status_code=204)
async def remove_price(request: AnyRequest, name: FromPath[str]) -> None:
    """What was collected is forgotten. One of the settings file is taken out there first."""
    await parts_of(request).prices.unwatch(name)


def price_routes() -> Router:
    """The addresses of this file."""
    handlers: list[HTTPRouteHandler] = [list_prices, watch_price, show_price, price_history]
    handlers += [check_price, pause_price, resume_price, remove_price]
    return Router("/", route_handlers=handlers, tags=["prices"])

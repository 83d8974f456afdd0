"""Artists, saved searches, feeds and prices over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import attrs
from attrs import frozen
from litestar import Router, delete, get, post
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath, QueryParameter

from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.watch import (
    ArtistOptions,
    PriceSettings,
    SavedSettings,
    feed_options,
    options_from,
)
from cormorant.rules.views import next_page
from cormorant.rules.watch.prices import as_amount
from cormorant.rules.watch.releases import CatalogueArtist
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
from cormorant.services.watch.watches import WatchService
from cormorant.web.api.paging import PageSize
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown


@frozen(kw_only=True)
class WatchRoutes:
    """The routes that every kind of watch has: remove, pause, resume and check."""

    path: str
    what: str
    """What the document calls one."""
    service: str
    """The name of its operations in `WebParts`."""
    answer: type
    """The class of the view of one."""
    after_removal: str = "What was found stays."
    after_resume: str = "It is checked when it is due, which may be at once."
    after_check: str = "Its sources are asked as soon as they may be, also while it is paused."

    def handlers(self) -> list[HTTPRouteHandler]:
        """The routes."""

        async def remove(request: AnyRequest, watch: FromPath[str]) -> None:
            await self._service(request).remove(watch)

        async def pause(request: AnyRequest, watch: FromPath[str]) -> Any:
            service = self._service(request)
            return await service.view(await service.pause(watch))

        async def resume(request: AnyRequest, watch: FromPath[str]) -> Any:
            service = self._service(request)
            return await service.view(await service.resume(watch))

        async def check(request: AnyRequest, watch: FromPath[str]) -> Any:
            service = self._service(request)
            return await service.view(await service.check(watch))

        paused = "It is not checked until it is resumed, also after a restart."
        gone = f"{self.after_removal} One of the settings file is a conflict: take it out there."
        remove_route = delete(
            f"{self.path}/{{watch:str}}", summary=f"Remove {self.what}", description=gone, status_code=204
        )
        return [
            remove_route(remove),
            self._verb("pause", f"Pause {self.what}", paused, pause),
            self._verb("resume", f"Resume {self.what}", f"End a pause. {self.after_resume}", resume),
            self._verb("check", f"Check {self.what} now", self.after_check, check),
        ]

    def _service(self, request: AnyRequest) -> WatchService[Any]:
        service: WatchService[Any] = getattr(parts_of(request), self.service)
        return service

    def _verb(self, name: str, summary: str, text: str, handler: Callable[..., Any]) -> HTTPRouteHandler:
        handler.__annotations__["return"] = self.answer
        path = f"{self.path}/{{watch:str}}/{name}"
        return post(path, summary=summary, description=text, status_code=200)(handler)


_ARTIST_EXAMPLES: Final = [
    Example(summary="By name, looked up at Spotify", value={"artist": "Boards of Canada"}),
    Example(
        summary="By id, nobody is asked",
        value={"id": "2VAvhf61GgLYmC6C8anyX1", "name": "Boards of Canada", "start": "all", "hand_to": ["qbittorrent"]},
    ),
]
_SAVED_EXAMPLES: Final = [
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
    return [artist_out(each) for each in await parts_of(request).artists.all()]


@post("/watchlist", summary="Watch an artist", status_code=201)
async def add_artist(
    request: AnyRequest,
    data: Annotated[ArtistBody, Body(media_type=RequestEncodingType.JSON, examples=_ARTIST_EXAMPLES)],
) -> ArtistOut:
    """What comes out from `start` on is wanted. Who is watched already is a conflict."""
    refuse_unknown(await request.json(), ArtistBody)
    artists, options = parts_of(request).artists, options_from(ArtistOptions, attrs.asdict(data))
    found = CatalogueArtist(id=data.id, name=data.name or data.artist)
    if not data.id:
        known = await artists.look_up(data.artist)
        found = CatalogueArtist(id=known.id, name=data.name or known.name)
    return artist_out(await artists.add(found, options))


@get("/saved-searches", summary="All saved searches")
async def list_saved(request: AnyRequest) -> list[SavedOut]:
    """By name; those of the settings file too."""
    return [saved_out(each) for each in await parts_of(request).saved.all()]


@post("/saved-searches", summary="Repeat a search", status_code=201)
async def save_search(
    request: AnyRequest, data: Annotated[SavedBody, Body(media_type=RequestEncodingType.JSON, examples=_SAVED_EXAMPLES)]
) -> SavedOut:
    """What is new in it is wanted."""
    refuse_unknown(await request.json(), SavedBody)
    given = attrs.asdict(data) | {"categories": [str(number) for number in data.categories]}
    return saved_out(await parts_of(request).saved.add(data.name, options_from(SavedSettings, given)))


ARTISTS: Final = WatchRoutes(
    path="/watchlist",
    what="an artist",
    service="artists",
    answer=ArtistOut,
    after_check="It is looked at at the next tick. Earlier failures are forgotten.",
)
SAVED: Final = WatchRoutes(path="/saved-searches", what="a saved search", service="saved", answer=SavedOut)


def watch_routes() -> Router:
    """The routes of artists and saved searches."""
    handlers = [
        list_artists,
        add_artist,
        *ARTISTS.handlers(),
        list_saved,
        save_search,
        *SAVED.handlers(),
    ]
    return Router("/", route_handlers=handlers, tags=["watches"])


_ID_MAX: Final = 2**53
"""As large as JSON can say it exactly: the document of the API names it as a float."""
_YEAR_MAX: Final = 9_000
_FEED_EXAMPLES: Final = [
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
    limit: PageSize = 50,
) -> SubscriptionsOut:
    """In the order they came, a page at a time; those of the settings file too. Keys in addresses are hidden."""
    feeds = parts_of(request).feeds
    found = await feeds.page(after_id=after, limit=limit)
    last = await feeds.last_checks([each.id for each in found])
    return SubscriptionsOut(
        subscriptions=[subscription_out(each) for each in found],
        last_checks={str(each.id): check_out(each, last[each.id]) for each in found if each.id in last},
        next_after=next_page(found, limit),
    )


@get("/subscriptions/{watch:str}", summary="One subscription and its last checks")
async def show_subscription(
    request: AnyRequest,
    watch: FromPath[str],
    limit: PageSize = 20,
) -> SubscriptionShownOut:
    """By name, or by number."""
    feeds = parts_of(request).feeds
    found = await feeds.find(watch)
    checks = await feeds.checks(found.id, limit=limit)
    return SubscriptionShownOut(
        subscription=subscription_out(found), checks=[check_out(found, each) for each in checks]
    )


@post("/subscriptions", summary="Subscribe to a feed", status_code=201)
async def subscribe(
    request: AnyRequest,
    data: Annotated[SubscriptionBody, Body(media_type=RequestEncodingType.JSON, examples=_FEED_EXAMPLES)],
) -> SubscriptionOut:
    """It is checked at once. A name that is taken is a conflict."""
    refuse_unknown(await request.json(), SubscriptionBody)
    options = feed_options(attrs.asdict(data))
    return subscription_out(await parts_of(request).feeds.add(data.name, options, folder=data.folder))


@post("/subscriptions/{watch:str}/check", summary="Check a feed now", status_code=200)
async def check(request: AnyRequest, watch: FromPath[str]) -> CheckOut:
    """Waits for what comes of it; a check that runs is joined. One that is paused is checked, too, and stays paused."""
    feeds = parts_of(request).feeds
    return check_out(await feeds.find(watch), await feeds.check_and_wait(watch))


@post("/subscriptions/{watch:str}/reschedule", summary="Give a feed another time", status_code=200)
async def reschedule(
    request: AnyRequest,
    watch: FromPath[str],
    data: Annotated[RescheduleBody, Body(media_type=RequestEncodingType.JSON, examples=_TIMES)],
) -> SubscriptionOut:
    """Once; after it the schedule holds again."""
    refuse_unknown(await request.json(), RescheduleBody)
    feeds = parts_of(request).feeds
    found = await feeds.find(watch)
    if data.at is None:
        return subscription_out(await feeds.reschedule_anew(found.id))
    await feeds.reschedule(found.id, _moment(data.at))
    return subscription_out(await feeds.find(watch))


def _moment(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise BadRequest("at", "it has no zone; write it like 2026-11-16T12:00:00Z")
    if not 1970 < at.year < _YEAR_MAX:  # noqa: PLR2004 - the year in which clocks began
        raise BadRequest("at", "it is too far away")
    return at.astimezone(UTC)


FEEDS: Final = WatchRoutes(
    path="/subscriptions",
    what="a feed",
    service="feeds",
    answer=SubscriptionOut,
    after_resume="Earlier failures are forgotten, and it is due at once.",
)


def subscription_routes() -> Router:
    """The routes of feeds. A check is waited for."""
    common = [each for each in FEEDS.handlers() if not any(path.endswith("/check") for path in each.paths)]
    handlers = [list_subscriptions, show_subscription, subscribe, check, reschedule, *common]
    return Router("/", route_handlers=handlers, tags=["subscriptions"])


_PRICE_EXAMPLES: Final = [
    Example(
        summary="A coin, once a day",
        value={"name": "morgan", "title": "Morgan Dollar", "year": "1881", "currency": "USD", "below_cents": 9000},
    )
]


@get("/prices", summary="All prices that are watched")
async def list_prices(request: AnyRequest) -> list[PriceOut]:
    """By name, each with its value if one is known; those of the settings file too."""
    return [price_out(each.intake, each.valuation) for each in await parts_of(request).prices.all_views()]


@post("/prices", summary="Watch a price", status_code=201)
async def watch_price(
    request: AnyRequest, data: Annotated[PriceBody, Body(media_type=RequestEncodingType.JSON, examples=_PRICE_EXAMPLES)]
) -> PriceOut:
    """Its sources are asked at once, two seconds apart, and then again and again."""
    refuse_unknown(await request.json(), PriceBody)
    limits = {"below": as_amount(data.below_cents), "above": as_amount(data.above_cents)}
    options = options_from(PriceSettings, attrs.asdict(data) | limits)
    return price_out(await parts_of(request).prices.add(data.name, options))


@get("/prices/{watch:str}", summary="One price with what sources state of it")
async def show_price(request: AnyRequest, watch: FromPath[str], limit: PageSize = 100) -> PriceShownOut:
    """Newest first."""
    return price_shown_out(await parts_of(request).prices.show(watch, limit=limit))


@get("/prices/{watch:str}/history", summary="The values that it had")
async def price_history(request: AnyRequest, watch: FromPath[str], limit: PageSize = 100) -> list[ValueOut]:
    """Newest first, one for each change."""
    return [value_out(each) for each in await parts_of(request).prices.history(watch, limit=limit)]


PRICES: Final = WatchRoutes(
    path="/prices",
    what="a price",
    service="prices",
    answer=PriceShownOut,
    after_removal="What was collected is deleted.",
)


def price_routes() -> Router:
    """The routes of prices."""
    handlers = [list_prices, watch_price, show_price, price_history, *PRICES.handlers()]
    return Router("/", route_handlers=handlers, tags=["prices"])

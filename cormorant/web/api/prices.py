"""Prices over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import Router, delete, get, post
from litestar.enums import RequestEncodingType
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath, QueryParameter

from cormorant.services.watch.price_views import (
    PriceBody,
    PriceOut,
    PriceShownOut,
    ValueOut,
    price_out,
    price_shown_out,
    value_out,
)
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown

__all__ = ["price_routes"]

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

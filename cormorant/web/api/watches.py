"""Artists and saved searches over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from litestar import Response, Router, delete, get, post
from litestar.enums import RequestEncodingType
from litestar.openapi.spec import Example
from litestar.params import Body, FromPath

from cormorant.rules.search.requests import BadRequest, SearchRequest
from cormorant.rules.watch.artists import read_start
from cormorant.rules.watch.watches import FirstCheck, SavedSearch
from cormorant.services.watch.views import ArtistBody, ArtistOut, SavedBody, SavedOut, artist_out, saved_out
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown
from storage.watch.artists import ARTIST
from storage.watch.saved_searches import SAVED

__all__ = ["watch_routes"]

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

"""Spotify's API, its token, and what its replies mean."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, cast, get_args
from urllib.parse import urlencode

import httpx2
import trio
from attrs import define, field, frozen

from cormorant.clients.http.json_api import error_text_of, read_json, reason_of, segment
from cormorant.clients.http.transport import Answer, FetchLimits, Transport, is_same_party
from cormorant.rules.json_documents import Json, number_of, text_of
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.secrets import Secret, spellings
from cormorant.rules.watch.releases import (
    OWN_GROUPS,
    Album,
    AlbumPage,
    CatalogueArtist,
    Group,
    Kind,
    ReleaseDate,
    Track,
    is_by,
    read_release_date,
)
from cormorant.rules.watch.titles import plain_title

API_URL: Final = "https://api.spotify.com/v1"
TOKEN_URL: Final = "https://accounts.spotify.com/api/token"  # noqa: S105 - the address, no token
ID_LENGTH_MAX: Final = 64
PAGES_MAX: Final = 1_000
ITEMS_MAX: Final = 100_000

_ALBUMS_ASKED: Final = 10  # the most that Spotify allows since February 2026
_TRACKS_ASKED: Final = 50


@frozen(kw_only=True)
class SpotifyOptions:
    """Where Spotify is, and how long one request may take."""

    api_url: str = API_URL
    token_url: str = TOKEN_URL
    timeout_s: float = 10.0
    body_max_bytes: int = 2_000_000


MARGIN_S: Final = 60.0
"""A token is renewed so long before it ends, or at nine tenths of a shorter life."""

_LONGEST_S: Final = 24 * 3600.0
_LIFE_USED: Final = 0.9


@frozen(kw_only=True)
class Token:
    """What is shown at every request, and how long it is good for."""

    text: Secret
    lasts_s: float


def basic(client_id: str, secret: Secret) -> Secret:
    """The header that asks for a token."""
    pair = f"{client_id}:{secret.reveal()}".encode()
    return Secret(f"Basic {base64.b64encode(pair).decode('ascii')}")


class TokenCache:
    """Keeps the token, and renews it before it ends. Times are those of trio's clock. It may outlive many clients."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._token: Token | None = None
        self._good_until = 0.0
        self._failures = 0
        self._failure: SourceError | None = None

    async def token(self, fetch: Callable[[], Awaitable[Token]]) -> Token:
        """A token that is good, fetched if need be. Raises what asking for one raised, also to those who only waited for it."""
        failures = self._failures
        if self._is_good():
            return self._kept()
        async with self._lock:
            if self._is_good():
                return self._kept()
            # Whoever waited while it failed does not try it once more: a dead key must not be hammered with.
            if self._failures != failures and self._failure is not None:
                raise _again(self._failure)
            return await self._renew(fetch)

    def forget(self, token: Token) -> None:
        """This one was refused. Another that has come meanwhile stays."""
        if self._token is token:
            self._token = None

    async def _renew(self, fetch: Callable[[], Awaitable[Token]]) -> Token:
        asked_at = trio.current_time()
        try:
            self._token = await fetch()
        except SourceError as error:
            self._failures += 1
            self._failure = error
            raise
        lasts_s = min(self._token.lasts_s, _LONGEST_S)
        self._good_until = asked_at + max(lasts_s - MARGIN_S, lasts_s * _LIFE_USED)
        return self._token

    def _is_good(self) -> bool:
        return self._token is not None and trio.current_time() < self._good_until

    def _kept(self) -> Token:
        assert self._token is not None
        return self._token


def _again(error: SourceError) -> SourceError:
    """The same error for another task: one object raised in several tasks mixes up their traces."""
    return type(error)(str(error), retry_after_s=error.retry_after_s, source=error.source)


@define(eq=False)
class SpotifyClient:
    """Asks Spotify in the name of one app. Raises a `SourceError`; it never waits for a limit to pass, but says how long."""

    _client_id: str
    _secret: Secret
    _transport: Transport
    _environment: Ports
    _options: SpotifyOptions = field(factory=SpotifyOptions, kw_only=True)
    _token_cache: TokenCache = field(factory=TokenCache, kw_only=True)
    _basic: Secret = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._basic = basic(self._client_id, self._secret)

    @property
    def _secrets(self) -> tuple[Secret, ...]:
        return self._secret, self._basic

    async def artist(self, artist_id: str) -> CatalogueArtist:
        """Who has this id."""
        artist = read_artist(await self._get(self._url("artists", _checked(artist_id)), asked=f"artist {artist_id}"))
        if not artist.id:
            raise SourceUnavailable(f"Spotify answered about artist {artist_id} without saying who it is")
        return artist

    async def find_artist(self, name: str) -> CatalogueArtist | None:
        """The artist who is called so; of several the one Spotify names first. None when nobody is."""
        params = {"q": name, "type": "artist", "limit": str(_ALBUMS_ASKED)}
        found = await self._get(self._url("search", params=params), asked=f"an artist called {name!r}")
        page = found.get("artists")
        artists = read_artists(page.get("items")) if isinstance(page, dict) else ()
        return next((artist for artist in artists if plain_title(artist.name) == plain_title(name)), None)

    async def albums_page(
        self, artist_id: str, *, after: str | None = None, groups: Iterable[Group] = OWN_GROUPS
    ) -> AlbumPage:
        """A page of albums of these groups, which is one request. A list that a limit has cut goes on with `after`."""
        chosen = tuple(groups)
        params = {"include_groups": ",".join(chosen), "limit": str(_ALBUMS_ASKED)}
        first = self._url("artists", _checked(artist_id), "albums", params=params)
        url = first if after is None else self._own(after)
        items, following = await self.page(url, asked=f"albums of artist {artist_id}")
        albums = tuple(album for album in read_albums(items) if is_by(artist_id, album, chosen))
        return AlbumPage(albums=albums, next=following)

    def tracks_url(self, album_id: str) -> str:
        """The address of the first page of tracks, for `page`."""
        return self._url("albums", _checked(album_id), "tracks", params={"limit": str(_TRACKS_ASKED)})

    async def page(self, url: str, *, asked: str) -> tuple[list[Json], str | None]:
        """One page of any list, which is one request, and the address of the next; None at the end."""
        found = await self._get(url, asked=asked)
        following = read_next(found)
        return read_items(found), following and self._own(following)

    def _own(self, following: str) -> str:
        """The next page, only if it is Spotify's: the token goes with it."""
        base = httpx2.URL(self._options.api_url)
        try:
            url = base.join(following)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise SourceUnavailable("Spotify gave as the next page what is no address") from None
        if url.scheme != base.scheme or not is_same_party(base, url) or url.userinfo:
            raise SourceRefused("Spotify gave a next page at another address; our token is not sent there")
        return str(url)

    def _url(self, *parts: str, params: dict[str, str] | None = None) -> str:
        path = "/".join([self._options.api_url.rstrip("/"), *parts])
        return f"{path}?{urlencode(params)}" if params else path

    async def _get(self, url: str, *, asked: str) -> dict[str, Any]:
        token = await self._token_cache.token(self._fetch_token)
        answer = await self._ask("GET", url, {"Authorization": f"Bearer {token.text.reveal()}"}, token.text)
        if answer.status == UNAUTHORIZED:
            self._token_cache.forget(token)
            token = await self._token_cache.token(self._fetch_token)
            answer = await self._ask("GET", url, {"Authorization": f"Bearer {token.text.reveal()}"}, token.text)
        refusal = error_of_api(self._reply(answer, asked=asked, token=token.text))
        found: dict[str, Any] = await read_json(answer, self._environment.offload, dict, refusal)
        return found

    async def _fetch_token(self) -> Token:
        headers = {"Authorization": self._basic.reveal(), "Content-Type": "application/x-www-form-urlencoded"}
        content = b"grant_type=client_credentials"
        answer = await self._ask("POST", self._options.token_url, headers, content=content)
        refusal = error_of_token(self._reply(answer, asked="a token"))
        found = await read_json(answer, self._environment.offload, dict, refusal)
        if not text_of(found, "access_token"):
            raise SourceUnavailable("Spotify answered the request for a token without one")
        return Token(text=Secret(text_of(found, "access_token")), lasts_s=float(number_of(found, "expires_in") or 0))

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], *secrets: Secret, content: bytes = b""
    ) -> Answer:
        limits = FetchLimits(timeout_s=self._options.timeout_s, body_max_bytes=self._options.body_max_bytes)
        known = (*self._secrets, *secrets)
        return await self._transport.ask(
            method, url, body=content, headers={"Accept": "application/json"} | headers, secrets=known, limits=limits
        )

    def _reply(self, answer: Answer, *, asked: str, token: Secret | None = None) -> SpotifyReply:
        known = spellings(self._secrets if token is None else (*self._secrets, token))
        return SpotifyReply(
            status=answer.status,
            asked=asked,
            words=error_text_of(answer, known),
            reason=reason_of(answer),
            retry_after_s=answer.retry_after_s(self._environment.clock.now()),
        )


AskPage = Callable[[str | None], Awaitable[tuple[list[Json], str | None]]]
"""Asks for the page at an address (None: the first), and gives the address of the next."""


async def all_pages(ask: AskPage, *, about: str, pages_max: int = PAGES_MAX, items_max: int = ITEMS_MAX) -> list[Json]:
    """Everything in a list. Raises `SourceUnavailable` for one that does not end."""
    items: list[Json] = []
    seen: set[str] = set()
    following: str | None = None
    while True:
        found, following = await ask(following)
        items += found
        if following is None:
            return items
        if following in seen or len(seen) >= pages_max or len(items) > items_max:
            raise SourceUnavailable(f"the list of {about} does not end; it was left after {len(seen)} pages")
        seen.add(following)


def _checked(text: str) -> str:
    if not text.isascii() or not text.isalnum() or len(text) > ID_LENGTH_MAX:
        raise SourceRefused(
            f"{text[:ID_LENGTH_MAX]!r} is no id of Spotify; copy the part after artist/ or album/ from a link"
        )
    return segment(text)


_KINDS: Final = frozenset(get_args(Kind))
_GROUPS: Final = frozenset(get_args(Group))
_NUMBER_MAX: Final = 1_000_000_000


def read_items(page: Json) -> list[Json]:
    """What is on a page. Without a list of items it is no page; an item that is null is left out."""
    items = page.get("items")
    if not isinstance(items, list):
        raise SourceUnavailable("Spotify answered with a page that has no items")
    return [item for item in items if isinstance(item, dict)]


def read_next(page: Json) -> str | None:
    """The address of the next page; None at the end."""
    return text_of(page, "next") or None


def read_albums(items: Iterable[Json]) -> tuple[Album, ...]:
    """The albums among these; what has neither id nor name is none."""
    return tuple(album for album in map(_album, items) if album.id and album.title)


def read_tracks(items: Iterable[Json]) -> tuple[Track, ...]:
    """The tracks among these."""
    return tuple(track for track in map(_track, items) if track.id and track.title)


def read_artist(item: Json) -> CatalogueArtist:
    """Who this is."""
    return CatalogueArtist(id=text_of(item, "id"), name=text_of(item, "name"))


def read_artists(items: object) -> tuple[CatalogueArtist, ...]:
    """Those who have an id."""
    found = items if isinstance(items, list) else []
    return tuple(artist for artist in (read_artist(item) for item in found if isinstance(item, dict)) if artist.id)


def _album(item: Json) -> Album:
    kind, group = text_of(item, "album_type").lower(), text_of(item, "album_group").lower()
    return Album(
        id=text_of(item, "id"),
        title=text_of(item, "name"),
        artists=read_artists(item.get("artists")),
        kind=cast("Kind", kind if kind in _KINDS else "album"),
        group=cast("Group", group) if group in _GROUPS else None,
        released=_released(item),
        tracks_total=_count(item, "total_tracks"),
    )


def _count(item: Json, name: str) -> int:
    return number_of(item, name, most=_NUMBER_MAX) or 0


def _released(item: Json) -> ReleaseDate | None:
    return read_release_date(text_of(item, "release_date"), text_of(item, "release_date_precision"))


def _track(item: Json) -> Track:
    return Track(
        id=text_of(item, "id") or text_of(item, "uri"),
        title=text_of(item, "name"),
        disc=_count(item, "disc_number") or 1,
        number=_count(item, "track_number"),
    )


QUOTA: Final = "QUOTA_EXCEEDED"
UNAUTHORIZED: Final = 401
_OK: Final = range(200, 300)
_CLIENT_ERRORS: Final = range(400, 500)
_PASSING: Final = {408, 425}
_BAD_CLIENT: Final = {"invalid_client", "unauthorized_client"}


@frozen(kw_only=True)
class SpotifyReply:
    """What of a reply decides. `asked` is what was asked for, in words; `words` are Spotify's own, without secrets."""

    status: int
    asked: str
    words: str = ""
    reason: str = ""
    retry_after_s: float | None = None

    @property
    def said(self) -> str:
        """The status and the words."""
        return f"HTTP {self.status}, {self.words}" if self.words else f"HTTP {self.status}"


def error_of_token(reply: SpotifyReply) -> SourceError | None:
    """The error that a reply to the request for a token stands for; None when there is a token.

    >>> reply = SpotifyReply(status=400, asked="a token", words="Invalid client", reason="invalid_client")
    >>> print(error_of_token(reply))
    Spotify does not accept our client id and secret (HTTP 400, Invalid client); check both, then enable the source again
    """
    if reply.status == UNAUTHORIZED or (reply.status in _CLIENT_ERRORS and reply.reason in _BAD_CLIENT):
        return CredentialsRefused(
            f"Spotify does not accept our client id and secret ({reply.said}); check both, then enable the source again"
        )
    return error_of_api(reply)


def error_of_api(reply: SpotifyReply) -> SourceError | None:
    """The error that any other reply stands for; None when it is none. A first 401 is not for here: renew the token.

    >>> for status in 200, 401, 403, 404, 429, 502:
    ...     print(type(error_of_api(SpotifyReply(status=status, asked="artist x"))).__name__)
    NoneType
    CredentialsRefused
    SourceRefused
    SourceRefused
    SourceLimited
    SourceUnavailable
    """
    if reply.status in _OK:
        return None
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return _limited(reply)
    if reply.status == UNAUTHORIZED:
        return CredentialsRefused(
            f"Spotify does not accept the token that it has just given us ({reply.said}); check the app at Spotify"
        )
    if reply.status == HTTPStatus.NOT_FOUND:
        return SourceRefused(f"Spotify does not know {reply.asked} ({reply.said}); check the id")
    if reply.status in _CLIENT_ERRORS and reply.status not in _PASSING:
        return SourceRefused(f"Spotify refused to give {reply.asked} ({reply.said})")
    return SourceUnavailable(f"Spotify cannot serve us now ({reply.said})", retry_after_s=reply.retry_after_s)


def _limited(reply: SpotifyReply) -> SourceLimited:
    if reply.reason == QUOTA:
        message = (
            f"the quota of the developer account at Spotify is used up ({reply.said}, {QUOTA}); "
            "all its client ids share it"
        )
    else:
        message = f"Spotify wants to be asked less ({reply.said})"
    return SourceLimited(message, retry_after_s=reply.retry_after_s)

"""SearchRequest, Result, SearchPage, Caps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, get_args

from attrs import evolve, field, frozen

from cormorant.rules.errors import CormorantError
from cormorant.rules.secrets import redact_link

SearchKind = Literal["search", "tv", "movie", "music", "book"]
Protocol = Literal["torrent", "usenet", "soulseek", "web"]

KINDS: Final[tuple[SearchKind, ...]] = get_args(SearchKind)
QUERY_LENGTH_MAX = 1_000
PARAMS_MAX = 20
CATEGORIES_MAX = 200
PAGE_SIZE_MAX = 100

_NUMBER = re.compile(r"\d{1,9}", re.ASCII)

# What the client itself writes into a request, so that no parameter can replace it.
_RESERVED = frozenset({"t", "apikey", "q", "cat", "offset", "limit", "extended", "o"})


class BadRequest(CormorantError):
    """A search cannot be asked as it is written. The message names the part and the remedy."""

    http_status = 400

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part, self.text = part, message


def _frozen_params(params: Mapping[str, object] | Iterable[tuple[str, object]]) -> Mapping[str, str]:
    given = dict(params).items()
    return MappingProxyType({str(name).lower(): str(value) for name, value in given if value not in {None, ""}})


def _numbers(categories: Iterable[int]) -> tuple[int, ...]:
    return tuple(categories)


def _check_text(part: str, text: str) -> None:
    if "\0" in text:
        raise BadRequest(part, "it holds a NUL character; leave it out")
    if len(text) > QUERY_LENGTH_MAX:
        raise BadRequest(part, f"it has {len(text):,} characters; {QUERY_LENGTH_MAX:,} are allowed, shorten it")


@frozen(kw_only=True)
class SearchRequest:
    """A search as a source is asked: words, or ids, or nothing but categories.

    `params` are season, ep, year, artist, album, author, title, imdbid, tvdbid and the like, by their Torznab names.
    """

    query: str = field(default="", converter=str)
    kind: SearchKind = "search"
    categories: tuple[int, ...] = field(default=(), converter=_numbers)
    params: Mapping[str, str] = field(factory=dict, converter=_frozen_params, hash=False)
    offset: int = 0
    limit: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadRequest("kind", f"there is no kind {self.kind!r}; use one of {', '.join(KINDS)}")
        _check_text("query", self.query)
        if len(self.params) > PARAMS_MAX:
            raise BadRequest("params", f"{len(self.params)} are given; {PARAMS_MAX} are allowed")
        for name, value in self.params.items():
            if name in _RESERVED or not name.isidentifier() or not name.isascii():
                raise BadRequest("params", f"{name[:40]!r} is no parameter of a search; leave it out")
            _check_text(name, value)
        if len(self.categories) > CATEGORIES_MAX or any(number < 0 for number in self.categories):
            raise BadRequest("categories", f"give at most {CATEGORIES_MAX} numbers, none below 0")
        if self.offset < 0:
            raise BadRequest("offset", f"{self.offset} is below 0; begin with 0")
        if self.limit is not None and self.limit < 1:
            raise BadRequest("limit", f"{self.limit} is below 1; leave it out for the source's own page size")

    @property
    def is_rss(self) -> bool:
        """Whether nothing but categories is asked: what is new, whatever it is."""
        return not self.query.strip() and not self.params


def search_key(request: SearchRequest) -> str:
    """The same text for searches that any source would answer alike: case, spaces and order do not matter.

    >>> one = SearchRequest(query="Boards  of Canada", categories=(3040, 3000), params={"year": 1998, "artist": "B"})
    >>> two = SearchRequest(query=" boards of canada ", categories=(3000, 3040), params={"ARTIST": "b", "year": "1998"})
    >>> search_key(one) == search_key(two)
    True
    """
    params = sorted((name, _plain(value)) for name, value in request.params.items())
    categories = sorted(set(request.categories))
    return repr((request.kind, _plain(request.query), categories, params, request.offset, request.limit))


def poll_key(request: SearchRequest) -> str:
    """As `search_key`, for polls for new releases: what is kept for searches is too old for them."""
    return f"poll {search_key(request)}"


def together(one: SearchRequest, other: SearchRequest) -> SearchRequest | None:
    """One poll for new releases instead of two: `one` itself if it asks for all. None: they have too many categories.

    A poll without categories asks for all of them.

    >>> tv, both = SearchRequest(categories=[5030]), SearchRequest(categories=[5030, 2000])
    >>> together(both, tv) is both, together(tv, both).categories, together(tv, SearchRequest()).categories
    (True, (2000, 5030), ())
    """
    categories = {*one.categories, *other.categories}
    if not one.categories or (other.categories and len(categories) == len(set(one.categories))):
        return one
    if not other.categories:
        return evolve(one, categories=())
    return None if len(categories) > CATEGORIES_MAX else evolve(one, categories=sorted(categories))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


@frozen(kw_only=True)
class StatedLimits:
    """What a source says of its own limits. The counts are those of a rolling day; `api_oldest_at` is its oldest call."""

    api_current: int | None = None
    api_max: int | None = None
    grab_max: int | None = None
    api_oldest_at: datetime | None = None
    rate_limit: int | None = None

    @property
    def states_any(self) -> bool:
        """Whether any of it was stated."""
        return self != StatedLimits()


@frozen(kw_only=True, slots=False)  # made by the hundred, and three times as fast without slots
class Result:
    """One find. `link` fetches it and may carry a key; it is never shown. `guid` and `details` have their keys hidden.

    What a source did not say is None: missing seeders are unknown, not 0.
    """

    title: str
    guid: str
    link: str = field(repr=redact_link)
    protocol: Protocol
    size_bytes: int | None = None
    published: datetime | None = None
    categories: tuple[str, ...] = ()
    seeders: int | None = None
    peers: int | None = None
    grabs: int | None = None
    infohash: str | None = None
    magnet: str | None = field(default=None, repr=False)
    downloadvolumefactor: float | None = None
    uploadvolumefactor: float | None = None
    enclosure_type: str = ""
    details: str = ""
    attributes: Mapping[str, tuple[str, ...]] = field(factory=dict, hash=False, repr=False)

    @property
    def is_freeleech(self) -> bool:
        """Whether fetching it costs no ratio."""
        return self.downloadvolumefactor == 0


@frozen(kw_only=True)
class SearchPage:
    """One answer."""

    results: tuple[Result, ...]
    limits: StatedLimits | None = None
    was_cut: bool = False
    """Whether the search was ended before the source had answered in full, to keep the time-out."""


@frozen(kw_only=True)
class Category:
    """A category of a source and what it divides into."""

    id: int
    name: str
    children: tuple[Category, ...] = ()


@frozen(kw_only=True)
class Caps:
    """What a source can do. `searching` has the kinds it offers, each with the parameters it takes."""

    page_size: int = PAGE_SIZE_MAX
    searching: Mapping[SearchKind, frozenset[str]] = field(factory=dict, hash=False)
    states_params: frozenset[SearchKind] = frozenset()
    categories: tuple[Category, ...] = ()
    title: str = ""

    def can(self, kind: SearchKind, *params: str) -> bool:
        """Whether it offers this kind of search with all of these parameters."""
        return kind in self.searching and self.searching[kind].issuperset(params)


def page_size(default: str | None, largest: str | None) -> int:
    """How many results to ask for at once, whatever a source states: at most 100, and 100 when it states nonsense.

    >>> [page_size(*limits) for limits in (("25", "60"), ("75", "200"), ("0", "-5"), ("many", None))]
    [60, 100, 100, 100]
    """
    stated = [int(text) for text in (default, largest) if text and _NUMBER.fullmatch(text)]
    best = max((number for number in stated if number > 0), default=PAGE_SIZE_MAX)
    return min(PAGE_SIZE_MAX, best)

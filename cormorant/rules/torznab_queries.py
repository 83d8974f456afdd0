"""Reads a Torznab query as apps write it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from cormorant.rules.errors import CormorantError
from cormorant.rules.search.requests import PAGE_SIZE_MAX, BadRequest, SearchKind, SearchRequest

__all__ = ["CAPS", "GateQuery", "GateRefusal", "read_query"]

CAPS: Final = "caps"

MISSING_PARAMETER: Final = 200
INCORRECT_PARAMETER: Final = 201
NO_SUCH_FUNCTION: Final = 202

_KINDS: Final[Mapping[str, SearchKind]] = {
    "search": "search",
    "tvsearch": "tv",
    "tv-search": "tv",
    "movie": "movie",
    "moviesearch": "movie",
    "movie-search": "movie",
    "music": "music",
    "audio": "music",
    "musicsearch": "music",
    "audio-search": "music",
    "book": "book",
    "booksearch": "book",
    "book-search": "book",
}
_PARAMS: Final = (
    "season", "ep", "imdbid", "tvdbid", "rid", "tvmazeid", "tmdbid", "traktid", "doubanid", "year", "genre", "artist",
    "album", "label", "track", "author", "title", "publisher",
)  # fmt: skip
_WHOLE: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_IMDB: Final = re.compile(r"(?:tt)?([0-9]{1,12})", re.ASCII | re.IGNORECASE)
_IMDB_DIGITS: Final = 7
_OFFSET_MAX: Final = 100_000


class GateRefusal(CormorantError):
    """A query cannot be answered. `code` is that of the error document."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description


@frozen(kw_only=True)
class GateQuery:
    """A query. `request` is None where only the abilities are asked for."""

    request: SearchRequest | None
    offset: int = 0
    limit: int = PAGE_SIZE_MAX


def read_query(given: Iterable[tuple[str, str]]) -> GateQuery:
    """The query that parameters mean, or `GateRefusal`. Names are read without case; the first of each counts.

    >>> query = read_query([("t", "tvsearch"), ("cat", "5030,5040"), ("imdbid", "tt944947"), ("season", "00"), ("q", "")])
    >>> query.request.kind, query.request.categories, dict(query.request.params)
    ('tv', (5030, 5040), {'season': '00', 'imdbid': '0944947'})
    >>> read_query([("t", "caps")]).request is None
    True
    >>> read_query([("t", "register")])
    Traceback (most recent call last):
    cormorant.rules.torznab_queries.GateRefusal: No such function (register)
    """
    values: dict[str, str] = {}
    for name, value in given:
        values.setdefault(name.lower(), value.strip())
    function = values.get("t", "").lower()
    if not function:
        raise GateRefusal(MISSING_PARAMETER, "Missing parameter (t)")
    if function == CAPS:
        return GateQuery(request=None)
    if function not in _KINDS:
        raise GateRefusal(NO_SUCH_FUNCTION, f"No such function ({function[:40]})")
    offset = _number(values, "offset", default=0, high=_OFFSET_MAX)
    limit = _number(values, "limit", default=PAGE_SIZE_MAX, high=10**9) or PAGE_SIZE_MAX
    try:
        request = SearchRequest(
            query=values.get("q", ""),
            kind=_KINDS[function],
            categories=_categories(values.get("cat", "")),
            params=_params(values),
            offset=offset,
            limit=min(limit, PAGE_SIZE_MAX),
        )
    except BadRequest as bad:
        raise GateRefusal(INCORRECT_PARAMETER, f"Incorrect parameter ({bad})") from bad
    return GateQuery(request=request, offset=offset, limit=min(limit, PAGE_SIZE_MAX))


def _params(values: Mapping[str, str]) -> dict[str, str]:
    found = {name: values[name] for name in _PARAMS if values.get(name)}
    if "imdbid" in found:
        number = _IMDB.fullmatch(found["imdbid"])
        if number is None:
            raise GateRefusal(
                INCORRECT_PARAMETER, "Incorrect parameter (imdbid: digits, with or without tt before them)"
            )
        # One form for all apps, so that equal searches are equal: the specification's, without tt.
        found["imdbid"] = number[1].lstrip("0").zfill(_IMDB_DIGITS)
    return found


def _categories(written: str) -> tuple[int, ...]:
    parts = [part.strip() for part in written.split(",") if part.strip()]
    if not all(_WHOLE.fullmatch(part) for part in parts):
        raise GateRefusal(INCORRECT_PARAMETER, "Incorrect parameter (cat: numbers with commas between them)")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _number(values: Mapping[str, str], name: str, *, default: int, high: int) -> int:
    written = values.get(name, "")
    if not written:
        return default
    if not _WHOLE.fullmatch(written) or int(written) > high:
        raise GateRefusal(INCORRECT_PARAMETER, f"Incorrect parameter ({name}: a number from 0 to {high})")
    return int(written)

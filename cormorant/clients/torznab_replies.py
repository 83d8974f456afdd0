"""Reads replies and caps, and what they mean (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from attrs import frozen
from lxml import etree

from cormorant.clients.http.headers import RETRY_AFTER_MAX_S, read_date
from cormorant.clients.http.xml_documents import read_xml
from cormorant.clients.torznab_items import ItemReader, whole
from cormorant.rules.json_documents import parse_json
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.search.requests import Caps, Category, SearchKind, SearchPage, StatedLimits, page_size

_DESCRIPTION_MAX = 2_000


@frozen(kw_only=True)
class StatedError:
    """An error that a document states. The description is the server's and may hold anything."""

    code: int | None
    description: str
    retry_after_s: float | None = None


def local_name(element: etree._Element) -> str:
    """The name of an element without namespace and prefix, in lower case.

    >>> local_name(etree.Element("{http://x}apiLimits")), local_name(etree.Element("ITEM"))
    ('apilimits', 'item')
    """
    # Not always text, whatever its type says: what is left of an unknown entity has a function there.
    return str(element.tag).rpartition("}")[2].rpartition(":")[2].lower()


def read_reply(body: bytes, *, charset: str = "") -> etree._Element | StatedError:
    """The root of a reply, or the error it states, wherever in the document and in whatever form.

    Raises `SourceUnavailable` for what is neither.
    """
    start = body[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith((b"{", b"[")):
        return _read_json(body)
    root = read_xml(body, charset=charset)
    name = local_name(root)
    if name == "html":
        raise SourceUnavailable(
            "it answered with a web page instead of XML: a login, a check for robots, or a wrong address"
        )
    # Wherever it stands: some servers put it into an otherwise empty feed.
    error = next(root.iter("{*}error", "{*}Error", "{*}ERROR"), None)
    return root if error is None else _stated(error)


def _stated(error: etree._Element) -> StatedError:
    attributes = _lower([error])
    description = attributes.get("description") or error.text or ""
    return StatedError(code=whole(attributes.get("code")), description=description[:_DESCRIPTION_MAX])


def _read_json(body: bytes) -> StatedError:
    """Throttles answer in JSON whatever was asked for."""
    try:
        said = parse_json(body)
    except ValueError as error:
        raise SourceUnavailable("it answered with something that is neither XML nor JSON") from error
    found = _json_error(said)
    if found is None:
        raise SourceUnavailable("it answered with JSON instead of XML")
    return found


def _json_error(said: Any) -> StatedError | None:
    if not isinstance(said, Mapping):
        return None
    error = said.get("error", said.get("message"))
    inner = error if isinstance(error, Mapping) else said
    attributes = inner.get("@attributes")
    inner = attributes if isinstance(attributes, Mapping) else inner
    description = error if isinstance(error, str) else inner.get("description", inner.get("message"))
    code = whole(str(inner.get("code"))[:20])
    if description is None and code is None:
        return None
    wait = whole(str(said.get("retry_after"))[:20])
    return StatedError(
        code=code,
        description=str(description or "")[:_DESCRIPTION_MAX],
        retry_after_s=None if wait is None else min(RETRY_AFTER_MAX_S, float(wait)),
    )


def parse_page(
    body: bytes, reader: ItemReader, headers: Mapping[str, str], *, charset: str = ""
) -> SearchPage | StatedError:
    """A reply to a search, from its bytes: results, or the error it states. Blocking; large replies belong into a thread."""
    reply = read_reply(body, charset=charset)
    if isinstance(reply, StatedError):
        return reply
    return read_page(reply, reader.for_reply(body), headers)


def read_page(root: etree._Element, reader: ItemReader, headers: Mapping[str, str]) -> SearchPage:
    """The results of a reply. Raises `SourceUnavailable` when it is no list of results."""
    if local_name(root) not in {"rss", "rdf", "channel"}:
        raise SourceUnavailable(f"it answered with a <{local_name(root)[:40]}> instead of results")
    elements = _page_elements(root)
    limits = stated_limits(_lower(elements.get("apilimits", [])), headers)
    return SearchPage(
        results=reader.read(elements.get("item", [])),
        limits=limits if limits.states_any else None,
    )


def _page_elements(root: etree._Element) -> dict[str, list[etree._Element]]:
    """The elements that matter, by name; in RSS 1.0 items stand beside the channel, and broken replies nest oddly."""
    found: dict[str, list[etree._Element]] = {}
    holders: Iterable[etree._Element] = [root, *(child for child in root if local_name(child) == "channel")]
    for holder in holders:
        for child in holder:
            found.setdefault(local_name(child), []).append(child)
    if "item" not in found:
        items = (element for element in root.iter() if local_name(element) == "item")
        # An item within the title of another would hold the rest of the reply once more, and a hundred of them a hundred times.
        found["item"] = [
            item for item in items if next(item.iterancestors("{*}item", "{*}Item", "{*}ITEM"), None) is None
        ]
    return found


def _lower(elements: Iterable[etree._Element]) -> dict[str, str]:
    return {str(name).lower(): str(value) for element in elements for name, value in element.attrib.items()}


def stated_limits(attributes: Mapping[str, str], headers: Mapping[str, str]) -> StatedLimits:
    """What a source says of its limits: servers differ in upper and lower case, and any part may be missing."""
    return StatedLimits(
        api_current=whole(attributes.get("apicurrent")),
        api_max=whole(attributes.get("apimax")),
        grab_max=whole(attributes.get("grabmax")),
        api_oldest_at=read_date(attributes.get("apioldesttime")),
        rate_limit=whole(headers.get("x-ratelimit-limit")),
    )


_OK = range(200, 300)
_ACCOUNT = range(100, 200)
_CALL_OR_CONTENT = range(200, 400)
_CLIENT_ERRORS = range(400, 500)
_CREDENTIALS = {401, 403}
_LIMITS = {429, 500, 501}
_GONE = 410
_MISSING_PARAMETER = 200
# "Took too long" and "too early" are about the moment, not about what was asked.
_PASSING = {408, 425}
_LIMIT_WORDS = ("request limit reached", "you have reached your daily limit", "download limit reached")


@frozen(kw_only=True)
class IndexerReply:
    """What of a reply decides. `code` is that of an error document; `words` are the server's own, without secrets."""

    status: int
    code: int | None = None
    words: str = ""
    retry_after_s: float | None = None
    key_was_sent: bool = True

    @property
    def is_error(self) -> bool:
        """Whether the document or the status says that something is wrong. A code of 200 is no success."""
        return self.code is not None or bool(self.words) or self.status not in _OK


def error_of(reply: IndexerReply) -> SourceError | None:
    """The error that a reply stands for; None when it is none.

    >>> for status, code in (200, 100), (429, 900), (200, 500), (400, 201), (503, None), (200, None):
    ...     print(type(error_of(IndexerReply(status=status, code=code))).__name__)
    CredentialsRefused
    SourceLimited
    SourceLimited
    SourceRefused
    SourceUnavailable
    NoneType
    """
    if not reply.is_error:
        return None
    said = _told(reply)
    if _is_about_credentials(reply):
        return CredentialsRefused(f"it does not accept our key ({said}); check the key, then enable the source again")
    if _is_limit(reply):
        return SourceLimited(f"it wants to be asked less ({said})", retry_after_s=reply.retry_after_s)
    if _is_final(reply):
        return SourceRefused(f"it refused the request ({said})", retry_after_s=reply.retry_after_s)
    return SourceUnavailable(f"it cannot serve us now ({said})", retry_after_s=reply.retry_after_s)


def _is_about_credentials(reply: IndexerReply) -> bool:
    if reply.code is None:
        return reply.status in _CREDENTIALS
    if reply.code == _MISSING_PARAMETER and not reply.key_was_sent and "key" in reply.words.lower():
        return True
    is_unsaid = reply.code not in _CALL_OR_CONTENT and reply.code not in _LIMITS
    return reply.code in _ACCOUNT or reply.code in _CREDENTIALS or (is_unsaid and reply.status in _CREDENTIALS)


def _is_limit(reply: IndexerReply) -> bool:
    if reply.code in _LIMITS or reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return reply.words.lower().startswith(_LIMIT_WORDS)


def _is_final(reply: IndexerReply) -> bool:
    if reply.code is not None:
        return reply.code in _CALL_OR_CONTENT or reply.code == _GONE
    return reply.status in _CLIENT_ERRORS and reply.status not in _PASSING


def _told(reply: IndexerReply) -> str:
    parts = [f"HTTP {reply.status}"]
    if reply.code is not None:
        parts.append(f"code {reply.code}")
    if reply.words:
        parts.append(reply.words)
    return ", ".join(parts)


_KINDS: Final[Mapping[str, SearchKind]] = {
    "search": "search",
    "tv-search": "tv",
    "movie-search": "movie",
    "audio-search": "music",
    "music-search": "music",
    "book-search": "book",
}
# What a kind takes when the source does not say: the specification's defaults.
_DEFAULTS: Final[Mapping[SearchKind, frozenset[str]]] = {
    "search": frozenset({"q"}),
    "tv": frozenset({"q", "rid", "season", "ep"}),
    "movie": frozenset({"q", "imdbid"}),
    "music": frozenset({"q"}),
    "book": frozenset({"q"}),
}


def read_caps(root: etree._Element) -> Caps:
    """What a source offers. Raises `SourceUnavailable` when the document is no caps."""
    if local_name(root) != "caps":
        raise SourceUnavailable(f"it answered with a <{local_name(root)[:40]}> instead of what it can do")
    limits = _child(root, "limits")
    server = _child(root, "server")
    searching, states_params = _searching(_child(root, "searching"))
    return Caps(
        page_size=page_size(*(None if limits is None else limits.get(name) for name in ("default", "max"))),
        searching=searching,
        states_params=states_params,
        categories=tuple(_categories(_child(root, "categories"), "category")),
        title=((server is not None and server.get("title")) or "")[:200],
    )


def _child(parent: etree._Element, name: str) -> etree._Element | None:
    return next((child for child in parent if local_name(child) == name), None)


def _searching(parent: etree._Element | None) -> tuple[dict[SearchKind, frozenset[str]], frozenset[SearchKind]]:
    found: dict[SearchKind, set[str]] = {}
    stated: set[SearchKind] = set()
    for element in () if parent is None else parent:
        kind = _KINDS.get(local_name(element))
        if kind is None or (element.get("available") or "").strip().lower() != "yes":
            continue
        listed = element.get("supportedParams")
        found.setdefault(kind, set()).update(_DEFAULTS[kind] if listed is None else _names(listed))
        if listed is not None:
            stated.add(kind)
    return {kind: frozenset(params) for kind, params in found.items()}, frozenset(stated)


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in listed.split(",") if name.strip())


def _categories(parent: etree._Element | None, name: str) -> Iterator[Category]:
    """Those that have a number; private ones are large, and a subcategory may stand at the top."""
    for element in () if parent is None else parent:
        number = whole(element.get("id"))
        if local_name(element) == name and number is not None:
            title = (element.get("name") or "").strip()
            yield Category(id=number, name=title, children=tuple(_categories(element, "subcat")))

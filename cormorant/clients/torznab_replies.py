"""What does a Torznab or Newznab reply say: results, an error, or nothing that can be understood?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen
from lxml import etree

from cormorant.clients.http.headers import read_date
from cormorant.clients.http.retry_after import RETRY_AFTER_MAX_S
from cormorant.clients.http.xml_documents import read_xml
from cormorant.clients.torznab_items import ItemReader, whole
from cormorant.rules.json_documents import parse_json
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.search.requests import SearchPage, StatedLimits

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
    response = _lower(elements.get("response", []))
    limits = stated_limits(_lower(elements.get("apilimits", [])), headers)
    return SearchPage(
        results=reader.read(elements.get("item", [])),
        offset=whole(response.get("offset")) or 0,
        total=whole(response.get("total")),
        limits=limits if limits.says_anything else None,
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
        grab_current=whole(attributes.get("grabcurrent")),
        grab_max=whole(attributes.get("grabmax")),
        api_oldest_at=read_date(attributes.get("apioldesttime")),
        grab_oldest_at=read_date(attributes.get("graboldesttime")),
        rate_limit=whole(headers.get("x-ratelimit-limit")),
        rate_remaining=whole(headers.get("x-ratelimit-remaining")),
    )

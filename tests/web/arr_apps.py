"""Apps that read an indexer as Sonarr, Radarr, Lidarr, Prowlarr and cross-seed do, and complain where they would."""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx2
from attrs import define, field, frozen
from lxml import etree

TORZNAB: Final = "http://torznab.com/schemas/2015/feed"
NEWZNAB: Final = "http://www.newznab.com/DTD/2010/feeds/attributes/"
ACCEPT: Final = "application/rss+xml, text/rss+xml, application/xml, text/xml"
_TYPES: Final = {
    TORZNAB: {"application/x-bittorrent", "application/x-bittorrent;x-scheme-handler/magnet"},
    NEWZNAB: {"application/x-nzb"},
}


class Complaint(Exception):
    """What the app would tell its user, or take as a reason to back off."""

    def __init__(self, what: str, retry_after_s: int | None = None) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


@frozen(kw_only=True)
class Release:
    """What the app has understood of an item."""

    title: str
    guid: str
    link: str
    size: int
    published: datetime
    categories: tuple[int, ...]
    seeders: int | None


@frozen(kw_only=True)
class Abilities:
    """What the app has understood of the caps."""

    page_size: int
    searching: dict[str, list[str]]
    categories: dict[int, str]


@define(kw_only=True)
class App:
    """One app with its indexer: the address and the key that a person has typed in."""

    http: httpx2.AsyncClient
    url: str
    key: str
    categories: str
    space: str = TORZNAB
    page_size: int = 100
    asked: list[str] = field(factory=list)

    async def get(self, function: str, *specific: tuple[str, str], offset: int | None = 0) -> httpx2.Response:
        """One request, with its parameters in the order in which these apps write them. `None`: no search, as caps."""
        params = [("t", function)]
        if offset is not None:
            params += [("cat", self.categories), ("extended", "1")]
        params += [("apikey", self.key)] if self.key else []
        if offset is not None:
            params += [("offset", str(offset)), ("limit", str(self.page_size))]
        query = httpx2.QueryParams([*params, *specific])
        self.asked.append(str(query))
        return await self.http.get(f"{self.url}/api?{query}", headers={"Accept": ACCEPT})

    async def caps(self) -> Abilities:
        """What the indexer can do."""
        answer = await self.get("caps", offset=None)
        _check_status(answer)
        root = etree.fromstring(answer.content)
        self._check_error(root, answer)
        if root.tag != "caps":
            raise Complaint(f"unexpected root {root.tag}")
        limits = root.find("limits")
        assert limits is not None
        stated = [int(limits.attrib["default"]), int(limits.attrib["max"])]
        self.page_size = min(100, max(stated))
        kinds = [each for each in root.findall("searching/*") if each.get("available") == "yes"]
        return Abilities(
            page_size=self.page_size,
            # Split and not trimmed: a space after a comma would hide a parameter.
            searching={str(each.tag): str(each.attrib["supportedParams"]).split(",") for each in kinds},
            categories={int(each.attrib["id"]): str(each.attrib["name"]) for each in root.iter("category", "subcat")},
        )

    async def search(self, function: str, *specific: tuple[str, str], offset: int = 0) -> list[Release]:
        """One page of releases."""
        return self.read(await self.get(function, *specific, offset=offset))

    def read(self, answer: httpx2.Response) -> list[Release]:
        """The releases of an answer."""
        _check_status(answer)
        if "text/html" in answer.headers["content-type"]:
            raise Complaint("html content")
        root = etree.fromstring(answer.content)
        self._check_error(root, answer)
        if root.tag != "rss":
            raise Complaint(f"unexpected root {root.tag}")
        found = [self._release(item) for item in root.iter("item")]
        guids = [each.guid for each in found]
        assert len(set(guids)) == len(guids)
        assert len(found) <= self.page_size
        return found

    def _check_error(self, root: etree._Element, answer: httpx2.Response) -> None:
        found = next(root.iter("error"), None)
        if found is None:
            return
        code, words = int(found.attrib["code"]), str(found.attrib["description"])
        if 100 <= code <= 199:
            raise Complaint(f"invalid API key: {words}")
        if "apikey=" not in str(answer.request.url) and (words == "Missing parameter" or "apikey" in words):
            raise Complaint("indexer requires an API key")
        if words == "Request limit reached":
            raise Complaint("API limit reached", 3600)
        raise Complaint(f"error {code}: {words}")

    def _release(self, item: etree._Element) -> Release:
        enclosures = [each for each in item.findall("enclosure") if each.get("type") in _TYPES[self.space]]
        attributes: dict[str, list[str]] = {}
        for each in item.iter(f"{{{self.space}}}attr"):
            attributes.setdefault(str(each.attrib["name"]), []).append(str(each.attrib["value"]))
        title, guid, published = (item.findtext(name) for name in ("title", "guid", "pubDate"))
        if not title or not guid or not published or len(enclosures) != 1:
            raise Complaint(f"an item that cannot be read: {etree.tostring(item)!r}")
        for name in ("seeders", "peers"):
            assert all(re.fullmatch(r"\d+", value) for value in attributes.get(name, []))
        return Release(
            title=title,
            guid=guid,
            link=str(enclosures[0].attrib["url"]),
            size=int(attributes.get("size", [str(enclosures[0].attrib["length"])])[0]),
            published=_moment(attributes.get("usenetdate", [published])[0]),
            categories=tuple(int(each) for each in attributes.get("category", [])),
            seeders=int(attributes["seeders"][0]) if "seeders" in attributes else None,
        )

    async def news(self, function: str, *, known: str = "", pages_max: int = 30) -> list[Release]:
        """An RSS sync: pages until one is short or holds the last release that is known."""
        found: list[Release] = []
        for number in range(pages_max):
            page = await self.search(function, offset=number * self.page_size)
            found += page
            if len(page) < self.page_size or known in {each.guid for each in page}:
                break
        return found

    async def test(self, function: str) -> Abilities:
        """What happens when a person adds the indexer: what is new first, and an empty answer fails."""
        if not await self.search(function):
            raise Complaint("no results in the configured categories were returned")
        abilities = await self.caps()
        if "q" not in abilities.searching.get("search", []):
            raise Complaint("search must be possible")
        return abilities

    async def grab(self, release: Release) -> tuple[int, str, bytes]:
        """Fetch what a release links to."""
        answer = await self.http.get(release.link, headers={"Accept": "application/x-bittorrent"})
        return answer.status_code, answer.headers.get("content-type", ""), answer.content


def six_fields(document: bytes) -> list[dict[str, Any]]:
    """The items as cross-seed reads them: unchecked, so that what is missing or is no text crashes it."""
    items = etree.fromstring(document).findall("channel/item")
    return [
        {name: _text_for_xml2js(item, name) for name in ("guid", "title", "link")}
        | {
            "size": int(_text_for_xml2js(item, "size")),
            "pubDate": _moment(_text_for_xml2js(item, "pubDate")),
            "tracker": item.findtext("prowlarrindexer[@id]") or "UnknownTracker",
        }
        for item in items
    ]


def _text_for_xml2js(item: etree._Element, name: str) -> str:
    """The text of the first element of a name. xml2js makes an object of an element with attributes."""
    element = item.find(name)
    assert element is not None, name
    if element.attrib:
        raise Complaint(f"{name} is an object and cannot be bound to an SQLite parameter")
    return element.text or ""


def _check_status(answer: httpx2.Response) -> None:
    """These apps look at the status before they look at any document."""
    if answer.status_code == 429:
        written = answer.headers.get("retry-after", "")
        raise Complaint("too many requests", int(written) if re.fullmatch(r"\d+", written) else None)
    if answer.status_code >= 400:
        raise Complaint(f"HTTP {answer.status_code}")


def _moment(written: str) -> datetime:
    """RFC 1123 with a numeric offset is the one form that all of them read."""
    assert re.fullmatch(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", written)
    return parsedate_to_datetime(written)

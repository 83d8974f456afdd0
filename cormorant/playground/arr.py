"""Sonarr, Radarr and Lidarr: their indexers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from attrs import define, field, frozen

from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.clients.http.xml_documents import read_xml
from cormorant.clients.torznab_items import whole
from cormorant.clients.torznab_replies import local_name
from cormorant.playground.http import StandInRequest, StandInResponse, as_html, as_json
from cormorant.rules.search.outcomes import SourceError

MASKED: Final = "********"
NOT_FOUND: Final = as_json({"message": "NotFound", "description": ""}, status=404)
_TRIAL: Final = FetchLimits(timeout_s=100.0)
_TOO_MANY: Final = 429
_ERRORS: Final = 400
_ACCOUNT: Final = range(100, 200)
_TYPES: Final = {
    "Torznab": ("application/x-bittorrent", "application/x-bittorrent;x-scheme-handler/magnet"),
    "Newznab": ("application/x-nzb",),
}
_NOTHING: Final = "Query successful, but no results in the configured categories were returned from your indexer."
_AGGREGATE: Final = "/torznab/all"


def is_key_right(asked: StandInRequest, key: str) -> bool:
    """Whether a request has the key in one of the two places where Prowlarr and the apps look for it."""
    return key in {asked.headers.get("x-api-key"), asked.params.get("apikey")}


def status_of(title: str, version: str) -> StandInResponse:
    """What Prowlarr and the apps say of themselves."""
    return as_json({"appName": title, "instanceName": title, "version": version})


@frozen(kw_only=True)
class App:
    """What tells the three apart."""

    title: str
    version: str
    api: str
    function: str
    categories: tuple[int, ...]
    searching: Mapping[str, frozenset[str]]
    """Of these searches one must be there, with all of its parameters."""


_PLAIN: Final = frozenset({"q"})
APPS: Final[Mapping[str, App]] = {
    "sonarr": App(
        title="Sonarr",
        version="4.0.16.2944",
        api="v3",
        function="tvsearch",
        categories=(5030, 5040),
        searching={"search": _PLAIN, "tv-search": frozenset({"q", "season", "ep"})},
    ),
    "radarr": App(
        title="Radarr",
        version="6.0.4.10291",
        api="v3",
        function="movie",
        categories=(2000, 2010, 2020, 2030, 2040, 2045, 2050, 2060),
        searching={"search": _PLAIN, "movie-search": _PLAIN},
    ),
    "lidarr": App(
        title="Lidarr",
        version="3.1.0.4875",
        api="v1",
        function="music",
        categories=(3000, 3010, 3030, 3040),
        searching={"search": _PLAIN, "audio-search": frozenset({"q", "artist", "album"})},
    ),
}


@define(eq=False, kw_only=True)
class Arr:
    """A stand-in for one of the three, called like it unless told."""

    app: App
    key: str
    name: str = field()
    indexers: dict[int, dict[str, Any]] = field(init=False, factory=dict)
    _last: int = field(init=False, default=0)

    @name.default
    def _named(self) -> str:
        return self.app.title.lower()

    def keep(self, name: str, url: str, **more: Any) -> int:
        """Let it have an indexer that somebody added by hand; its number."""
        resource = self._template("Torznab") | {"name": name, "enableRss": True} | more
        _set(resource, "baseUrl", url)
        return self._store(resource)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        head = f"/api/{self.app.api}/"
        if not asked.path.startswith(head):
            return as_html(f"{self.app.title}, a stand-in.")  # the page of the app, whatever was asked
        if not is_key_right(asked, self.key):
            return as_json({"error": "Unauthorized"}, status=401)
        what, _, which = asked.path.removeprefix(head).partition("/")
        if (what, which) == ("system", "status"):
            return status_of(self.app.title, self.app.version)
        if what != "indexer":
            return NOT_FOUND
        return await self._indexers(asked, which)

    async def _indexers(self, asked: StandInRequest, which: str) -> StandInResponse:
        match asked.method, which:
            case "GET", "":
                return as_json([_masked(each) for each in self.indexers.values()])
            case "GET", "schema":
                return as_json([self._template(implementation) for implementation in _TYPES])
            case "POST", "" | "test":
                return await self._taken(asked, is_test=which == "test")
            case _:
                number = whole(which)
                return await self._one(asked, number) if number in self.indexers else NOT_FOUND

    async def _one(self, asked: StandInRequest, number: int) -> StandInResponse:
        if asked.method == "DELETE":
            del self.indexers[number]
            return as_json({})
        if asked.method == "PUT":
            return await self._taken(asked, number=number)
        return as_json(_masked(self.indexers[number]))

    async def _taken(self, asked: StandInRequest, *, number: int = 0, is_test: bool = False) -> StandInResponse:
        resource = asked.json()
        if not _is_indexer(resource):
            return as_json([_failure("Fields", "'Fields' must not be empty.")], status=400)
        former = self.indexers.get(number)
        if former is not None and _value(resource, "apiKey") == MASKED:
            _set(resource, "apiKey", _value(former, "apiKey"))
        failures = self._name_failures(resource, number)
        is_as_it_was = former is not None and resource == former
        if not failures and (is_test or (_is_enabled(resource) and not is_as_it_was)):
            failures = await self._trial(resource)
        is_forced = asked.params.get("forceSave") == "true" and not is_test
        in_the_way = [failure for failure in failures if not (is_forced and failure["isWarning"])]
        if in_the_way:
            return as_json(in_the_way, status=400)
        if is_test:
            return as_json({})
        return as_json(_masked(self.indexers[self._store(resource, number)]), status=202 if number else 201)

    def _name_failures(self, resource: dict[str, Any], number: int) -> list[dict[str, Any]]:
        name = resource.get("name")
        if not name:
            return [_failure("Name", "'Name' must not be empty.")]
        others = [each["name"] for key, each in self.indexers.items() if key != number]
        return [_failure("Name", "Should be unique")] if name in others else []

    def _store(self, resource: dict[str, Any], number: int = 0) -> int:
        if not number:
            self._last += 1
            number = self._last
        self.indexers[number] = copy.deepcopy(resource) | {"id": number}
        return number

    async def _trial(self, resource: dict[str, Any]) -> list[dict[str, Any]]:
        """What is new, then what the indexer can do: the app adds none that fails at one of them."""
        base = str(_value(resource, "baseUrl") or "")
        if _AGGREGATE in base.lower():
            words = "Jackett's all endpoint is not supported, please add indexers individually"
            return [_failure("BaseUrl", words, is_warning=True)]
        try:
            transport = Transport(written=[base])
            problem = await self._feed_problem(transport, resource) or await self._caps_problem(transport, resource)
        except SourceError as error:
            problem = f"Unable to connect to indexer: {error}"
        return [_failure("", problem)] if problem else []

    async def _ask(self, transport: Transport, resource: dict[str, Any], **params: object) -> Answer:
        key = str(_value(resource, "apiKey") or "")
        query = urlencode(params | ({"apikey": key} if key else {}), errors="replace")
        url = f"{str(_value(resource, 'baseUrl')).rstrip('/')}{_value(resource, 'apiPath') or '/api'}?{query}"
        return await transport.get(url, limits=_TRIAL)

    async def _feed_problem(self, transport: Transport, resource: dict[str, Any]) -> str | None:
        chosen = _value(resource, "categories")
        categories = ",".join(map(str, chosen if isinstance(chosen, list) and chosen else self.app.categories))
        function = self.app.function
        answer = await self._ask(transport, resource, t=function, cat=categories, extended=1, offset=0, limit=100)
        problem = _status_problem(answer)
        if problem:
            return problem
        root = read_xml(answer.body)
        stated = next((each for each in root.iter() if local_name(each) == "error"), None)
        if stated is not None:
            code, words = whole(stated.get("code")), stated.get("description") or ""
            return "Invalid API key" if code in _ACCOUNT else f"Indexer error: {words}"
        items = [each for each in root.iter() if local_name(each) == "item"]
        facts = [{local_name(part): part for part in item} for item in items]
        if any("pubdate" not in fact for fact in facts):
            return "Unable to parse the feed: an item has no pubDate"
        usable = _TYPES[resource["implementation"]]
        good = [fact for fact in facts if "enclosure" in fact and fact["enclosure"].get("type") in usable]
        return None if good else _NOTHING

    async def _caps_problem(self, transport: Transport, resource: dict[str, Any]) -> str | None:
        answer = await self._ask(transport, resource, t="caps")
        problem = _status_problem(answer)
        if problem:
            return problem
        root = read_xml(answer.body)
        if local_name(root) != "caps":
            return "Unable to read the capabilities of the indexer"
        offered = {
            local_name(each): frozenset((each.get("supportedParams") or "q").split(","))
            for each in root.iter()
            if each.get("available") == "yes"
        }
        if any(params <= offered.get(name, frozenset()) for name, params in self.app.searching.items()):
            return None
        return "Indexer does not support required search parameters"

    def _template(self, implementation: str) -> dict[str, Any]:
        values = {
            "baseUrl": "",
            "apiPath": "/api",
            "apiKey": "",
            "categories": list(self.app.categories),
            "additionalParameters": "",
        }
        return {
            "id": 0,
            "name": "",
            "implementation": implementation,
            "implementationName": implementation,
            "configContract": f"{implementation}Settings",
            "protocol": "torrent" if implementation == "Torznab" else "usenet",
            "enableRss": True,
            "enableAutomaticSearch": True,
            "enableInteractiveSearch": True,
            "priority": 25,
            "tags": [],
            "fields": [
                {"order": order, "name": name, "value": value} for order, (name, value) in enumerate(values.items())
            ],
        }


def _failure(part: str, words: str, *, is_warning: bool = False) -> dict[str, Any]:
    severity = "warning" if is_warning else "error"
    return {"isWarning": is_warning, "propertyName": part, "errorMessage": words, "severity": severity}


def _status_problem(answer: Answer) -> str | None:
    if answer.status == _TOO_MANY:
        return f"Indexer rate limited: Retry-After {answer.headers.get('Retry-After', 'not said')}"
    return f"HTTP request failed: [{answer.status}]" if answer.status >= _ERRORS else None


def _is_indexer(said: Any) -> bool:
    fields = said.get("fields") if isinstance(said, dict) else None
    is_whole = isinstance(fields, list) and all(isinstance(each, dict) for each in fields)
    return is_whole and said.get("implementation") in tuple(_TYPES) and isinstance(said.get("name"), str)


def _is_enabled(resource: dict[str, Any]) -> bool:
    return any(resource.get(name) for name in ("enableRss", "enableAutomaticSearch", "enableInteractiveSearch"))


def _value(resource: dict[str, Any], name: str) -> Any:
    return next((each.get("value") for each in resource["fields"] if each.get("name") == name), None)


def _set(resource: dict[str, Any], name: str, value: object) -> None:
    for each in resource["fields"]:
        if each.get("name") == name:
            each["value"] = value


def _masked(resource: dict[str, Any]) -> dict[str, Any]:
    shown = copy.deepcopy(resource)
    if _value(shown, "apiKey"):
        _set(shown, "apiKey", MASKED)
    return shown

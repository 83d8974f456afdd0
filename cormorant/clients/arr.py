"""Indexers of Sonarr, Radarr and Lidarr; indexer lists of Prowlarr and Jackett."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from attrs import frozen
from lxml import etree

from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.clients.torznab_replies import StatedError, local_name, read_reply
from cormorant.rules.app_indexers import AppIndexer, GateEndpoint, OfferedIndexer
from cormorant.rules.errors import CormorantError
from cormorant.rules.ports import Offload
from cormorant.rules.search.outcomes import CredentialsRefused, SourceError, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret, redact_secrets

_ENABLED: Final = ("enableRss", "enableAutomaticSearch", "enableInteractiveSearch")
_NAME_MAX: Final = 200


class AppFailed(CormorantError):
    """Another program did not do what was asked of it. Its reason follows its name."""

    http_status = 502
    exit_code = 1


@contextmanager
def said_by(app: str, key: Secret) -> Iterator[None]:
    """Raise what a program says as `AppFailed`, without its key."""
    try:
        yield
    except SourceError as error:
        raise AppFailed(f"{app}: {redact_secrets(str(error), [key])}") from error


@frozen
class ArrApp:
    """What tells the three apart: what it is called, the version of its API, and the group of categories it looks in."""

    title: str
    api: str
    group: int


APPS: Final[Mapping[str, ArrApp]] = {
    "sonarr": ArrApp("Sonarr", "v3", 5000),
    "radarr": ArrApp("Radarr", "v3", 2000),
    "lidarr": ArrApp("Lidarr", "v1", 3000),
}


@frozen
class ArrClient:
    """The indexers of one app. Every failure is a `SourceError`."""

    app: ArrApp
    api: JsonApi

    async def check(self) -> str:
        """Make sure that it is the app it should be; its version."""
        status = await _status(self.api, self._path("/system/status"), self.app.title, "the address, or the command")
        return str(status.get("version", ""))[:40]

    async def indexers(self) -> list[AppIndexer]:
        """What it has."""
        return [_entry(each) for each in await self._all()]

    async def add(self, name: str, endpoint: GateEndpoint, key: Secret) -> None:
        """Add an indexer to the app. The app tests it first, and `SourceRefused` has its reason."""
        await self.api.change("POST", self._path("/indexer"), await self._made(name, endpoint, key))

    async def update(self, entry: AppIndexer, endpoint: GateEndpoint, key: Secret) -> None:
        """Bring an indexer of ours up to date; what a person has set there otherwise stays."""
        there = next((each for each in await self._all() if each["id"] == entry.id), None)
        if there is None:
            raise SourceRefused("it is not there any more; run it again")
        _fill(there, endpoint, key)
        await self.api.change("PUT", self._path(f"/indexer/{entry.id}"), there)

    async def remove(self, entry: AppIndexer) -> None:
        """Take an indexer away."""
        await self.api.change("DELETE", self._path(f"/indexer/{entry.id}"))

    async def _all(self) -> list[dict[str, Any]]:
        return [each for each in await _listed(self.api, self._path("/indexer")) if _is_indexer(each)]

    async def _made(self, name: str, endpoint: GateEndpoint, key: Secret) -> dict[str, Any]:
        templates = await self.api.get(self._path("/indexer/schema"))
        for each in templates if isinstance(templates, list) else ():
            if isinstance(each, dict) and each.get("implementation") == endpoint.implementation:
                made = copy.deepcopy(each) | {"name": name} | dict.fromkeys(_ENABLED, True)
                made.pop("presets", None)
                _fill(made, endpoint, key)
                return made
        raise SourceRefused(f"it knows no indexers of the kind {endpoint.implementation}")

    def _path(self, path: str) -> str:
        return f"/api/{self.app.api}{path}"


async def _status(api: JsonApi, path: str, title: str, suspect: str) -> dict[str, Any]:
    """What an app says of itself, once it is the one that it should be."""
    status = await api.get(path)
    name = status.get("appName") if isinstance(status, dict) else None
    if name != title:
        what = str(name)[:40] if name else "something else"
        raise SourceRefused(f"what is there is {what} and not {title}; check {suspect}")
    return dict(status)


async def _listed(api: JsonApi, path: str) -> list[Any]:
    said = await api.get(path)
    if not isinstance(said, list):
        raise SourceRefused("it did not answer with a list of its indexers")
    return said


def _is_indexer(said: Any) -> bool:
    return isinstance(said, dict) and isinstance(said.get("id"), int) and isinstance(said.get("fields"), list)


def _entry(said: dict[str, Any]) -> AppIndexer:
    values = {each.get("name"): each.get("value") for each in said["fields"] if isinstance(each, dict)}
    return AppIndexer(
        id=said["id"],
        name=str(said.get("name", ""))[:_NAME_MAX],
        implementation=str(said.get("implementation", ""))[:_NAME_MAX],
        url=str(values.get("baseUrl") or ""),
        is_enabled=any(said.get(name) for name in _ENABLED),
    )


def _fill(resource: dict[str, Any], endpoint: GateEndpoint, key: Secret) -> None:
    values = {"baseUrl": endpoint.url, "apiPath": "/api", "apiKey": key.reveal()}
    for each in resource.get("fields", ()):
        if isinstance(each, dict) and each.get("name") in values:
            each["value"] = values[each["name"]]


PROWLARR: Final = "Prowlarr"
_TITLE_MAX: Final = 100


async def prowlarr_indexers(api: JsonApi) -> list[OfferedIndexer]:
    """Its indexers, by number. Raises a `SourceError`."""
    await _status(api, "/api/v1/system/status", PROWLARR, "the address")
    return list(_of_prowlarr(api.url.rstrip("/"), await _listed(api, "/api/v1/indexer")))


def _of_prowlarr(url: str, said: list[Any]) -> Iterator[OfferedIndexer]:
    for each in said:
        if not isinstance(each, dict) or not isinstance(each.get("id"), int):
            continue
        yield OfferedIndexer(
            title=str(each.get("name") or f"prowlarr-{each['id']}")[:_TITLE_MAX],
            url=f"{url}/{each['id']}/api",
            kind="newznab" if each.get("protocol") == "usenet" else "torznab",
            is_private=each.get("privacy") != "public",
            is_enabled=each.get("enable") is not False,
        )


JACKETT: Final = "Jackett"
_LIST: Final = "/api/v2.0/indexers/all/results/torznab/api"
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ACCOUNT: Final = range(100, 200)
_ERRORS: Final = 400


async def jackett_indexers(url: str, key: Secret, transport: Transport, *, offload: Offload) -> list[OfferedIndexer]:
    """Its configured indexers. Raises a `SourceError`."""
    base = url.rstrip("/")
    params = [("t", "indexers"), ("configured", "true"), ("apikey", key.reveal())]
    answer = await transport.get(f"{base}{_LIST}", params=params, secrets=[key])
    if answer.is_page or answer.status >= _ERRORS:
        what = "a web page" if answer.is_page else f"HTTP {answer.status}"
        raise SourceRefused(
            f"what is there answers with {what}, so it is not the API of {JACKETT}; check the address: "
            f"the port, and the base path if {JACKETT} has one, such as http://host:9117/jackett"
        )
    try:
        said = await offload(read_reply, answer.body)
    except SourceUnavailable:
        raise SourceRefused(f"what is there does not answer as {JACKETT} does; check the address") from None
    if isinstance(said, StatedError):
        if said.code in _ACCOUNT:
            raise CredentialsRefused(f"it does not accept this key; look at the top of {JACKETT}'s page")
        raise SourceRefused(f"it refuses to list its indexers (code {said.code})")
    return list(_of_jackett(base, said))


def _of_jackett(base: str, root: etree._Element) -> Iterator[OfferedIndexer]:
    for each in root.iter():
        name = each.get("id") or ""
        if local_name(each) != "indexer" or not _ID.fullmatch(name):
            continue
        facts = {local_name(part): (part.text or "").strip() for part in each}
        yield OfferedIndexer(
            title=(facts.get("title") or name)[:_TITLE_MAX],
            url=f"{base}/api/v2.0/indexers/{name}/results/torznab/api",
            kind="torznab",
            is_private=facts.get("type") != "public",
            is_enabled=each.get("configured", "true").lower() == "true",
        )

"""How do Sonarr, Radarr and Lidarr take an indexer? Through one API that differs in its version and in what they look for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from cormorant.clients.http.json_api import JsonApi
from cormorant.rules.app_indexers import AppIndexer, GateEndpoint
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.secrets import Secret

__all__ = ["APPS", "ArrApp", "ArrClient"]

_ENABLED: Final = ("enableRss", "enableAutomaticSearch", "enableInteractiveSearch")
_NAME_MAX: Final = 200


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
        status = await self.api.get(self._path("/system/status"))
        name = status.get("appName") if isinstance(status, dict) else None
        if name != self.app.title:
            what = f"{str(name)[:40]}" if name else "something else"
            raise SourceRefused(f"what is there is {what} and not {self.app.title}; check the address, or the command")
        return str(status.get("version", ""))[:40]

    async def indexers(self) -> list[AppIndexer]:
        """What it has."""
        return [_entry(each) for each in await self._all()]

    async def add(self, name: str, endpoint: GateEndpoint, key: Secret) -> None:
        """Give it an indexer. It tries it out first, and a `Refusal` says what it did not like."""
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
        said = await self.api.get(self._path("/indexer"))
        if not isinstance(said, list):
            raise SourceRefused("it did not answer with a list of its indexers")
        return [each for each in said if _is_indexer(each)]

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

"""Which indexers does Prowlarr have? Each is asked through Prowlarr itself, so that no secret of a tracker moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from cormorant.clients.http.json_api import JsonApi
from cormorant.rules.app_indexers import OfferedIndexer
from cormorant.rules.search.outcomes import SourceRefused

__all__ = ["APP", "prowlarr_indexers"]

APP: Final = "Prowlarr"
_TITLE_MAX: Final = 100


async def prowlarr_indexers(api: JsonApi) -> list[OfferedIndexer]:
    """Its indexers, by number. Raises a `SourceError`."""
    status = await api.get("/api/v1/system/status")
    app = status.get("appName") if isinstance(status, dict) else None
    if app != APP:
        raise SourceRefused(
            f"what is there is {str(app)[:40] if app else 'something else'} and not {APP}; check the address"
        )
    said = await api.get("/api/v1/indexer")
    if not isinstance(said, list):
        raise SourceRefused("it did not answer with a list of its indexers")
    return list(_offered(api.url.rstrip("/"), said))


def _offered(url: str, said: list[Any]) -> Iterator[OfferedIndexer]:
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

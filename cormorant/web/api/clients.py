"""Client apps over HTTP."""

from __future__ import annotations

from typing import Final

from attrs import frozen
from litestar import Router, delete, get, post
from litestar.params import FromPath, JSONBody

from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.service import HOLD_S_MAX, ClientSettings
from cormorant.services.gate.client_apps import AddedClient
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown
from storage.access import ClientAppView


@frozen(kw_only=True)
class ClientBody:
    """An app to be let in."""

    name: str
    priority: str = "completion"
    share: float = 1.0
    hold_s: float = 60.0


CLIENT_LIMITS: Final = {
    "priority": {"type": "string", "enum": ["interactive", "completion", "background"]},
    "share": {"type": "number", "minimum": 0, "maximum": 1},
    "hold_s": {"type": "number", "minimum": 0, "maximum": HOLD_S_MAX},
}
"""What the OpenAPI document states of the fields of `ClientBody`."""


@get("/clients", summary="The apps that search through the gate, and what each has spent")
async def list_clients(request: AnyRequest) -> list[ClientAppView]:
    """By name. `today` is the last 24 hours. Keys are not shown: of those made here nobody has one but the app."""
    return await parts_of(request).apps.all()


@post("/clients", summary="Let an app in", status_code=201)
async def add_client(request: AnyRequest, data: JSONBody[ClientBody]) -> AddedClient:
    """Its key is in the answer and nowhere else. It opens the gate of every process within seconds."""
    refuse_unknown(await request.json(), ClientBody)
    return await parts_of(request).apps.add(data.name, _settings(data))


@delete("/clients/{name:str}", summary="Let an app in no more", status_code=204)
async def remove_client(request: AnyRequest, name: FromPath[str]) -> None:
    """Its key and its links open nothing any more, in every process within seconds. What it spent stays spent."""
    await parts_of(request).apps.remove(name[:100].replace("\0", ""))


def _settings(body: ClientBody) -> ClientSettings:
    try:
        return ClientSettings(priority=body.priority, share=body.share, hold_s=body.hold_s)
    except ValueError as error:
        part, _, why = str(error).partition(": ")
        raise BadRequest(part, why[:300]) from None


def client_routes() -> Router:
    """The addresses of this file."""
    return Router("/", route_handlers=[list_clients, add_client, remove_client], tags=["clients"])

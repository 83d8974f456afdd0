"""Client apps over HTTP."""

from __future__ import annotations

from litestar import Response, Router, delete, get, post
from litestar.params import FromPath, JSONBody

from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.service import ClientSettings
from cormorant.services.keys import new_key
from cormorant.web.models import AddedClientOut, ClientBody, ClientOut, client_out
from cormorant.web.parts import WebParts
from cormorant.web.problems import AnyRequest, parts_of, refuse_unknown
from storage import access
from storage.access import ClientExists, ClientRecord, digest_of

__all__ = ["client_routes"]


class _FromFile(ClientExists):
    """It is in the settings file, and is changed there."""

    def __init__(self, name: str) -> None:
        Exception.__init__(self, f"the settings file has the client {name!r}; change [clients.{name}] there")


@get("/clients", summary="The apps that search through the gate, and what each has spent")
async def list_clients(request: AnyRequest) -> list[ClientOut]:
    """By name. `today` is the last 24 hours. Keys are not shown: of those made here nobody has one but the app."""
    return await _all(parts_of(request))


@post("/clients", summary="Let an app in", status_code=201)
async def add_client(request: AnyRequest, data: JSONBody[ClientBody]) -> Response[AddedClientOut]:
    """Its key is in the answer and nowhere else. It opens the gate of every process within seconds."""
    refuse_unknown(await request.json(), ClientBody)
    parts, key = parts_of(request), new_key()
    settings = _settings(data)
    if data.name in parts.environment.settings.clients:
        raise _FromFile(data.name)
    record = ClientRecord(
        name=data.name, settings=settings, key_digest=digest_of(key), added_at=parts.environment.now()
    )
    await parts.environment.database.run(access.add, record)
    [added] = [each for each in await _all(parts) if each.name == data.name]
    return Response(AddedClientOut(client=added, key=key), status_code=201)


@delete("/clients/{name:str}", summary="Let an app in no more", status_code=204)
async def remove_client(request: AnyRequest, name: FromPath[str]) -> None:
    """Its key and its links open nothing any more, in every process within seconds. What it spent stays spent."""
    parts = parts_of(request)
    if name in parts.environment.settings.clients:
        raise _FromFile(name)
    await parts.environment.database.run(access.remove, name[:100].replace("\0", ""))


async def _all(parts: WebParts) -> list[ClientOut]:
    looks = await parts.environment.database.read(
        access.read_clients, parts.environment.settings.clients, now=parts.environment.now()
    )
    return [client_out(look) for look in looks]


def _settings(body: ClientBody) -> ClientSettings:
    problem = name_problem(body.name)
    if problem:
        raise BadRequest("name", problem[:300])
    try:
        return ClientSettings(priority=body.priority, share=body.share, hold_s=body.hold_s)
    except ValueError as error:
        part, _, why = str(error).partition(": ")
        raise BadRequest(part, why[:300]) from None


def client_routes() -> Router:
    """The addresses of this file."""
    return Router("/", route_handlers=[list_clients, add_client, remove_client], tags=["clients"])

"""Is it alive, and can it do its work?"""

from __future__ import annotations

import trio
from attrs import frozen
from litestar import Response, get
from sqlalchemy import Connection, text

from cormorant.rules.errors import CommitUnknown, StorageUnavailable
from cormorant.web.listening import SERVICE
from cormorant.web.parts import WebParts
from cormorant.web.problems import AnyRequest, parts_of, problem
from cormorant.web.shutdown import Shutdown

__all__ = ["Health", "health", "ready"]

_PATIENCE_S = 2.0


@frozen(kw_only=True)
class Health:
    """That it is alive, or ready. `service` tells it from other programs at the same port."""

    status: str
    service: str = SERVICE


@get("/health", opt={"open": True}, summary="Whether the process is alive")
async def health() -> Health:
    """Alive, if it answers at all."""
    await trio.lowlevel.checkpoint()
    return Health(status="alive")


@get("/ready", opt={"open": True}, summary="Whether it can do its work")
async def ready(request: AnyRequest) -> Response[Health] | Response[bytes]:
    """Ready, if every child of the tree is up and the database answers."""
    parts = parts_of(request)
    closing: Shutdown = request.app.state["closing"]
    if closing.is_told or not parts.is_ready():
        return problem(503, "it is starting or stopping")
    if not await _storage_answers(parts):
        return problem(503, "the database does not answer")
    return Response(Health(status="ready"))


async def _storage_answers(parts: WebParts) -> bool:
    with trio.move_on_after(_PATIENCE_S):
        try:
            await parts.database.read(_nothing)
        except (StorageUnavailable, CommitUnknown):
            return False
        return True
    return False


def _nothing(connection: Connection) -> None:
    connection.execute(text("SELECT 1"))

"""Which key does an app get? That of a client of the settings, or of one that is let in for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from cormorant.cli.console.command_line import CommandFailed
from cormorant.cli.console.database_session import visit
from cormorant.rules.errors import KeyUnusable
from cormorant.rules.ports import ignore
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.settings import Settings
from cormorant.services.keys import kept_key
from storage import access
from storage.access import ClientExists, ClientRecord, digest_of
from storage.database import Database

__all__ = ["client_key"]


def client_key(settings: Settings, name: str, *, may_make: bool = True) -> Secret:
    """The key of a client; made when it is not there yet, exactly as the server would, or empty if it may not be made."""
    client = settings.clients.get(name)
    if client is not None and (client.key or not may_make):
        return client.key
    if not may_make:
        return Secret("")
    problem = name_problem(name)
    if problem:
        raise CommandFailed(problem)
    file = Path(settings.data) / "keys" / f"client-{name}.key"
    if client is None and not _is_let_in(settings, name):
        file.unlink(missing_ok=True)  # the key of one that was removed must not come back
    try:
        key = kept_key(file, of=f"the client {name}", emit=ignore, file_mode=settings.data_file_mode)
    except KeyUnusable as error:
        raise CommandFailed(str(error)) from None
    if client is None:
        _let_in(settings, name, key)
    return key


def _is_let_in(settings: Settings, name: str) -> bool:
    async def look(database: Database) -> bool:
        return any(each.name == name for each in await database.read(access.all_clients))

    return visit(settings, look)


def _let_in(settings: Settings, name: str, key: Secret) -> None:
    """A client that the settings do not name is kept in the database, as `clients add` would."""
    record = ClientRecord(
        name=name, settings=ClientSettings(), key_digest=digest_of(key.reveal()), added_at=datetime.now(UTC)
    )

    async def put(database: Database) -> None:
        await database.run(_put, record)

    try:
        visit(settings, put)
    except ClientExists:
        raise CommandFailed(
            f"a client {name} was added by command, and only its app has its key; choose another name with --client, "
            f"or remove it first: cormorant clients remove {name}"
        ) from None


def _put(connection: Connection, record: ClientRecord) -> None:
    there = next((each for each in access.all_clients(connection) if each.name == record.name), None)
    if there is None or there.key_digest != record.key_digest:
        access.add(connection, record)

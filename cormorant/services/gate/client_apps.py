"""Client apps: lookup by key, add, remove, spend."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.rules.errors import AlreadyExists, CommitUnknown, SetInFile, StorageUnavailable
from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.service import ClientSettings
from cormorant.services.keys import Keys, new_key
from storage import access
from storage.access import ClientAppView, ClientRecord, digest_of

LOOK_S: Final = 2.0
"""After so long one that was removed is let in no more."""
STRANGE_S: Final = 0.5
"""An unknown key may be that of an app that was just added. Whoever guesses makes us look no more often than this."""
_PATIENCE_S: Final = 2.0
"""A database that is away keeps nobody waiting who was known before."""


@frozen(kw_only=True)
class AppShare:
    """An app that asks."""

    name: str
    settings: ClientSettings


@frozen(kw_only=True)
class AddedClient:
    """An app that was let in, and its key, which is told this once."""

    client: ClientAppView
    key: str = field(repr=False)


@frozen
class Apps:
    """Operations on the apps that search through the gate: list, add, remove. Those of the settings file are only listed."""

    environment: Environment

    async def all(self) -> list[ClientAppView]:
        """All of them, by name, with what each has spent in the last 24 hours."""
        configured = self.environment.settings.clients
        return await self.environment.database.read(access.read_clients, configured, now=self.environment.now())

    async def add(self, name: str, settings: ClientSettings) -> AddedClient:
        """Let an app in. Only a digest of its key is kept. Raises `BadRequest` or `AlreadyExists`."""
        problem = name_problem(name)
        if problem:
            raise BadRequest("name", problem[:300])
        if name in self.environment.settings.clients:
            raise AlreadyExists("client", name, f"change [clients.{name}] in the settings file, or choose another name")
        key = new_key()
        added_at = self.environment.now()
        record = ClientRecord(name=name, settings=settings, key_digest=digest_of(key), added_at=added_at)
        await self.environment.database.run(access.add, record)
        [client] = [each for each in await self.all() if each.name == name]
        return AddedClient(client=client, key=key)

    async def remove(self, name: str) -> None:
        """Let an app in no more. What it spent stays spent. Raises `SetInFile` or `NotFound`."""
        if name in self.environment.settings.clients:
            raise SetInFile("client", name, "clients")
        await self.environment.database.run(access.remove, name)


@define(eq=False)
class ClientApps:
    """The apps by key and by name. Where both have a name, the settings file wins."""

    environment: Environment
    keys: Keys
    _added: Mapping[str, ClientRecord] = field(init=False, factory=dict)
    _looked_at: float = field(init=False, default=-math.inf)
    _is_known: bool = field(init=False, default=False)
    """Whether the last look saw the apps of the database."""
    _turn: trio.Lock = field(init=False, factory=trio.Lock)

    async def by_key(self, key: str) -> AppShare | None:
        """The app whose key this is."""
        await self._look(LOOK_S)
        found = self._by_key(key)
        if found is None:
            await self._look(STRANGE_S)
            found = self._by_key(key)
        if found is None:
            self._check_known()
        return found

    async def by_name(self, name: str) -> AppShare | None:
        """An app, if it may come in."""
        await self._look(LOOK_S)
        if name in self.environment.settings.clients:
            return AppShare(name=name, settings=self.environment.settings.clients[name])
        added = self._added.get(name)
        if added is None:
            self._check_known()
        return None if added is None else AppShare(name=name, settings=added.settings)

    def _by_key(self, key: str) -> AppShare | None:
        name = self.keys.client(key)
        if name is not None:
            return AppShare(name=name, settings=self.environment.settings.clients[name])
        digest = digest_of(key)
        # Every one is compared, so that the time tells nothing.
        found = [each for each in self._added.values() if hmac.compare_digest(each.key_digest, digest)]
        return AppShare(name=found[0].name, settings=found[0].settings) if found else None

    async def _look(self, age_s: float) -> None:
        async with self._turn:
            if trio.current_time() - self._looked_at < age_s:
                return
            self._is_known = False
            with trio.move_on_after(_PATIENCE_S), suppress(StorageUnavailable, CommitUnknown):
                added = await self.environment.database.read(access.all_clients)
                self._added = {each.name: each for each in added if each.name not in self.environment.settings.clients}
                self._is_known = True
            self._looked_at = trio.current_time()  # at the end: whoever waited for this look need not look again

    def _check_known(self) -> None:
        """Nobody is a stranger because the database is away."""
        if not self._is_known:
            raise StorageUnavailable("the apps that were added by command cannot be looked up now: ask again later")

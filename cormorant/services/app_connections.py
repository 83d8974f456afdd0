"""Adds our endpoints to Sonarr, Radarr or Lidarr, and removes them; the key that an app gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.clients.arr import APPS, ArrApp, ArrClient, said_by
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.rules.app_indexers import (
    COMBINED,
    ConnectStep,
    GateAddress,
    IndexerChange,
    changes,
    endpoints,
    goes_direct,
)
from cormorant.rules.errors import AlreadyExists, ConflictError, KeyUnusable
from cormorant.rules.ports import ignore
from cormorant.rules.search.caps import load_caps
from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SEARCHED
from cormorant.services.keys import kept_client_key, key_file
from cormorant.services.sources import configured_sources
from storage import access
from storage.access import ClientRecord, digest_of
from storage.search import source_views
from storage.search.source_views import StoredSource

_DONE: Final = {ConnectStep.ADD: "added", ConnectStep.UPDATE: "up to date", ConnectStep.REMOVE: "removed"}
_WOULD: Final = {
    ConnectStep.ADD: "would be added",
    ConnectStep.UPDATE: "would be brought up to date",
    ConnectStep.REMOVE: "would be removed",
}
_GROUP: Final = 1_000
_HEALTH: Final = FetchLimits(timeout_s=5.0, body_max_bytes=100_000)
_OK: Final = 200

OnProgress = Callable[[int, int, str], None]
"""Called before each change with its number, the number of all, and the name of the indexer."""


class CannotConnect(ConflictError):
    """An app cannot be given our endpoints as things are. Nothing was changed in the app."""


@frozen
class SourceEndpoint:
    """A source, the groups of categories it is known to have, if it has said, and whether it is stopped."""

    name: str
    kind: str
    groups: frozenset[int] | None = None
    is_stopped: bool = False

    def problem(self, app: ArrApp) -> str | None:
        """Why the app should not get it."""
        if self.is_stopped:
            return f"it is stopped: cormorant explain {self.name}"
        if self.groups is not None and app.group not in self.groups:
            return f"it has nothing for {app.title}, by its own word"
        return None


@define
class ConnectReport:
    """What came of it, one row for each indexer."""

    rows: list[tuple[str, str, str, str]] = field(factory=list)
    direct: list[str] = field(factory=list)
    failed: int = 0

    def add(self, change: IndexerChange, became: str, why: str = "") -> None:
        """Note what became of a change."""
        self.rows.append((change.name, change.source, became, why))


@frozen(kw_only=True)
class AppConnection:
    """The app at `url`, which reaches us at `gate`. In a dry run nothing is changed."""

    environment: Environment = field(kw_only=False)
    app: str
    url: str
    key: Secret
    gate: GateAddress
    dry_run: bool = False

    async def connect(
        self, sites: Sequence[SourceEndpoint], key: Secret, *, is_combined: bool, on_progress: OnProgress
    ) -> ConnectReport:
        """Add our endpoints, each with the key of the app's client, or bring them up to date."""
        problems = {} if is_combined else {site.name: site.problem(self._app) for site in sites}
        usable = [(site.name, site.kind) for site in sites if not problems.get(site.name)]
        report = ConnectReport([("", name, "left out", why) for name, why in problems.items() if why])
        with said_by(self._app.title, self.key):
            transport = Transport(written=[self.url, self.gate.address])
            client = self._client(transport)
            await client.check()
            entries = await client.indexers()
            await self._check_gate(transport)
            wanted = endpoints(self.gate, usable, is_combined=is_combined)
            known = {COMBINED} if is_combined else {site.name for site in sites}
            todo = list(changes(self.gate, entries, wanted, known=known))
            for number, change in enumerate(todo, 1):
                on_progress(number, len(todo), change.name)
                await self._carry_out(client, change, key, report)
        report.direct = goes_direct(self.gate, entries)
        return report

    async def disconnect(self) -> ConnectReport:
        """Remove our endpoints."""
        report = ConnectReport()
        with said_by(self._app.title, self.key):
            transport = Transport(written=[self.url])
            client = self._client(transport)
            await client.check()
            for change in changes(self.gate, await client.indexers(), (), known=()):
                await self._carry_out(client, change, Secret(""), report)
        return report

    @property
    def _app(self) -> ArrApp:
        return APPS[self.app]

    def _client(self, transport: Transport) -> ArrClient:
        offload = self.environment.offload
        api = JsonApi(app=self._app.title, url=self.url, key=self.key, transport=transport, offload=offload)
        return ArrClient(self._app, api)

    async def _carry_out(self, client: ArrClient, change: IndexerChange, key: Secret, report: ConnectReport) -> None:
        if self.dry_run:
            report.add(change, _WOULD[change.step])
            return
        try:
            await _do(client, change, key)
        except (SourceRefused, SourceUnavailable, SourceLimited) as refusal:
            report.failed += 1
            words = redact_secrets(" ".join(str(refusal).split()), [key, self.key])
            report.add(change, "refused", f"{self._app.title} says: {words}")
        else:
            report.add(change, _DONE[change.step])

    async def _check_gate(self, transport: Transport) -> None:
        """The app tries out what it gets: where we do not answer, it would blame the indexers."""
        if self.dry_run:
            return
        address = self.gate.address
        try:
            answer = await transport.get(f"{address.rstrip('/')}/health", limits=_HEALTH)
        except SourceError:
            raise CannotConnect(
                f"Cormorant does not answer at {address}, where {self._app.title} would look for it; "
                "start it with cormorant run, or name its right address with --gate"
            ) from None
        if answer.status != _OK or "html" in answer.headers.get("Content-Type", ""):
            raise CannotConnect(f"what answers at {address} is not Cormorant; name its address with --gate")


async def _do(client: ArrClient, change: IndexerChange, key: Secret) -> None:
    if change.endpoint is None:
        if change.entry is not None:
            await client.remove(change.entry)
    elif change.entry is None:
        await client.add(change.name, change.endpoint, key)
    else:
        await client.update(change.entry, change.endpoint, key)


async def searched_sources(environment: Environment, *, is_stored: bool = True) -> list[SourceEndpoint]:
    """The sources that an app could search. Without a database, which `is_stored` tells, those of the settings file."""
    configured = [each for each in configured_sources(environment.settings) if each.kind in SEARCHED]
    if not is_stored:
        return [SourceEndpoint(each.name, each.kind) for each in configured]
    found = await environment.database.read(source_views.stored_sources, configured, SEARCHED)
    return [_endpoint(each) for each in found]


def _endpoint(stored: StoredSource) -> SourceEndpoint:
    categories = () if stored.caps is None else load_caps(stored.caps).categories
    groups = frozenset(category.id // _GROUP * _GROUP for category in categories)
    return SourceEndpoint(stored.record.name, stored.record.kind, groups or None, stored.is_stopped)


async def client_key(environment: Environment, name: str) -> Secret:
    """The key of a client; made when it is not there yet, exactly as the server would."""
    settings = environment.settings
    client = settings.clients.get(name)
    if client is not None and client.key:
        return client.key
    problem = name_problem(name)
    if problem:
        raise CannotConnect(problem)
    added = () if client else await environment.database.read(access.all_clients)
    if client is None and not any(each.name == name for each in added):
        # The key of one that was removed must not come back.
        key_file(settings, f"client-{name}").unlink(missing_ok=True)
    try:
        key = kept_client_key(settings, name, emit=ignore)
    except KeyUnusable as error:
        raise CannotConnect(str(error)) from None
    if client is None:
        await _let_in(environment, name, key)
    return key


async def _let_in(environment: Environment, name: str, key: Secret) -> None:
    """A client that the settings do not name is kept in the database, as `clients add` would."""
    digest = digest_of(key.reveal())
    record = ClientRecord(name=name, settings=ClientSettings(), key_digest=digest, added_at=environment.now())
    try:
        await environment.database.run(access.add_same, record)
    except AlreadyExists:
        raise CannotConnect(
            f"a client {name} was added by command, and only its app has its key; choose another name with --client, "
            f"or remove it first: cormorant clients remove {name}"
        ) from None

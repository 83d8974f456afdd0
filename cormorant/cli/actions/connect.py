"""What `cormorant connect` and `disconnect` do; the key that an app gets."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import trio
from attrs import define, field, frozen

from actors.environment import in_thread
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.app_options import AppOptions
from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import table
from cormorant.cli.console.preflight import inspect_database, load_or_refuse
from cormorant.clients.arr import APPS, ArrApp, ArrClient
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.rules.app_indexers import (
    COMBINED,
    AppIndexer,
    ConnectStep,
    GateAddress,
    GateEndpoint,
    IndexerChange,
    changes,
    endpoints,
    goes_direct,
)
from cormorant.rules.errors import CormorantError, KeyUnusable
from cormorant.rules.ports import ignore
from cormorant.rules.search.caps import load_caps
from cormorant.rules.search.outcomes import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.fields import name_problem
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED
from cormorant.services.keys import kept_key
from storage import access
from storage.access import ClientExists, ClientRecord, digest_of
from storage.database import Database
from storage.search import source_views
from storage.search.source_views import StoredSource
from supervisors.search_assembly import configured_sources

_DONE: Final = {ConnectStep.ADD: "added", ConnectStep.UPDATE: "up to date", ConnectStep.REMOVE: "removed"}
_WOULD: Final = {
    ConnectStep.ADD: "would be added",
    ConnectStep.UPDATE: "would be brought up to date",
    ConnectStep.REMOVE: "would be removed",
}
_GROUP: Final = 1_000
_HEALTH: Final = FetchLimits(timeout_s=5.0, body_max_bytes=100_000)
_OK: Final = 200


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


def connect_now(config: str, wanted: AppOptions) -> int:
    """Connect, tell, and return the exit code."""
    settings = load_or_refuse(config)
    if not settings.web.enabled:
        raise UsageRefused("web.enabled is false, so there is no gate that an app could search through; set it to true")
    gate = GateAddress(wanted.gate or _own_address(settings, wanted))
    key = client_key(settings, wanted.client or wanted.app, may_make=not wanted.dry_run)
    sites = _sites(settings)
    if not sites:
        raise CommandFailed(
            "there are no sources yet that an app could search; cormorant sources add, or cormorant import"
        )
    return _finish(wanted, _told(wanted, lambda: _connect(wanted, gate, key, sites)))


def disconnect_now(config: str, wanted: AppOptions) -> int:
    """Disconnect, tell, and return the exit code."""
    settings = load_or_refuse(config)
    gate = GateAddress(wanted.gate or _own_address(settings, wanted, is_needed=False))
    return _finish(wanted, _told(wanted, lambda: _disconnect(wanted, gate)))


def _told(wanted: AppOptions, work: Any) -> ConnectReport:
    try:
        told: ConnectReport = trio.run(work)
    except SourceError as error:
        raise CommandFailed(f"{wanted.title}: {redact_secrets(str(error), [wanted.key])}") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; what was told as done is done, run it again for the rest") from None
    return told


async def _connect(
    wanted: AppOptions, gate: GateAddress, key: Secret, sites: Sequence[SourceEndpoint]
) -> ConnectReport:
    app = APPS[wanted.app]
    problems = {site.name: site.problem(app) for site in sites}
    usable = [site for site in sites if wanted.combined or problems[site.name] is None]
    told = ConnectReport([("", name, "left out", why) for name, why in problems.items() if why and not wanted.combined])
    async with Transport(written=[wanted.url, gate.address]) as transport:
        client = ArrClient(app, _api(wanted, transport))
        await client.check()
        entries = await client.indexers()
        await _check_gate(transport, gate, wanted)
        shall = endpoints(gate, [(site.name, site.kind) for site in usable], is_combined=wanted.combined)
        known = {COMBINED} if wanted.combined else {site.name for site in sites}
        todo = list(changes(gate, entries, shall, known=known))
        for number, change in enumerate(todo, 1):
            _tell_progress(
                f"{number} of {len(todo)}: {wanted.title} tries out {change.name}; up to a minute if a site makes it wait",
                wanted,
            )
            await _carry_out(client, change, key, wanted, told)
    told.direct = goes_direct(gate, entries)
    return told


def _tell_progress(words: str, wanted: AppOptions) -> None:
    """The app asks each source, within its limits: that takes seconds for each."""
    if sys.stderr.isatty() and not wanted.dry_run:
        click.echo(words, err=True)


async def _disconnect(wanted: AppOptions, gate: GateAddress) -> ConnectReport:
    told = ConnectReport()
    async with Transport(written=[wanted.url]) as transport:
        client = ArrClient(APPS[wanted.app], _api(wanted, transport))
        await client.check()
        for change in changes(gate, await client.indexers(), (), known=()):
            await _carry_out(client, change, Secret(""), wanted, told)
    return told


async def _carry_out(
    client: ArrClient, change: IndexerChange, key: Secret, wanted: AppOptions, told: ConnectReport
) -> None:
    if wanted.dry_run:
        told.add(change, _WOULD[change.step])
        return
    try:
        await _do(client, change.entry, change.endpoint, key, change.name)
    except (SourceRefused, SourceUnavailable, SourceLimited) as refusal:
        told.failed += 1
        words = redact_secrets(" ".join(str(refusal).split()), [key, wanted.key])
        told.add(change, "refused", f"{wanted.title} says: {words}")
    else:
        told.add(change, _DONE[change.step])


async def _do(
    client: ArrClient, entry: AppIndexer | None, endpoint: GateEndpoint | None, key: Secret, name: str
) -> None:
    if endpoint is None:
        if entry is not None:
            await client.remove(entry)
    elif entry is None:
        await client.add(name, endpoint, key)
    else:
        await client.update(entry, endpoint, key)


def _api(wanted: AppOptions, transport: Transport) -> JsonApi:
    return JsonApi(app=wanted.title, url=wanted.url, key=wanted.key, transport=transport, offload=in_thread)


async def _check_gate(transport: Transport, gate: GateAddress, wanted: AppOptions) -> None:
    """The app tries out what it gets: where we do not answer, it would blame the indexers."""
    if wanted.dry_run:
        return
    try:
        answer = await transport.get(f"{gate.address.rstrip('/')}/health", limits=_HEALTH)
    except SourceError:
        raise CommandFailed(
            f"Cormorant does not answer at {gate.address}, where {wanted.title} would look for it; "
            "start it with cormorant run, or name its right address with --gate"
        ) from None
    if answer.status != _OK or "html" in answer.headers.get("Content-Type", ""):
        raise CommandFailed(f"what answers at {gate.address} is not Cormorant; name its address with --gate")


def _own_address(settings: Settings, wanted: AppOptions, *, is_needed: bool = True) -> str:
    """Where an app finds us that runs on this machine. Another one needs to be told."""
    web = settings.web
    host = urlsplit(wanted.url).hostname or ""
    is_here = host in {"localhost", "127.0.0.1", "::1"}
    if is_needed and not is_here:
        listens = "listens on this machine alone" if web.address.is_loopback else f"listens on {web.address.shown}"
        remedy = "set web.listen and web.key, and " if web.address.is_loopback else ""
        raise UsageRefused(
            f"{wanted.title} runs elsewhere ({host}) and Cormorant {listens}; {remedy}"
            "say with --gate by which address it reaches us, such as --gate http://cormorant:7979"
        )
    shown = web.address.shown
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - looked for, not listened on
    if web.address.host in everywhere:
        shown = f"{everywhere[web.address.host]}:{web.address.port}"
    return f"http://{shown}{web.url_base.rstrip('/')}"


def _sites(settings: Settings) -> list[SourceEndpoint]:
    configured = [each for each in configured_sources(settings) if each.kind in SEARCHED]
    if inspect_database(settings) is None:
        return [SourceEndpoint(each.name, each.kind) for each in configured]

    async def look(database: Database) -> list[SourceEndpoint]:
        found = await database.read(source_views.stored_sources, configured, SEARCHED)
        return [_endpoint(each) for each in found]

    return with_database(settings, look)


def _endpoint(stored: StoredSource) -> SourceEndpoint:
    categories = () if stored.caps is None else load_caps(stored.caps).categories
    groups = frozenset(category.id // _GROUP * _GROUP for category in categories)
    return SourceEndpoint(stored.record.name, stored.record.kind, groups or None, stored.is_stopped)


def _finish(wanted: AppOptions, told: ConnectReport) -> int:
    click.echo(as_text(_json(wanted, told)) if wanted.as_json else "\n".join(_lines(wanted, told)))
    return EXIT_FAILED if told.failed else EXIT_OK


def _json(wanted: AppOptions, told: ConnectReport) -> dict[str, Any]:
    names = ("name", "source", "became", "why")
    rows = [dict(zip(names, row, strict=True)) for row in told.rows]
    return {"app": wanted.app, "dry_run": wanted.dry_run, "indexers": rows, "goes_direct": told.direct}


def _lines(wanted: AppOptions, told: ConnectReport) -> Iterator[str]:
    if not told.rows:
        yield f"{wanted.title} has nothing of ours; nothing was changed"
        return
    yield from table((wanted.title.upper(), "SOURCE", "BECAME", "WHY"), told.rows)
    if told.failed:
        yield ""
        yield f"{told.failed} refused: mend what {wanted.title} says (cormorant explain SOURCE tells why a site waits) and run it again"
    if told.direct:
        yield ""
        yield f"warning: {wanted.title} still asks these past the gate: {', '.join(told.direct)}"
        yield "  the sites count both together; switch them off there once you trust ours"


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

    return with_database(settings, look)


def _let_in(settings: Settings, name: str, key: Secret) -> None:
    """A client that the settings do not name is kept in the database, as `clients add` would."""
    record = ClientRecord(
        name=name, settings=ClientSettings(), key_digest=digest_of(key.reveal()), added_at=datetime.now(UTC)
    )

    async def put(database: Database) -> None:
        await database.run(access.add_same, record)

    try:
        with_database(settings, put)
    except ClientExists:
        raise CommandFailed(
            f"a client {name} was added by command, and only its app has its key; choose another name with --client, "
            f"or remove it first: cormorant clients remove {name}"
        ) from None

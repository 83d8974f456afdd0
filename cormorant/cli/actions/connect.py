"""What do `cormorant connect` and `disconnect` do? Look at the app's indexers, change ours, tell each, and warn of what goes past us."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import click
import trio
from attrs import define, field, frozen
from sqlalchemy import Connection

from actors.environment import in_thread
from cormorant.cli.actions.gate_clients import client_key
from cormorant.cli.actions.job_json import as_text
from cormorant.cli.app_options import AppWords
from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, Interrupted, NotDone, Refused
from cormorant.cli.console.database_session import visit
from cormorant.cli.console.output import table
from cormorant.cli.console.preflight import load_or_refuse, look_at_database
from cormorant.clients.arr import APPS, ArrApp, ArrClient
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import FetchLimits, Transport
from cormorant.rules.app_indexers import (
    COMBINED,
    Change,
    Endpoint,
    Entry,
    Gate,
    Step,
    changes,
    endpoints,
    goes_direct,
)
from cormorant.rules.errors import CormorantError
from cormorant.rules.search.source_errors import SourceError, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.stored_caps import load_caps
from cormorant.rules.secrets import Secret, hide_secrets
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SEARCHED
from storage.database import Database
from storage.search import source_states, sources
from storage.search.sources import SourceRecord
from supervisors.search_assembly import configured_sources

__all__ = ["connect_now", "disconnect_now"]

_DONE: Final = {Step.ADD: "added", Step.UPDATE: "up to date", Step.REMOVE: "removed"}
_WOULD: Final = {
    Step.ADD: "would be added",
    Step.UPDATE: "would be brought up to date",
    Step.REMOVE: "would be removed",
}
_GROUP: Final = 1_000
_HEALTH: Final = FetchLimits(timeout_s=5.0, body_max_bytes=100_000)
_OK: Final = 200


@frozen
class Site:
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
class Told:
    """What came of it, one row for each indexer."""

    rows: list[tuple[str, str, str, str]] = field(factory=list)
    direct: list[str] = field(factory=list)
    failed: int = 0

    def add(self, change: Change, became: str, why: str = "") -> None:
        """Note what became of a change."""
        self.rows.append((change.name, change.source, became, why))


def connect_now(config: str, wanted: AppWords) -> int:
    """Connect, tell, and return the exit code."""
    settings = load_or_refuse(config)
    if not settings.web.enabled:
        raise Refused("web.enabled is false, so there is no gate that an app could search through; set it to true")
    gate = Gate(wanted.gate or _own_address(settings, wanted))
    key = client_key(settings, wanted.client or wanted.app, may_make=not wanted.dry_run)
    sites = _sites(settings)
    if not sites:
        raise NotDone("there are no sources yet that an app could search; cormorant sources add, or cormorant import")
    return _finish(wanted, _told(wanted, lambda: _connect(wanted, gate, key, sites)))


def disconnect_now(config: str, wanted: AppWords) -> int:
    """Disconnect, tell, and return the exit code."""
    settings = load_or_refuse(config)
    gate = Gate(wanted.gate or _own_address(settings, wanted, is_needed=False))
    return _finish(wanted, _told(wanted, lambda: _disconnect(wanted, gate)))


def _told(wanted: AppWords, work: Any) -> Told:
    try:
        told: Told = trio.run(work)
    except SourceError as error:
        raise NotDone(f"{wanted.title}: {hide_secrets(str(error), [wanted.key])}") from None
    except CormorantError as error:
        raise Refused(str(error)) from None
    except KeyboardInterrupt:
        raise Interrupted("interrupted; what was told as done is done, run it again for the rest") from None
    return told


async def _connect(wanted: AppWords, gate: Gate, key: Secret, sites: Sequence[Site]) -> Told:
    app = APPS[wanted.app]
    problems = {site.name: site.problem(app) for site in sites}
    usable = [site for site in sites if wanted.combined or problems[site.name] is None]
    told = Told([("", name, "left out", why) for name, why in problems.items() if why and not wanted.combined])
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


def _tell_progress(words: str, wanted: AppWords) -> None:
    """The app asks each source, within its limits: that takes seconds for each."""
    if sys.stderr.isatty() and not wanted.dry_run:
        click.echo(words, err=True)


async def _disconnect(wanted: AppWords, gate: Gate) -> Told:
    told = Told()
    async with Transport(written=[wanted.url]) as transport:
        client = ArrClient(APPS[wanted.app], _api(wanted, transport))
        await client.check()
        for change in changes(gate, await client.indexers(), (), known=()):
            await _carry_out(client, change, Secret(""), wanted, told)
    return told


async def _carry_out(client: ArrClient, change: Change, key: Secret, wanted: AppWords, told: Told) -> None:
    if wanted.dry_run:
        told.add(change, _WOULD[change.step])
        return
    try:
        await _do(client, change.entry, change.endpoint, key, change.name)
    except (SourceRefused, SourceUnavailable, SourceLimited) as refusal:
        told.failed += 1
        words = hide_secrets(" ".join(str(refusal).split()), [key, wanted.key])
        told.add(change, "refused", f"{wanted.title} says: {words}")
    else:
        told.add(change, _DONE[change.step])


async def _do(client: ArrClient, entry: Entry | None, endpoint: Endpoint | None, key: Secret, name: str) -> None:
    if endpoint is None:
        if entry is not None:
            await client.remove(entry)
    elif entry is None:
        await client.add(name, endpoint, key)
    else:
        await client.update(entry, endpoint, key)


def _api(wanted: AppWords, transport: Transport) -> JsonApi:
    return JsonApi(app=wanted.title, url=wanted.url, key=wanted.key, transport=transport, offload=in_thread)


async def _check_gate(transport: Transport, gate: Gate, wanted: AppWords) -> None:
    """The app tries out what it gets: where we do not answer, it would blame the indexers."""
    if wanted.dry_run:
        return
    try:
        answer = await transport.get(f"{gate.address.rstrip('/')}/health", limits=_HEALTH)
    except SourceError:
        raise NotDone(
            f"Cormorant does not answer at {gate.address}, where {wanted.title} would look for it; "
            "start it with cormorant run, or name its right address with --gate"
        ) from None
    if answer.status != _OK or "html" in answer.headers.get("Content-Type", ""):
        raise NotDone(f"what answers at {gate.address} is not Cormorant; name its address with --gate")


def _own_address(settings: Settings, wanted: AppWords, *, is_needed: bool = True) -> str:
    """Where an app finds us that runs on this machine. Another one needs to be told."""
    web = settings.web
    host = urlsplit(wanted.url).hostname or ""
    is_here = host in {"localhost", "127.0.0.1", "::1"}
    if is_needed and not is_here:
        listens = "listens on this machine alone" if web.address.is_loopback else f"listens on {web.address.shown}"
        remedy = "set web.listen and web.key, and " if web.address.is_loopback else ""
        raise Refused(
            f"{wanted.title} runs elsewhere ({host}) and Cormorant {listens}; {remedy}"
            "say with --gate by which address it reaches us, such as --gate http://cormorant:7979"
        )
    shown = web.address.shown
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - looked for, not listened on
    if web.address.host in everywhere:
        shown = f"{everywhere[web.address.host]}:{web.address.port}"
    return f"http://{shown}{web.url_base.rstrip('/')}"


def _sites(settings: Settings) -> list[Site]:
    configured = [each for each in configured_sources(settings) if each.kind in SEARCHED]
    if look_at_database(settings) is None:
        return [Site(each.name, each.kind) for each in configured]

    async def look(database: Database) -> list[Site]:
        return await database.read(_known_sites, configured)

    return visit(settings, look)


def _known_sites(connection: Connection, configured: Sequence[SourceRecord]) -> list[Site]:
    names = {each.name for each in configured}
    usable = sources.usable_sources(connection, configured)
    stored = {each.name: each for each in usable if each.kind in SEARCHED}
    shown = [*configured, *(each for each in stored.values() if each.name not in names)]
    return sorted((_site(connection, each, stored.get(each.name)) for each in shown), key=lambda site: site.name)


def _site(connection: Connection, record: SourceRecord, stored: SourceRecord | None) -> Site:
    if stored is None:
        return Site(record.name, record.kind)
    kept = sources.caps(connection, stored.id)
    categories = () if kept is None else load_caps(kept[0]).categories
    groups = frozenset(category.id // _GROUP * _GROUP for category in categories)
    state = source_states.look(connection, stored.id, configured=record.limits).state
    return Site(record.name, record.kind, groups or None, state.stopped_because is not None)


def _finish(wanted: AppWords, told: Told) -> int:
    click.echo(as_text(_json(wanted, told)) if wanted.as_json else "\n".join(_lines(wanted, told)))
    return EXIT_FAILED if told.failed else EXIT_OK


def _json(wanted: AppWords, told: Told) -> dict[str, Any]:
    names = ("name", "source", "became", "why")
    rows = [dict(zip(names, row, strict=True)) for row in told.rows]
    return {"app": wanted.app, "dry_run": wanted.dry_run, "indexers": rows, "goes_direct": told.direct}


def _lines(wanted: AppWords, told: Told) -> Iterator[str]:
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

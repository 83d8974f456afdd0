"""What `cormorant import` does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
import trio
from attrs import evolve, frozen

from actors.environment import in_thread
from cormorant.cli.actions.job_text import as_text
from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import table
from cormorant.cli.console.preflight import inspect_database, load_or_refuse
from cormorant.clients import arr
from cormorant.clients.arr import jackett_indexers
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.rules.addresses import normalised
from cormorant.rules.app_indexers import ImportAction, ImportStep, KnownSource, OfferedIndexer, plan
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.search.outcomes import SourceError
from cormorant.rules.secrets import Secret, redact_secrets
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SourceSettings, limits_of
from storage.database import Database
from storage.search import source_views
from storage.search.source_views import Rows, SourceChange
from storage.search.sources import SourceRecord
from supervisors.search_assembly import configured_sources

__all__ = ["ImportOptions", "adopt_now"]

_DOES = {ImportStep.ADD, ImportStep.RETURN, ImportStep.UPDATE}


@frozen(kw_only=True)
class ImportOptions:
    """What was asked for on the command line."""

    app: str
    url: str
    key: Secret
    limits: str | None
    only: tuple[str, ...]
    dry_run: bool
    as_json: bool


@frozen(kw_only=True)
class ImportPlan:
    """What is to be done, and the sources of that program that it has no more."""

    adoptions: list[ImportAction]
    gone: list[str]


def adopt_now(config: str, wanted: ImportOptions) -> int:
    """Adopt, tell, and return the exit code."""
    settings = load_or_refuse(config)
    _limits_of(wanted.limits or "default", settings)
    try:
        offered = _chosen(trio.run(_ask, wanted), wanted)
        if wanted.dry_run and inspect_database(settings) is None:
            made = _planned(offered, {}, settings, wanted)
        else:
            made = with_database(
                settings, lambda database: _at_database(database, offered, settings, wanted), may_make=True
            )
    except SourceError as error:
        raise CommandFailed(f"{wanted.app}: {redact_secrets(str(error), [wanted.key])}") from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; run it again: nothing is added twice") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted") from None
    click.echo(as_text(_json(made, wanted)) if wanted.as_json else "\n".join(_lines(made, wanted)))
    return EXIT_OK


async def _ask(wanted: ImportOptions) -> list[OfferedIndexer]:
    async with Transport(written=[wanted.url]) as transport:
        if wanted.app == arr.PROWLARR:
            api = JsonApi(app=wanted.app, url=wanted.url, key=wanted.key, transport=transport, offload=in_thread)
            return await arr.prowlarr_indexers(api)
        return await jackett_indexers(wanted.url, wanted.key, transport, offload=in_thread)


def _chosen(offered: list[OfferedIndexer], wanted: ImportOptions) -> list[OfferedIndexer]:
    titles = {each.title.lower(): each for each in offered}
    for name in wanted.only:
        if name.lower() not in titles:
            hint = (
                suggestion(name, [each.title for each in offered])
                or f"; it has {', '.join(sorted(each.title for each in offered))}"
            )
            raise UsageRefused(f"--only: {wanted.app} has no indexer called {name!r}{hint}")
    if not wanted.only:
        return offered
    return [titles[name] for name in dict.fromkeys(each.lower() for each in wanted.only)]


async def _at_database(
    database: Database, offered: list[OfferedIndexer], settings: Settings, wanted: ImportOptions
) -> ImportPlan:
    identities = [normalised(each.url) for each in offered]
    if wanted.dry_run:
        rows = await database.read(source_views.known_rows, identities)
        return _planned(offered, rows, settings, wanted)

    def decide(rows: Rows) -> list[SourceChange]:
        made = _planned(offered, rows, settings, wanted)
        return [_change(each, rows, settings, wanted) for each in made.adoptions if each.step in _DOES]

    rows = await database.run(source_views.apply_changes, identities, decide, now=datetime.now(UTC))
    return _planned(offered, rows, settings, wanted)


def _planned(offered: list[OfferedIndexer], rows: Rows, settings: Settings, wanted: ImportOptions) -> ImportPlan:
    configured = {each.identity: each for each in configured_sources(settings)}
    known = {
        identity: KnownSource(
            name=record.name,
            is_removed=is_removed,
            has_same_key=record.key == wanted.key,
            kind=record.kind,
        )
        for identity, (record, is_removed) in rows.items()
    }
    known |= {identity: KnownSource(name=each.name, is_configured=True) for identity, each in configured.items()}
    in_use = {record.name for record, is_removed in rows.values() if not is_removed}
    adoptions = plan(offered, known, taken=in_use | set(settings.sources), limits=wanted.limits)
    identities = {normalised(each.url) for each in offered}
    theirs = f"{normalised(wanted.url)}/"
    gone = [
        record.name
        for identity, (record, is_removed) in rows.items()
        if identity.startswith(theirs) and identity not in identities and not is_removed and not wanted.only
    ]
    return ImportPlan(adoptions=adoptions, gone=sorted(set(gone) - set(settings.sources)))


def _change(adoption: ImportAction, rows: Rows, settings: Settings, wanted: ImportOptions) -> SourceChange:
    each = adoption.offered
    known = rows.get(normalised(each.url))
    former = None if known is None else known[0]
    record = SourceRecord(
        id=0 if former is None else former.id,
        name=adoption.name,
        identity=normalised(each.url),
        kind=each.kind,
        url=each.url,
        key=wanted.key,
        limits=former.limits
        if former and adoption.limits is None
        else _limits_of(adoption.limits or "default", settings),
    )
    if former is not None:
        record = evolve(record, proxy=former.proxy)
    return SourceChange(record=record, former=former, is_update=adoption.step is ImportStep.UPDATE)


def _limits_of(name: str, settings: Settings) -> Any:
    try:
        return limits_of(SourceSettings(limits=name), settings.limits)
    except ValueError as error:
        raise UsageRefused(f"--limits: {error}") from None


def _json(made: ImportPlan, wanted: ImportOptions) -> dict[str, Any]:
    rows = [
        {
            "title": each.offered.title,
            "source": each.name if each.step is not ImportStep.SKIP or each.name != each.offered.title else None,
            "kind": each.offered.kind,
            "private": each.offered.is_private,
            "limits": each.limits,
            "step": each.step.value,
            "why": each.why,
        }
        for each in made.adoptions
    ]
    return {"app": wanted.app, "dry_run": wanted.dry_run, "indexers": rows, "gone": made.gone}


def _lines(made: ImportPlan, wanted: ImportOptions) -> Iterator[str]:
    if not made.adoptions:
        yield f"{wanted.app} has no indexers yet; add them there, and run this again"
        return
    rows = [
        (
            each.offered.title,
            each.step.value,
            "" if each.step is ImportStep.SKIP else each.name,
            each.offered.kind,
            each.limits or "",
            each.why,
        )
        for each in made.adoptions
    ]
    yield from table((wanted.app.upper(), "DOES", "SOURCE", "KIND", "LIMITS", "WHY"), rows)
    yield ""
    yield _told(made, wanted)
    if made.gone:
        names = ", ".join(made.gone)
        yield f"{wanted.app} has no more: {names}; if you do not need them: cormorant sources remove {made.gone[0]}"


def _told(made: ImportPlan, wanted: ImportOptions) -> str:
    count = {step: sum(each.step is step for each in made.adoptions) for step in ImportStep}
    new, changed = count[ImportStep.ADD] + count[ImportStep.RETURN], count[ImportStep.UPDATE]
    if wanted.dry_run:
        return f"nothing was done; without --dry-run {new} would be added and {changed} brought up to date"
    if not new and not changed:
        return "all is as it was; nothing was changed"
    first = next(each.name for each in made.adoptions if each.step in _DOES)
    return f"{new} added, {changed} brought up to date; try one: cormorant sources test {first}"

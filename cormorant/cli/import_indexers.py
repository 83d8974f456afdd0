"""`cormorant import`: options and columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    HintingGroup,
    UsageRefused,
    access_to,
    dry_run_option,
    key_options,
    together,
)
from cormorant.cli.console.output import table
from cormorant.cli.sources import limits_or_refuse
from cormorant.rules.app_indexers import CHANGES, ImportStep, OfferedIndexer
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.settings.sources import SourceSettings

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.services.indexer_import import ImportPlan


@click.group("import", cls=HintingGroup, short_help="Adopt the indexers of Prowlarr or Jackett.", epilog=EXIT_CODES)
def adopt() -> None:
    """Adopt the indexers of Prowlarr or Jackett as sources.

    Each is asked through Prowlarr or Jackett as before, with the one key of that program: no password or passkey of a
    tracker moves. Run it again whenever something changed there: what is known is brought up to date, nothing is added
    twice, and what was spent at a site stays spent.
    """


_OPTIONS = together(
    click.argument("url", metavar="URL"),
    key_options,
    click.option(
        "--limits",
        metavar="NAME",
        help="Limits for all: private, default, or [limits.NAME] of the file.  [default: private, for public trackers default]",
    ),
    click.option(
        "--only", "only", multiple=True, metavar="NAME", help="Only this indexer, by its name there; may be repeated."
    ),
    dry_run_option,
)


PORTS = {"Prowlarr": 9696, "Jackett": 9117}


def _access(app: str, *, url: str, key_env: str | None, key_file: Any, **words: Any) -> dict[str, Any]:
    example = f"http://{app.lower()}:{PORTS[app]}"
    return words | access_to(app, url=url, key_env=key_env, key_file=key_file, example=example)


_TOLD = {"in_doubt": "run it again: nothing is added twice", "interrupted": "interrupted"}


@adopt.session_command(
    "Adopt the indexers of Prowlarr.", has_database=False, before=partial(_access, "Prowlarr"), **_TOLD
)
@_OPTIONS
async def prowlarr(session: CommandSession, **words: Any) -> int:
    """Adopt the indexers of the Prowlarr at URL, such as http://prowlarr:9696.

    Its key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    return await _adopt(session, app="Prowlarr", **words)


@adopt.session_command(
    "Adopt the indexers of Jackett.", has_database=False, before=partial(_access, "Jackett"), **_TOLD
)
@_OPTIONS
async def jackett(session: CommandSession, **words: Any) -> int:
    """Adopt the indexers of the Jackett at URL, such as http://jackett:9117.

    Its key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    return await _adopt(session, app="Jackett", **words)


async def _adopt(
    session: CommandSession, *, only: tuple[str, ...], dry_run: bool, limits: str | None, app: str, **access: Any
) -> int:
    from cormorant.services.indexer_import import IndexerImport  # noqa: PLC0415 - `--help` need not wait for it

    limits_or_refuse(session.settings, SourceSettings(limits=limits or "default"))
    work = IndexerImport(session.environment, app=app, limits=limits, is_partial=bool(only), **access)
    offered = _chosen(await work.offered(), only, app)

    async def at_database(opened: CommandSession) -> ImportPlan:
        there = evolve(work, environment=opened.environment)
        return await there.look(offered) if dry_run else await there.carry_out(offered)

    if dry_run and not session.is_database_there():
        made = work.plan(offered, {})
    else:
        made = await session.at_database(at_database, may_make=True)
    return session.show(_json(made, app, dry_run=dry_run), _lines(made, app, dry_run=dry_run))


def _chosen(offered: list[OfferedIndexer], only: tuple[str, ...], app: str) -> list[OfferedIndexer]:
    titles = {each.title.lower(): each for each in offered}
    for name in only:
        if name.lower() not in titles:
            known = [each.title for each in offered]
            hint = suggestion(name, known) or f"; it has {', '.join(sorted(known))}"
            raise UsageRefused(f"--only: {app} has no indexer called {name!r}{hint}")
    if not only:
        return offered
    return [titles[name] for name in dict.fromkeys(each.lower() for each in only)]


def _json(made: ImportPlan, app: str, *, dry_run: bool) -> dict[str, Any]:
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
        for each in made.actions
    ]
    return {"app": app, "dry_run": dry_run, "indexers": rows, "gone": made.gone}


def _lines(made: ImportPlan, app: str, *, dry_run: bool) -> Iterator[str]:
    if not made.actions:
        yield f"{app} has no indexers yet; add them there, and run this again"
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
        for each in made.actions
    ]
    yield from table((app.upper(), "DOES", "SOURCE", "KIND", "LIMITS", "WHY"), rows)
    yield ""
    yield _told(made, dry_run=dry_run)
    if made.gone:
        names = ", ".join(made.gone)
        yield f"{app} has no more: {names}; if you do not need them: cormorant sources remove {made.gone[0]}"


def _told(made: ImportPlan, *, dry_run: bool) -> str:
    count = {step: sum(each.step is step for each in made.actions) for step in ImportStep}
    new, changed = count[ImportStep.ADD] + count[ImportStep.RETURN], count[ImportStep.UPDATE]
    if dry_run:
        return f"nothing was done; without --dry-run {new} would be added and {changed} brought up to date"
    if not new and not changed:
        return "all is as it was; nothing was changed"
    first = next(each.name for each in made.actions if each.step in CHANGES)
    return f"{new} added, {changed} brought up to date; try one: cormorant sources test {first}"

"""Copies a database into another one for migrate."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused, display_path
from cormorant.cli.console.database_session import schema_problem, with_database
from cormorant.cli.console.output import show
from cormorant.cli.console.preflight import database_problem, display_database, inspect_database, load_or_refuse, refuse
from cormorant.rules.addresses import address_problem, passwords_in, shown_address, sqlite_file
from cormorant.rules.errors import CommitUnknown, CormorantError, MigrationFailed, StorageMisconfigured
from cormorant.rules.secrets import redact_secrets
from cormorant.rules.settings.settings import Settings
from cormorant.rules.units import format_duration
from storage.database import SCHEMA_VERSION, inspect
from storage.engine.calls import DatabaseAway
from storage.engine.copy_database import CopyReport, TargetNotEmpty, Tell, copy_all
from storage.jobs import workers
from storage.jobs.workers import WorkerRow

__all__ = ["migrate_now"]


def migrate_now(config: str, to: str, *, as_json: bool, force: bool) -> int:
    """Copy, check and tell. Returns the exit code."""
    settings = load_or_refuse(config)
    _refuse_source(settings, force=force)
    _refuse_target(settings, to)
    copied = _copy(settings, to)
    rows = [{"table": each.table, "rows": each.rows, "sha256": each.sha256} for each in copied]
    facts = {"from": display_database(settings), "to": _shown(to), "schema_version": SCHEMA_VERSION, "tables": rows}
    show(facts, _told(settings, config, to, copied), as_json=as_json)
    return EXIT_OK


def _refuse_source(settings: Settings, *, force: bool) -> None:
    state = inspect_database(settings)
    refuse(database_problem(settings, state) or schema_problem(settings, state))
    if force:
        return
    beating = with_database(settings, lambda database: database.read(workers.all_workers))
    fresh = [worker.id for worker in beating if _is_fresh(worker, settings.jobs.lock_timeout_s)]
    if fresh:
        since = format_duration(settings.jobs.lock_timeout_s)
        raise UsageRefused(
            f"{', '.join(fresh)} works with the database, or did less than {since} ago; stop it and try again, "
            "or use --force and lose what it does meanwhile"
        )


def _is_fresh(worker: WorkerRow, silence_s: float) -> bool:
    return worker.dead_at is None and (datetime.now(UTC) - worker.beat_at).total_seconds() < silence_s


def _refuse_target(settings: Settings, to: str) -> None:
    problem = address_problem(to)
    if problem:
        raise UsageRefused(f"--to: {problem}")
    if to == settings.database_url.reveal():
        raise UsageRefused("--to: it is the database that storage.url names; name another")
    state = inspect(to)
    if not state.is_reachable and sqlite_file(to) is None:
        why = " ".join(redact_secrets(state.problem or "it does not answer", passwords_in(to)).split())
        raise UsageRefused(f"--to: the database {_shown(to)} cannot be used: {why}")
    if state.schema_version not in {0, SCHEMA_VERSION}:
        has = f"has schema version {state.schema_version}, this Cormorant {SCHEMA_VERSION}"
        raise UsageRefused(f"--to: the database {_shown(to)} {has}; name an empty one")


def _copy(settings: Settings, to: str) -> list[CopyReport]:
    def hidden(error: Exception) -> str:
        secrets = [*passwords_in(to), *passwords_in(settings.database_url.reveal())]
        return " ".join(redact_secrets(str(error), secrets).split())

    try:
        with _progress() as tell:
            return copy_all(settings.database_url.reveal(), to, now=lambda: datetime.now(UTC), tell=tell)
    except (TargetNotEmpty, StorageMisconfigured, MigrationFailed) as error:
        raise UsageRefused(f"--to: the database {_shown(to)} cannot be filled: {hidden(error)}") from None
    except CommitUnknown as error:
        raise CommandFailed(f"{hidden(error)}; empty the target and try again") from None
    except (CormorantError, DatabaseAway) as error:
        raise CommandFailed(f"nothing was copied: {hidden(error)}") from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted; nothing was kept in the target, and the source is as it was") from None


@contextmanager
def _progress() -> Iterator[Tell]:
    """A line for somebody who watches; it is gone at the end."""
    is_watched = sys.stderr.isatty()

    def tell(table: str, done: int, total: int) -> None:
        if is_watched:
            click.echo(f"\r\033[K{table}: {done:,} of {total:,}", nl=False, err=True)

    try:
        yield tell
    finally:
        if is_watched:
            click.echo("\r\033[K", nl=False, err=True)


def _told(settings: Settings, config: str, to: str, copied: Sequence[CopyReport]) -> Iterator[str]:
    width = max(len(each.table) for each in copied)
    for each in copied:
        yield f"{each.table:<{width}}  {each.rows:>10,}  {each.sha256[:16]}"
    yield f"{sum(each.rows for each in copied):,} rows copied from {display_database(settings)} to {_shown(to)}, and checked."
    yield f"Now set storage.url in {display_path(config)} to the new address and start `cormorant run`; `cormorant doctor` looks first."
    yield f"The old database {display_database(settings)} is as it was: keep it until the new one has proven itself."


def _shown(to: str) -> str:
    file = sqlite_file(to)
    return display_path(file) if file else shown_address(to)

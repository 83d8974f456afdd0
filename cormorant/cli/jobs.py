"""`cormorant jobs`: what waits, what runs, what failed, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from typing_extensions import override

from cormorant.cli.console.command_line import HintingGroup, config_option, json_option
from cormorant.rules.jobs.states import JobState
from cormorant.rules.units import parse_duration

if TYPE_CHECKING:
    from cormorant.cli.actions.jobs import JobActions

__all__ = ["jobs"]

F = TypeVar("F", bound=Callable[..., Any])

LIMIT_USUAL = 20
LIMIT_MOST = 1_000
ID_MOST = 2**63 - 1
"""Beyond that no database could have it."""

_EXIT_CODES = """\b
Exit codes: 0  done
            1  it could not be done, for some of the ids or for all; each is told with the reason
            2  bad input or settings, or the database cannot be used; nothing was changed
"""


class Duration(click.ParamType[float]):
    """A written duration, as in the settings."""

    name = "duration"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class JobId(click.ParamType[int]):
    """The number of a job."""

    name = "id"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        is_short = isinstance(value, str) and value.isdecimal() and len(value) <= len(str(ID_MOST))
        number = int(value) if is_short else 0
        if not 1 <= number <= ID_MOST:
            self.fail(f"{value!r} is not the number of a job", param, ctx)
        return number


def _options(command: F) -> F:
    """What every one of the commands takes."""
    return config_option(json_option(command))


def _ids(*, required: bool) -> Callable[[F], F]:
    return click.argument("ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required, type=_ID)


_ID = JobId()


@click.group(cls=HintingGroup, short_help="See what waits, runs and failed; retry, cancel, pause.", epilog=_EXIT_CODES)
def jobs() -> None:
    """See what waits, runs and failed; retry, cancel, discard, pause.

    Works beside a running service and without one. It never makes or migrates a database.
    """


@jobs.command("list", short_help="The newest jobs, and what each waits for.", epilog=_EXIT_CODES)
@_options
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only jobs in this state.")
@click.option("--kind", metavar="KIND", help="Only jobs of this kind.")
@click.option("--before", type=_ID, metavar="ID", help="Only older ones than this: the next page.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MOST), default=LIMIT_USUAL, show_default=True, help="How many.")
def list_jobs(config: str, *, as_json: bool, state: str | None, **filters: Any) -> None:
    """The newest jobs first: who has them, since when, or what they wait for."""
    wanted = None if state is None else JobState(state)
    _run(config, lambda actions: actions.list_jobs(state=wanted, **filters), as_json=as_json)


@jobs.command(short_help="Everything about one job.", epilog=_EXIT_CODES)
@_options
@click.argument("job_id", metavar="ID", type=_ID)
def show(config: str, *, as_json: bool, job_id: int) -> None:
    """Everything about one job: its times, owner, heartbeat, payload and last errors."""
    _run(config, lambda actions: actions.show(job_id), as_json=as_json)


@jobs.command(short_help="How many jobs there are, and who works on them.", epilog=_EXIT_CODES)
@_options
def stats(config: str, *, as_json: bool) -> None:
    """Jobs by kind and state, what is paused, dead letters, and the processes with their last heartbeat.

    What needs somebody comes first, with the command that helps.
    """
    _run(config, lambda actions: actions.stats(), as_json=as_json)


@jobs.command(short_help="Running jobs whose process is silent.", epilog=_EXIT_CODES)
@_options
@click.option(
    "--silent", type=Duration(), metavar="DURATION", help="How long, such as 1m.  [default: jobs.lock_timeout]"
)
def stuck(config: str, *, as_json: bool, silent: float | None) -> None:
    """Running jobs whose process has not been heard of for a while, and what becomes of them.

    It goes by the clocks of both machines. Jobs are taken from a process only after a living one has watched its silence.
    """
    _run(config, lambda actions: actions.stuck(silent), as_json=as_json)


@jobs.command(short_help="Let failed or cancelled jobs start afresh.", epilog=_EXIT_CODES)
@_options
@_ids(required=False)
@click.option("--failed", is_flag=True, help="All dead letters instead of ids.")
@click.option("--kind", metavar="KIND", help="With --failed: only of this kind.")
def retry(config: str, *, as_json: bool, ids: tuple[int, ...], failed: bool, kind: str | None) -> None:
    """Let failed or cancelled jobs start afresh: due now, no attempt used."""
    _check_choice(ids, failed=failed, kind=kind)
    _run(config, lambda actions: actions.change("retry", ids, failed=failed, kind=kind), as_json=as_json)


@jobs.command(short_help="End jobs that wait or run.", epilog=_EXIT_CODES)
@_options
@_ids(required=True)
def cancel(config: str, *, as_json: bool, ids: tuple[int, ...]) -> None:
    """End jobs that wait or run. A handler that runs is stopped soon, at its process's next heartbeat at the latest."""
    _run(config, lambda actions: actions.change("cancel", ids), as_json=as_json)


@jobs.command(short_help="Forget finished jobs.", epilog=_EXIT_CODES)
@_options
@_ids(required=False)
@click.option("--failed", is_flag=True, help="All dead letters instead of ids.")
@click.option("--kind", metavar="KIND", help="With --failed: only of this kind.")
def discard(config: str, *, as_json: bool, ids: tuple[int, ...], failed: bool, kind: str | None) -> None:
    """Forget finished jobs before their time. What waits or runs must be cancelled first."""
    _check_choice(ids, failed=failed, kind=kind)
    _run(config, lambda actions: actions.change("discard", ids, failed=failed, kind=kind), as_json=as_json)


@jobs.command(short_help="Start no more jobs, of one kind or at all.", epilog=_EXIT_CODES)
@_options
@click.argument("kind", required=False)
def pause(config: str, *, as_json: bool, kind: str | None) -> None:
    """Start no more jobs of a kind; without one, of any. Holds for every process, also after a restart.

    What runs goes on to its end. New jobs are taken in and wait.
    """
    _run(config, lambda actions: actions.pause_all() if kind is None else actions.pause_kind(kind), as_json=as_json)


@jobs.command(short_help="Start jobs again, of one kind or at all.", epilog=_EXIT_CODES)
@_options
@click.argument("kind", required=False)
def resume(config: str, *, as_json: bool, kind: str | None) -> None:
    """Start jobs of a kind again; without one, end the pause of everything. Kinds that are paused by name stay so."""
    _run(config, lambda actions: actions.resume_all() if kind is None else actions.resume_kind(kind), as_json=as_json)


def _run(config: str, action: Callable[[JobActions], Awaitable[int]], *, as_json: bool) -> NoReturn:
    from cormorant.cli.actions.jobs import run_job_action  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(run_job_action(config, action, as_json=as_json))


def _check_choice(ids: tuple[int, ...], *, failed: bool, kind: str | None) -> None:
    if bool(ids) is failed:
        raise click.UsageError("give ids, or --failed for all dead letters")
    if kind is not None and not failed:
        raise click.UsageError("--kind goes with --failed")

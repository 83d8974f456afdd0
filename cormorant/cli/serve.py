"""What run does from the first check to the last line, with or without playground."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from trio_util import wait_any

from actors.environment import Environment
from actors.jobs.handler import Handler, Run
from cormorant import __version__
from cormorant.cli import STARTED_AT
from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, UsageRefused, causes, display_path
from cormorant.cli.console.output import write
from cormorant.cli.console.preflight import (
    display_database,
    load_or_refuse,
    make_data_folder,
    mistakes_refused,
    mode_problems,
    port_problem,
    refuse,
    refuse_what_cannot_work,
)
from cormorant.cli.console.signals import StopSignals
from cormorant.log import LogWriter
from cormorant.rules.errors import PlaygroundClosed, ServiceFailed
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.keys import secrets_in
from cormorant.rules.settings.settings import Settings
from supervisors import ChildReport, Ending, Service, ShutdownReport, open_service
from supervisors.handler_plugins import HandlersBroken, installed_handlers

if TYPE_CHECKING:
    from cormorant.cli.playground_run import PlaygroundRun

__all__ = ["report_lines", "serve"]

_FORCED_FLUSH_S = 0.5
_LAST_WORDS_S = 0.5
"""Standard output gets this long to take the report: a log that nobody reads has used up most of the patience."""

_ENDINGS = {
    Ending.OVERRAN: "did not stop in time, was cancelled",
    Ending.CRASHED: "crashed while stopping",
}


def serve(config: str, signals: StopSignals) -> int:
    """Run the service of a settings file until it is told to stop; the exit code."""
    settings = load_or_refuse(config)
    handlers = _handlers_or_refuse()
    refuse_what_cannot_work(settings)
    refuse(port_problem(settings))
    secrets = tuple(secrets_in(settings))
    log = LogWriter(settings.log, stream=sys.stderr, secrets=secrets)
    with mistakes_refused():
        service = open_service(settings, environment=Environment(settings, listeners=[log]), handlers=handlers)
    make_data_folder(settings)
    with log:
        signals.last_words = partial(log.close, _FORCED_FLUSH_S)
        ended = _run(service, signals, config)
    has_failed = isinstance(ended, ServiceFailed)
    write("\n".join(_last_output(ended, secrets)), err=has_failed and log.is_drained, within_s=_LAST_WORDS_S)
    is_clean = ended is None or (isinstance(ended, ShutdownReport) and ended.clean)
    return EXIT_OK if is_clean else EXIT_FAILED


def _handlers_or_refuse() -> dict[str, Run | Handler]:
    try:
        return installed_handlers()
    except HandlersBroken as broken:
        raise UsageRefused(
            "handlers of installed packages cannot be used; nothing was started", broken.problems
        ) from None


def _run(service: Service, signals: StopSignals, config: str) -> ShutdownReport | ServiceFailed | None:
    try:
        return trio.run(_until_stop_requested, service, signals, config)
    except ServiceFailed as error:
        return error
    except PlaygroundClosed as error:
        raise UsageRefused(str(error)) from None


async def _until_stop_requested(service: Service, signals: StopSignals, config: str) -> ShutdownReport | None:
    token, told = trio.lowlevel.current_trio_token(), trio.Event()
    playing = _playground(service)
    with trio.CancelScope() as whole:
        signals.ask = partial(_call_soon, token, whole.cancel)
        # The sites are there before the first search, and until the last has ended.
        async with AsyncExitStack() as around:
            if playing is not None:
                await around.enter_async_context(playing)
            async with service:
                signals.ask = partial(_call_soon, token, told.set)  # only a start is cut short; what runs is asked
                await trio.to_thread.run_sync(_write_ready, service.settings, config)  # a stuck stream holds up no job
                gc.freeze()  # what was loaded stays: going through all of it again holds up the loop for 0.1 s
                await wait_any(told.wait, *([] if playing is None else [playing.live]))
    return service.report


def _playground(service: Service) -> PlaygroundRun | None:
    if not service.settings.playground.enabled:
        return None
    from cormorant.cli.playground_run import PlaygroundRun  # noqa: PLC0415 - only a playground need wait for it

    return PlaygroundRun(service)


def _call_soon(token: trio.lowlevel.TrioToken, stop: Callable[[], object]) -> None:
    with suppress(trio.RunFinishedError):  # nothing is left to be stopped
        token.run_sync_soon(stop)


def _last_output(ended: ShutdownReport | ServiceFailed | None, secrets: Iterable[Secret]) -> Iterator[str]:
    if ended is None:
        yield "stopped before it was ready"
    elif isinstance(ended, ServiceFailed):
        yield from causes(ended, secrets)
    else:
        yield from report_lines(ended, secrets)


def _write_ready(settings: Settings, config: str) -> None:
    write("\n".join(_ready_lines(settings, config)))


def _ready_lines(settings: Settings, config: str) -> Iterator[str]:
    took_s = time.perf_counter() - STARTED_AT
    web = settings.web
    page = f"http://{web.address.shown}{web.url_base}"
    at = f"{page}, " if web.enabled else ""
    yield f"cormorant {__version__} ready in {took_s:.1f} s, {at}database {display_database(settings)}, stop with Ctrl-C"
    if web.enabled:
        key = "that of web.key" if web.key else f"in {display_path(str(Path(settings.data) / 'keys' / 'web.key'))}"
        yield f"open {page.rstrip('/')}/ - key {key}"
    for problem in mode_problems(settings, config):
        yield problem.told


def report_lines(report: ShutdownReport, secrets: Iterable[Secret] = ()) -> Iterator[str]:
    """How it stopped, for people: the whole, then each child in the order they ended."""
    how = "in good order" if report.clean else "by force"
    yield f"stopped {how} in {report.took_s:.1f} s"
    rows = list(_rows(report.children, tuple(secrets)))
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, took_s, ending in rows:
        yield f"  {name:<{width}}  {took_s:6.2f} s  {ending}"


def _rows(
    children: Sequence[ChildReport], secrets: tuple[Secret, ...], indent: str = ""
) -> Iterator[tuple[str, float, str]]:
    for child in children:
        ending = _ENDINGS.get(child.ending, child.ending.value)
        why = f": {'; '.join(line.strip() for line in causes(child.error, secrets))}" if child.error else ""
        yield indent + child.name, child.took_s, ending + why
        yield from _rows(child.children, secrets, indent + "  ")

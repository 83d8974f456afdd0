"""What does `cormorant run` do from the first check to the last line? It serves until it is told to stop."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

import click
import trio

from cormorant import __version__
from cormorant.cli import STARTED_AT
from cormorant.cli.preflight import load_or_refuse, prepare, shown_database
from cormorant.cli.signals import StopSignals
from cormorant.cli.words import EXIT_FAILED, EXIT_OK, causes
from cormorant.rules.catalogue import secrets_in
from cormorant.rules.errors import ServiceFailed
from cormorant.rules.settings import Settings
from cormorant.telemetry import LogWriter
from supervisors import ChildReport, Ending, ShutdownReport, open_service

__all__ = ["report_lines", "serve"]

_FORCED_FLUSH_S = 0.5
_ENDINGS = {
    Ending.OVERRAN: "did not stop in time, was cancelled",
    Ending.CRASHED: "crashed while stopping",
}


def serve(config: str) -> int:
    """Run the service of a settings file until it is told to stop; the exit code."""
    settings = load_or_refuse(config)
    prepare(settings)
    with LogWriter(settings.log, stream=sys.stderr, secrets=secrets_in(settings)) as log:
        ended = _run(settings, log)
    click.echo("\n".join(_last_words(ended)), err=isinstance(ended, ServiceFailed) and log.is_drained)
    is_clean = ended is None or (isinstance(ended, ShutdownReport) and ended.clean)
    code = EXIT_OK if is_clean else EXIT_FAILED
    if not log.is_drained:
        # Its thread hangs in a stream that takes nothing; Python's own end would wait for the same stream, or abort.
        sys.stdout.flush()
        os._exit(code)
    return code


def _run(settings: Settings, log: LogWriter) -> ShutdownReport | ServiceFailed | None:
    try:
        return trio.run(_until_told_to_stop, settings, log)
    except ServiceFailed as error:
        return error


def _last_words(ended: ShutdownReport | ServiceFailed | None) -> Iterator[str]:
    if ended is None:
        yield "stopped before it was ready"
    elif isinstance(ended, ServiceFailed):
        yield from causes(ended)
    else:
        yield from report_lines(ended)


async def _until_told_to_stop(settings: Settings, log: LogWriter) -> ShutdownReport | None:
    service = open_service(settings, listeners=[log])
    told = trio.Event()
    with (
        trio.CancelScope() as whole,
        StopSignals(whole.cancel, last_words=partial(log.close, _FORCED_FLUSH_S)) as signals,
    ):
        async with service:
            signals.ask = told.set  # only a start is cut short; what runs is asked
            click.echo(_ready_line(settings))
            await told.wait()
    return service.report


def _ready_line(settings: Settings) -> str:
    took_s = time.perf_counter() - STARTED_AT
    return f"cormorant {__version__} ready in {took_s:.1f} s, database {shown_database(settings)}, stop with Ctrl-C"


def report_lines(report: ShutdownReport) -> Iterator[str]:
    """How it stopped, for people: the whole, then each child in the order they ended."""
    how = "in good order" if report.clean else "by force"
    yield f"stopped {how} in {report.took_s:.1f} s"
    rows = list(_rows(report.children))
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, took_s, ending in rows:
        yield f"  {name:<{width}}  {took_s:6.2f} s  {ending}"


def _rows(children: Sequence[ChildReport], indent: str = "") -> Iterator[tuple[str, float, str]]:
    for child in children:
        ending = _ENDINGS.get(child.ending, child.ending.value)
        why = f": {'; '.join(line.strip() for line in causes(child.error))}" if child.error else ""
        yield indent + child.name, child.took_s, ending + why
        yield from _rows(child.children, indent + "  ")

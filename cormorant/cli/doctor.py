"""`cormorant doctor`: is everything in order here? One line per check, and what to do where it is not."""

from __future__ import annotations

import json
import sys

import click

from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, config_option, json_option

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@click.command(short_help="Look whether everything is in order.")
@config_option
@json_option
def doctor(config: str, *, as_json: bool) -> None:
    """Look whether everything is in order: settings, folders, disk, database, clock, versions.

    It changes nothing and may be run beside a running service.

    \b
    Exit codes: 0  all is well (warnings included)
                1  something needs to be mended
                2  the settings cannot be used, so nothing else was looked at
    """  # noqa: D301  # click reads the backspace: do not wrap
    from cormorant.cli.doctor_checks import DoctorCheck, DoctorStatus, examine  # noqa: PLC0415  # `--help` need not wait for it

    def line(check: DoctorCheck) -> str:
        status = click.style(f"{check.status.value:<4}", fg=_COLOURS[check.status.value], bold=True)
        return f"{status}  {check.name:<9} {check.found}" + (f"\n{'':16}-> {check.remedy}" if check.remedy else "")

    checks = list(examine(config))
    failed = [check for check in checks if check.status is DoctorStatus.FAIL]
    code = EXIT_OK if not failed else EXIT_REFUSED if failed[0].name == "settings" else EXIT_FAILED
    if as_json:
        rows = [check.as_json() for check in checks]
        click.echo(json.dumps({"ok": not failed, "checks": rows}, indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(line(check) for check in checks))
    sys.exit(code)

"""`cormorant connect` and `disconnect`: options and columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_FAILED,
    CommandFailed,
    UsageRefused,
    access_to,
    checked_address,
    dry_run_option,
    key_options,
    session_command,
    together,
)
from cormorant.cli.console.output import table
from cormorant.rules.app_indexers import GateAddress
from cormorant.rules.secrets import Secret

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.rules.settings.settings import Settings
    from cormorant.services.app_connections import AppConnection, ConnectReport, SourceEndpoint

TITLES: Final = {"sonarr": "Sonarr", "radarr": "Radarr", "lidarr": "Lidarr"}
_PORTS: Final = {"sonarr": 8989, "radarr": 7878, "lidarr": 8686}

_APP = together(
    click.argument("app", type=click.Choice(list(TITLES)), metavar="sonarr|radarr|lidarr"),
    click.argument("url", metavar="URL"),
)
_ACCESS = together(
    key_options,
    click.option(
        "--gate",
        metavar="URL",
        help="Our address as the app sees it, such as http://cormorant:7979.  [default: web.listen]",
    ),
    dry_run_option,
)


def _read(*, app: str, url: str, gate: str | None, key_env: str | None, key_file: Any, **words: Any) -> dict[str, Any]:
    """What was written, or a refusal that names what is wrong in it."""
    if gate is not None:
        checked_address("--gate", gate, "http://cormorant:7979")
    example = f"http://{app}:{_PORTS[app]}"
    access = access_to(TITLES[app], url=url, key_env=key_env, key_file=key_file, example=example)
    return {"app": app, "gate": gate, **access, **words}


_app_command = session_command(
    has_database=False,
    before=_read,
    interrupted="interrupted; what was told as done is done, run it again for the rest",
)


@click.command(short_help="Let Sonarr, Radarr or Lidarr search through the gate.", epilog=EXIT_CODES)
@_app_command
@_ACCESS
@click.option("--combined", is_flag=True, help="One indexer for all sources, instead of one for each.")
@click.option(
    "--client", metavar="NAME", help="The client of the settings whose key it gets.  [default: the app's name]"
)
@_APP
async def connect(session: CommandSession, *, client: str | None, combined: bool, **given: Any) -> int:
    """Add our endpoints to the Sonarr, Radarr or Lidarr at URL, such as http://sonarr:8989.

    The service must be running: the app tries out what it is given. Run it again whenever sources came or went: what is
    there is brought up to date, nothing is added twice. Other indexers of the app are left alone, and named while they
    still go past the gate. The app's own key is asked for, or read from standard input, unless --key-env or --key-file
    says where it is.
    """
    if not session.settings.web.enabled:
        raise UsageRefused("web.enabled is false, so there is no gate that an app could search through; set it to true")
    connection = _connection(session, **given)
    key, sites = await _key_and_sites(session, client or given["app"], may_make=not connection.dry_run)
    if not sites:
        raise CommandFailed(
            "there are no sources yet that an app could search; cormorant sources add, or cormorant import"
        )
    report = await connection.connect(sites, key, is_combined=combined, on_progress=_progress_of(connection))
    return _show(session, connection, report)


@click.command(short_help="Take our endpoints out of an app again.", epilog=EXIT_CODES)
@_app_command
@_ACCESS
@_APP
async def disconnect(session: CommandSession, **given: Any) -> int:
    """Take our endpoints out of the Sonarr, Radarr or Lidarr at URL. Nothing else there is changed.

    The app's own key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    connection = _connection(session, is_gate_needed=False, **given)
    return _show(session, connection, await connection.disconnect())


def _connection(
    session: CommandSession, *, app: str, url: str, gate: str | None, is_gate_needed: bool = True, **given: Any
) -> AppConnection:
    from cormorant.services.app_connections import AppConnection  # noqa: PLC0415 - `--help` need not wait for it

    if gate is None and is_gate_needed:
        _refuse_elsewhere(session.settings, TITLES[app], urlsplit(url).hostname or "")
    address = GateAddress(gate or _own_address(session.settings))
    return AppConnection(session.environment, app=app, url=url, gate=address, **given)


def _refuse_elsewhere(settings: Settings, title: str, host: str) -> None:
    """Only an app on this machine finds us where we listen. Another one needs to be told."""
    if host in {"localhost", "127.0.0.1", "::1"}:
        return
    address = settings.web.address
    listens = "listens on this machine alone" if address.is_loopback else f"listens on {address.shown}"
    remedy = "set web.listen and web.key, and " if address.is_loopback else ""
    raise UsageRefused(
        f"{title} runs elsewhere ({host}) and Cormorant {listens}; {remedy}"
        "say with --gate by which address it reaches us, such as --gate http://cormorant:7979"
    )


def _own_address(settings: Settings) -> str:
    """Where an app finds us that runs on this machine."""
    web = settings.web
    shown = web.address.shown
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - looked for, not listened on
    if web.address.host in everywhere:
        shown = f"{everywhere[web.address.host]}:{web.address.port}"
    return f"http://{shown}{web.url_base.rstrip('/')}"


async def _key_and_sites(
    session: CommandSession, client: str, *, may_make: bool
) -> tuple[Secret, list[SourceEndpoint]]:
    """The key of the client, which may be made, and the sources. A client that has to be let in needs a database."""
    from cormorant.services.app_connections import client_key, searched_sources  # noqa: PLC0415 - as above

    async def look(opened: CommandSession, *, is_stored: bool = True) -> tuple[Secret, list[SourceEndpoint]]:
        key = await client_key(opened.environment, client) if may_make else Secret("")
        return key, await searched_sources(opened.environment, is_stored=is_stored)

    if session.is_database_there() or (may_make and client not in session.settings.clients):
        return await session.at_database(look)
    return await look(session, is_stored=False)


def _progress_of(connection: AppConnection) -> Callable[[int, int, str], None]:
    """The app asks each source, within its limits: that takes seconds for each."""

    def show(number: int, count: int, name: str) -> None:
        if sys.stderr.isatty() and not connection.dry_run:
            tries = f"{TITLES[connection.app]} tries out {name}"
            click.echo(f"{number} of {count}: {tries}; up to a minute if a site makes it wait", err=True)

    return show


def _show(session: CommandSession, connection: AppConnection, report: ConnectReport) -> int:
    names = ("name", "source", "became", "why")
    rows = [dict(zip(names, row, strict=True)) for row in report.rows]
    facts = {"app": connection.app, "dry_run": connection.dry_run, "indexers": rows, "goes_direct": report.direct}
    code = session.show(facts, _lines(TITLES[connection.app], report))
    return EXIT_FAILED if report.failed else code


def _lines(title: str, report: ConnectReport) -> Iterator[str]:
    if not report.rows:
        yield f"{title} has nothing of ours; nothing was changed"
        return
    yield from table((title.upper(), "SOURCE", "BECAME", "WHY"), report.rows)
    if report.failed:
        yield ""
        yield f"{report.failed} refused: mend what {title} says (cormorant explain SOURCE tells why a site waits) and run it again"
    if report.direct:
        yield ""
        yield f"warning: {title} still asks these past the gate: {', '.join(report.direct)}"
        yield "  the sites count both together; switch them off there once you trust ours"

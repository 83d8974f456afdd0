"""`cormorant migrate`: take everything to another database, SQLite to PostgreSQL or back."""

from __future__ import annotations

import sys

import click

from cormorant.cli.watch_options import options

__all__ = ["migrate"]

EXIT_CODES = """\b
Exit codes: 0  copied, and both sides have the same rows
            1  it was tried and could not be done; nothing was kept in the target
            2  it cannot be done as things are; nothing was changed
"""


@click.command(short_help="Take everything to another database.", epilog=EXIT_CODES)
@options
@click.option(
    "--to",
    "to",
    required=True,
    metavar="URL",
    envvar="MIGRATE_TO",
    show_envvar=True,
    help="An empty database: postgresql://user:password@host/name or sqlite:///folder/file.db.",
)
@click.option(
    "--force", is_flag=True, help="Also while a service works with the database: what it does meanwhile is left out."
)
def migrate(config: str, *, as_json: bool, to: str, force: bool) -> None:
    """Copy everything from the database of the settings into an empty one, and check that it is the same.

    Stop the service first. The old database is not changed; the service uses the new one when storage.url names it. A
    password on the command line can be seen by others: put the address into MIGRATE_TO instead.
    """
    from cormorant.cli.migration import migrate_now  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(migrate_now(config, to, as_json=as_json, force=force))

"""`cormorant connect`: let Sonarr, Radarr or Lidarr search through the gate."""

from __future__ import annotations

import sys
from typing import Any

import click

from cormorant.cli.app_options import app_arguments, app_options, read_app_words
from cormorant.cli.sources import EXIT_CODES


@click.command(short_help="Let Sonarr, Radarr or Lidarr search through the gate.", epilog=EXIT_CODES)
@app_options
@click.option("--combined", is_flag=True, help="One indexer for all sources, instead of one for each.")
@click.option(
    "--client", metavar="NAME", help="The client of the settings whose key it gets.  [default: the app's name]"
)
@app_arguments
def connect(config: str, **words: Any) -> None:
    """Add our endpoints to the Sonarr, Radarr or Lidarr at URL, such as http://sonarr:8989.

    The service must be running: the app tries out what it is given. Run it again whenever sources came or went: what is
    there is brought up to date, nothing is added twice. Other indexers of the app are left alone, and named while they
    still go past the gate. The app's own key is asked for, or read from standard input, unless --key-env or --key-file
    says where it is.
    """
    wanted = read_app_words(words)
    from cormorant.cli.actions.connect import connect_now  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(connect_now(config, wanted))


@click.command(short_help="Take our endpoints out of an app again.", epilog=EXIT_CODES)
@app_options
@app_arguments
def disconnect(config: str, **words: Any) -> None:
    """Take our endpoints out of the Sonarr, Radarr or Lidarr at URL. Nothing else there is changed.

    The app's own key is asked for, or read from standard input, unless --key-env or --key-file says where it is.
    """
    wanted = read_app_words(words)
    from cormorant.cli.actions.connect import disconnect_now  # noqa: PLC0415  # `--help` need not wait for the database's driver

    sys.exit(disconnect_now(config, wanted))

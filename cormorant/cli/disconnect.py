"""`cormorant disconnect`: take our endpoints out of Sonarr, Radarr or Lidarr again."""

from __future__ import annotations

import sys
from typing import Any

import click

from cormorant.cli.app_options import app_arguments, app_options, read_app_words
from cormorant.cli.sources import EXIT_CODES

__all__ = ["disconnect"]


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

"""`cormorant run`: start everything, stop when told, and tell how that went."""

from __future__ import annotations

import click

from cormorant.cli.console.command_line import config_option
from cormorant.cli.console.signals import StopSignals
from cormorant.cli.console.streams import leave, open_missing

__all__ = ["run"]


@click.command(short_help="Start the service; stop it with Ctrl-C.")
@config_option
def run(config: str) -> None:
    """Start the service; stop it with Ctrl-C or SIGTERM.

    Everything that can be checked is checked before anything is touched. The log goes to standard error, one line per
    event. Told to stop, it ends what is under way in good order, within 30 s unless set otherwise, and tells how that
    went. A second Ctrl-C ends it at once.

    \b
    Exit codes: 0  it stopped in good order
                1  it failed, or something had to be forced
                2  it did not start, and nothing was changed
    """  # noqa: D301  # click reads the backspace: do not wrap
    open_missing()
    signals = StopSignals()
    signals.install()
    from cormorant.cli.serve import serve  # noqa: PLC0415  # `--help` need not wait for the tree, nor must a signal

    leave(serve(config, signals))

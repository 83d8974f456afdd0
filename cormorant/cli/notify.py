"""`cormorant notify`: whether those can be told who are to be told."""

from __future__ import annotations

import json
import sys

import click

from cormorant.cli.watch_options import EXIT_CODES, options
from cormorant.cli.words import EXIT_FAILED, EXIT_OK, HintingGroup, Refused

__all__ = ["notify"]


@click.group(cls=HintingGroup, short_help="Try notifications out.", epilog=EXIT_CODES)
def notify() -> None:
    """Try notifications out: [notify] of the settings file says where they go, of what, and when not."""


@notify.command(short_help="Send one to each address.", epilog=EXIT_CODES)
@options
def test(config: str, *, as_json: bool) -> None:
    """Send one notification to each address of notify.apprise, now, also in quiet hours. Addresses are not shown."""
    from cormorant.cli.preflight import load_or_refuse  # noqa: PLC0415  # `--help` need not wait for it
    from cormorant.clients.notifying import NotTold, tell  # noqa: PLC0415  # as above
    from cormorant.rules.notices import Message  # noqa: PLC0415  # as above

    addresses = load_or_refuse(config).notify.apprise.reveal().split()
    if not addresses:
        raise Refused("there is nobody to tell; set notify.apprise to an Apprise address, such as ntfy://my-topic")
    message = Message(title="Cormorant: a test", body="If you read this, notifications arrive here.")
    rows = []
    for number, address in enumerate(addresses, 1):
        service = address.partition("://")[0]
        try:
            tell(address, message)
            problem = None
        except NotTold as error:
            problem = str(error)
        rows.append({"address": number, "service": service, "told": problem is None, "problem": problem})
        if not as_json:
            click.echo(f"{number}  {service}://  {'told' if problem is None else f'not told: {problem}'}")
    if as_json:
        click.echo(json.dumps({"addresses": rows}, indent=2, ensure_ascii=False))
    sys.exit(EXIT_OK if all(row["told"] for row in rows) else EXIT_FAILED)

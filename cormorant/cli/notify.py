"""`cormorant notify`: whether those can be told who are to be told."""

from __future__ import annotations

import json
import sys

import click

from cormorant.cli.console.command_line import EXIT_FAILED, EXIT_OK, CommandInterrupted, HintingGroup, UsageRefused
from cormorant.cli.watch_options import EXIT_CODES, options

__all__ = ["notify"]

AT_ONCE = 2


@click.group(cls=HintingGroup, short_help="Try notifications out.", epilog=EXIT_CODES)
def notify() -> None:
    """Try notifications out: [notify] of the settings file says where they go, of what, and when not."""


@notify.command(short_help="Send one to each address.", epilog=EXIT_CODES)
@options
def test(config: str, *, as_json: bool) -> None:
    """Send one notification to each address of notify.apprise, now, also in quiet hours. Addresses are not shown."""
    import trio  # noqa: PLC0415  # `--help` need not wait for it

    from cormorant.cli.console.preflight import load_or_refuse  # noqa: PLC0415  # as above
    from cormorant.clients.apprise import NotTold, tell_apart  # noqa: PLC0415  # as above
    from cormorant.rules.notices import Message  # noqa: PLC0415  # as above

    addresses = load_or_refuse(config).notify.apprise.reveal().split()
    if not addresses:
        raise UsageRefused("there is nobody to tell; set notify.apprise to an Apprise address, such as ntfy://my-topic")
    message = Message(title="Cormorant: a test", body="If you read this, notifications arrive here.")
    problems: list[str | None] = [None] * len(addresses)
    free = trio.CapacityLimiter(AT_ONCE)

    async def try_one(number: int, address: str) -> None:
        async with free:
            try:
                await tell_apart(address, message)
            except NotTold as error:
                problems[number] = str(error)

    async def try_all() -> None:
        async with trio.open_nursery() as nursery:
            for number, address in enumerate(addresses):
                nursery.start_soon(try_one, number, address)

    try:
        trio.run(try_all)
    except (KeyboardInterrupt, BaseExceptionGroup) as ended:
        if isinstance(ended, BaseExceptionGroup) and ended.split(KeyboardInterrupt)[1] is not None:
            raise
        raise CommandInterrupted("interrupted; some may have been told") from None
    rows = [
        {"address": number, "service": address.partition("://")[0], "told": problem is None, "problem": problem}
        for number, (address, problem) in enumerate(zip(addresses, problems, strict=True), 1)
    ]
    for row in [] if as_json else rows:
        told = "told" if row["told"] else f"not told: {row['problem']}"
        click.echo(f"{row['address']}  {row['service']}://  {told}")
    if as_json:
        click.echo(json.dumps({"addresses": rows}, indent=2, ensure_ascii=False))
    sys.exit(EXIT_OK if all(row["told"] for row in rows) else EXIT_FAILED)

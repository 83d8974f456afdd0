"""Commands run, doctor, init, migrate and notify. Imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from cormorant.cli.console.command_line import (
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REFUSED,
    CommandInterrupted,
    HintingGroup,
    UsageRefused,
    config_option,
    options,
)
from cormorant.cli.console.output import leave, open_missing, show
from cormorant.cli.console.signals import StopSignals

if TYPE_CHECKING:
    from cormorant.cli.console.database_session import CommandSession
    from cormorant.cli.first_settings import FirstSettings


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


_COLOURS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@click.command(short_help="Look whether everything is in order.")
@options
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
    show({"ok": not failed, "checks": [check.as_json() for check in checks]}, map(line, checks), as_json=as_json)
    sys.exit(code)


_PROWLARR = "Prowlarr whose indexers to take over, such as http://127.0.0.1:9696 (Enter for none)"


@click.command(short_help="Write a settings file.")
@options
@click.option(
    "--data", metavar="FOLDER", help="Where what is kept goes; relative to the settings file.  [default: data]"
)
@click.option("--listen", metavar="ADDRESS", help="IP address and port of the server.  [default: 127.0.0.1:7979]")
@click.option("--time-zone", metavar="ZONE", help="For times of day, such as Europe/Berlin.  [default: this machine's]")
@click.option("--prowlarr", metavar="URL", help="Address of a Prowlarr whose indexers are taken over right away.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Ask nothing; what is not given gets its default.")
@click.option("--force", is_flag=True, help="Replace a file that is there; it is kept under another name.")
def init(config: str, *, as_json: bool, is_sure: bool, force: bool, prowlarr: str | None, **given: str | None) -> None:
    """Write a settings file: where to keep things, where to listen, the time zone. Everything else has a good default.

    What is not given is asked for, unless --yes. A server that other machines can reach gets a key right away. Nothing is
    overwritten without --force.

    \b
    Exit codes: 0  it is written
                1  it is written, but the indexers could not be taken over
                2  bad input, or the file is there already; nothing was changed
              130  interrupted; nothing was changed
    """  # noqa: D301  # click reads the backspace: do not wrap
    from cormorant.cli import first_settings as first  # noqa: PLC0415  # `--help` need not wait for it

    if not force:
        first.refuse_to_replace(config)
    wanted = first.FirstSettings.usual()
    for name, text in given.items():
        wanted = wanted if text is None else wanted.with_answer(name, text)
    prowlarr = None if prowlarr is None else first.check_prowlarr(prowlarr)
    if not is_sure:
        wanted, prowlarr = _ask(wanted, given, prowlarr)
    written = first.write(config, wanted)
    show(written.facts(), written.told(), as_json=as_json)
    if prowlarr:
        _take_over(config, prowlarr)
    sys.exit(EXIT_OK)


def _ask(wanted: FirstSettings, given: Mapping[str, str | None], prowlarr: str | None) -> tuple[FirstSettings, str]:
    from cormorant.cli.first_settings import check_prowlarr  # noqa: PLC0415  # as above

    try:
        for name, question in wanted.questions():
            if given[name] is None:
                answer = _asked(question, getattr(wanted, name), partial(wanted.with_answer, name))
                wanted = wanted.with_answer(name, answer)
        return wanted, _asked(_PROWLARR, "", check_prowlarr) if prowlarr is None else prowlarr
    except click.Abort:
        if sys.stdin.isatty():
            raise CommandInterrupted("interrupted; nothing was written") from None
        raise UsageRefused(
            "there is nobody to ask; give --yes, and options for what is to be other than usual"
        ) from None


def _asked(question: str, usual: str, check: Callable[[str], object]) -> str:
    def checked(text: str) -> str:
        try:
            check(text)
        except UsageRefused as refused:
            raise click.UsageError(refused.message) from None
        return text

    answer: str = click.prompt(question, default=usual, show_default=bool(usual), value_proc=checked, err=True)
    return answer


def _take_over(config: str, prowlarr: str) -> None:
    from cormorant.cli import main  # noqa: PLC0415  # it loads this file

    main.main(["import", "prowlarr", prowlarr, "--config", config], prog_name="cormorant", standalone_mode=False)


_MIGRATE_EXIT_CODES = """\b
Exit codes: 0  copied, and both sides have the same rows
            1  it was tried and could not be done; nothing was kept in the target
            2  it cannot be done as things are; nothing was changed
"""


@click.command(short_help="Take everything to another database.", epilog=_MIGRATE_EXIT_CODES)
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


AT_ONCE = 2


@click.group(cls=HintingGroup, short_help="Try notifications out.", epilog=EXIT_CODES)
def notify() -> None:
    """Try notifications out: [notify] of the settings file says where they go, of what, and when not."""


@notify.session_command(
    "Send one to each address.", has_database=False, interrupted="interrupted; some may have been told"
)
async def test(session: CommandSession) -> int:
    """Send one notification to each address of notify.apprise, now, also in quiet hours. Addresses are not shown."""
    addresses = session.settings.notify.apprise.reveal().split()
    if not addresses:
        raise UsageRefused("there is nobody to tell; set notify.apprise to an Apprise address, such as ntfy://my-topic")
    problems = await _send_to_each(addresses)
    rows = [
        {"address": number, "service": address.partition("://")[0], "told": problem is None, "problem": problem}
        for number, (address, problem) in enumerate(zip(addresses, problems, strict=True), 1)
    ]
    told = ["told" if row["told"] else f"not told: {row['problem']}" for row in rows]
    lines = [f"{row['address']}  {row['service']}://  {each}" for row, each in zip(rows, told, strict=True)]
    session.show({"addresses": rows}, lines)
    return EXIT_FAILED if any(problems) else EXIT_OK


async def _send_to_each(addresses: Sequence[str]) -> list[str | None]:
    """Send a notification to each address. Returns what went wrong at each."""
    import trio  # noqa: PLC0415  # `--help` need not wait for it

    from cormorant.clients.apprise import NotTold, send_in_subprocess  # noqa: PLC0415  # as above
    from cormorant.rules.notices import Message  # noqa: PLC0415  # as above

    message = Message(title="Cormorant: a test", body="If you read this, notifications arrive here.")
    problems: list[str | None] = [None] * len(addresses)
    free = trio.CapacityLimiter(AT_ONCE)

    async def try_one(number: int, address: str) -> None:
        async with free:
            try:
                await send_in_subprocess(address, message)
            except NotTold as error:
                problems[number] = str(error)

    async with trio.open_nursery() as nursery:
        for number, address in enumerate(addresses):
            nursery.start_soon(try_one, number, address)
    return problems

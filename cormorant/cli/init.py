"""`cormorant init`: a settings file of one's own. Asks little, replaces nothing unless told, and says what comes next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from cormorant.cli.console.command_line import EXIT_OK, CommandInterrupted, UsageRefused, config_option, json_option

if TYPE_CHECKING:
    from cormorant.cli.first_settings import FirstSettings

__all__ = ["init"]

_COMMAND = "import"
_PROWLARR = "Prowlarr whose indexers to take over, such as http://127.0.0.1:9696 (Enter for none)"


@click.command(short_help="Write a settings file.")
@config_option
@json_option
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
    is_taken_over = _can_take_over() and bool(prowlarr)
    if as_json:
        click.echo(written.as_json())
    else:
        click.echo("\n".join(written.told(prowlarr=None if is_taken_over else prowlarr)))
    if is_taken_over and prowlarr:
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


def _can_take_over() -> bool:
    from cormorant.cli import main  # noqa: PLC0415  # it loads this file

    return _COMMAND in main.list_commands(click.get_current_context())


def _take_over(config: str, prowlarr: str) -> None:
    from cormorant.cli import main  # noqa: PLC0415  # as above

    main.main([_COMMAND, "prowlarr", prowlarr, "--config", config], prog_name="cormorant", standalone_mode=False)

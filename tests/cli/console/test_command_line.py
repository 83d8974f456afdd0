"""How the command line speaks: help, version, mistakes in words, chains of causes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cormorant import __version__
from cormorant.cli import main
from cormorant.cli.console.command_line import UsageRefused, causes, display_path
from cormorant.cli.jobs import jobs
from cormorant.cli.serve import report_lines
from cormorant.rules.secrets import Secret
from supervisors import ChildReport, Ending, ShutdownReport
from tests.bounds import WAIT_S
from tests.cli.program import ROOT, environment


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"cormorant {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["-h"], ["run", "--help"], ["doctor", "-h"], ["jobs", "-h"]]
    + [["jobs", name, "-h"] for name in jobs.commands],
)
def test_help_fits_a_terminal_and_names_the_exit_codes_of_commands(words: list[str]) -> None:
    told = CliRunner().invoke(main, words)

    assert told.exit_code == 0
    assert max(len(line) for line in told.output.splitlines()) <= 100
    assert ("Exit codes: 0" in told.output) is (len(words) >= 2)


@pytest.mark.parametrize(("word", "hint"), [("rnu", "did you mean run?"), ("fish", "there are run, doctor")])
def test_an_unknown_command_gets_a_hint(word: str, hint: str) -> None:
    told = CliRunner().invoke(main, [word])

    assert told.exit_code == 2
    assert f"there is no command '{word}'; {hint}" in told.output


@pytest.mark.slow("starts Python")
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["jobs", "--help"],
        ["jobs", "list", "--help"],
        ["import", "jackett", "--help"],
        ["connect", "--help"],
    ],
)
def test_help_does_not_wait_for_the_whole_tree(words: list[str]) -> None:
    script = f"import sys; from cormorant.cli import main; main({words}, standalone_mode=False); print(*sys.modules)"

    told = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )

    assert not {"trio", "sqlalchemy", "structlog", "cattrs"} & set(told.stdout.split())


def test_causes_are_told_from_the_outside_in_without_passwords() -> None:
    inner = ConnectionError("postgresql://me:hunter2@db/x\nhung up")
    outer = RuntimeError("cannot start")
    outer.__cause__ = ExceptionGroup("two things", [inner, ValueError()])

    assert list(causes(outer)) == [
        "cannot start",
        "  because two things (2 sub-exceptions)",
        "    because postgresql://me:***@db/x hung up",
        "    because ValueError",
    ]


def test_known_secrets_are_hidden_in_causes_and_in_the_report() -> None:
    error = OSError("no entry for hun ter2")
    report = ShutdownReport(
        took_s=1.0, children=(ChildReport(name="storage", ending=Ending.CRASHED, took_s=1.0, error=error),)
    )

    told = [*causes(error, [Secret("hun ter2")]), *report_lines(report, [Secret("hun ter2")])]

    assert told[0] == "no entry for ***"
    assert "ter2" not in "".join(told)


def test_a_cause_that_was_already_said_is_not_said_again() -> None:
    error = RuntimeError("it failed: no room")
    error.__cause__ = OSError("no room")
    error.__cause__.__cause__ = ValueError("too big")

    assert list(causes(error)) == ["it failed: no room", "  because too big"]


@pytest.mark.parametrize("text", ["other", "one"])
def test_a_circle_of_causes_ends(text: str) -> None:
    one, other = ValueError("one"), ValueError(text)
    one.__cause__, other.__cause__ = other, one

    assert len(list(causes(one))) < 30


def test_the_report_names_each_child_how_it_ended_and_how_long_it_took() -> None:
    limiter = ChildReport(name="redacted", ending=Ending.CANCELLED, took_s=0.01)
    report = ShutdownReport(
        took_s=5.21,
        children=(
            ChildReport(name="web", ending=Ending.OVERRAN, took_s=5.0),
            ChildReport(name="sources", ending=Ending.STOPPED, took_s=0.2, children=(limiter,)),
            ChildReport(name="storage", ending=Ending.CRASHED, took_s=0.01, error=OSError("disk full")),
        ),
    )

    assert list(report_lines(report)) == [
        "stopped by force in 5.2 s",
        "  web           5.00 s  did not stop in time, was cancelled",
        "  sources       0.20 s  stopped",
        "    redacted    0.01 s  cancelled",
        "  storage       0.01 s  crashed while stopping: disk full",
    ]


def test_paths_are_shown_from_here_when_they_are_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert display_path(str(tmp_path / "data" / "x.db")) == "data/x.db"
    assert display_path("/elsewhere/x.db") == "/elsewhere/x.db"


def test_a_path_is_shown_in_one_line_whatever_it_is_made_of() -> None:
    assert display_path("/srv/a\nb\x1b[2J\udce9.db") == r"/srv/a\nb\x1b[2J\udce9.db"


def test_a_refusal_is_told_on_standard_error_with_all_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    UsageRefused("two mistakes", ["one", "other"]).show()

    assert capsys.readouterr() == ("", "cormorant: two mistakes\n  one\n  other\n")

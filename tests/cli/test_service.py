"""`cormorant run` as a person or a service manager uses it: the real program, its lines, its signals, its exit codes."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.bounds import WAIT_S
from tests.cli.program import Program, cormorant, environment

pytestmark = pytest.mark.slow("starts the program, which loads everything")

ODD_TREE = str(Path(__file__).with_name("odd_tree.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a settings file that changes nothing."""
    (tmp_path / "config.toml").write_text("")
    return tmp_path


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_stops_in_good_order_when_told(folder: Path, number: signal.Signals) -> None:
    with Program("-m", "cormorant", "run", cwd=folder) as program:
        ready = program.line_with(" ready in ")
        program.send(number)
        ended = program.end()

    assert re.fullmatch(
        r"cormorant \d+\.\d+\.\d+ ready in \d+\.\d s, database data/cormorant.db, stop with Ctrl-C\n", ready
    )
    assert ended.code == 0, ended.err
    assert re.search(
        r"^stopped in good order in \d+\.\d s\n(  .*\n)*  storage +\d+\.\d\d s  stopped\n$", ended.out, re.MULTILINE
    )
    assert "event=service.stopping why=asked" in ended.err
    assert (folder / "data" / "cormorant.db").exists()


def test_a_folder_with_an_odd_name_holds_all_that_is_made(folder: Path) -> None:
    odd = folder / os.fsdecode(b"q?x%41#y z\xe9\n")
    odd.mkdir()
    (odd / "config.toml").touch()

    with Program("-m", "cormorant", "run", cwd=odd) as program:
        ready = program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 0, ended.err
    assert " database data/cormorant.db, " in ready
    assert (odd / "data" / "cormorant.db").exists()
    assert sorted(path.name for path in folder.iterdir()) == sorted(["config.toml", odd.name])


def test_the_log_is_one_line_per_event_in_order(folder: Path) -> None:
    with Program("-m", "cormorant", "run", cwd=folder) as program:
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        lines = program.end().err.splitlines()

    assert all(re.match(r"ts=\d{4}-\d\d-\d\dT[\d:.]+Z level=\w+ event=[\w.]+", line) for line in lines)
    events = [line.split(" event=")[1].split()[0] for line in lines]
    assert [event for event in events if event.startswith("service.")] == ["service.ready", "service.stopping"]


def test_a_child_that_does_not_stop_in_time_is_named_and_the_exit_code_is_1(folder: Path) -> None:
    with Program(ODD_TREE, "overrun", cwd=folder) as program:
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 1
    assert re.search(
        r"^stopped by force in .*\n  stubborn .* did not stop in time, was cancelled$", ended.out, re.MULTILINE
    )


def test_told_to_stop_while_it_starts_it_stops_in_good_order_too(folder: Path) -> None:
    with Program(ODD_TREE, "hesitate", cwd=folder) as program:
        program.line_with("hesitating")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert ended.code == 0, ended.err
    assert "ready" not in ended.out
    assert "stopped" in ended.out
    assert "Traceback" not in ended.err


def test_a_tree_that_cannot_be_kept_running_tells_the_chain_of_causes_without_secrets(folder: Path) -> None:
    with Program(ODD_TREE, "crash", cwd=folder) as program:
        ended = program.end()

    assert ended.code == 1
    assert "hunter2" not in ended.out + ended.err
    assert not [line for line in ended.err.splitlines() if line.startswith("Traceback")]
    crash = next(line for line in ended.err.splitlines() if " event=child.crashed " in line)
    assert re.search(r' trace=".*odd_tree.py.*, in crash\\n.*RuntimeError: the gauge is gone"$', crash)
    told = ended.err[ended.err.index("the service has failed") :]
    assert re.search(r"because the gauge is gone\n +because postgresql://me:\*\*\*@db/x hung up\n", told)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("data = = 3", "config.toml, line 1, column 8: not valid TOML"),
        (
            "[storage]\nconections = 3",
            "storage.conections: there is no such setting; did you mean storage.connections?",
        ),
        ("[storage]\nconnections = 101", "storage.connections: 101 is out of range; allowed: 1 to 100"),
        ('data = "config.toml/x"', "config.toml is not a folder; move it away, or set data to another path"),
        (
            '[storage]\nurl = "mysql://me:hunter2@db/x"',
            "storage.url: the database mysql://me:***@db/x cannot be used: ",
        ),
        ('[storage]\nurl = "sqlite:///no/x.db"', "/no; make it, or name another file"),
        ('[storage]\nurl = "sqlite:///config.toml"', "the database config.toml cannot be used: "),
        (
            '[storage]\nurl = "postgresql://me:hunter2@127.0.0.1:1/x"',
            "storage.url: the database postgresql://me:***@127.0.0.1:1/x cannot be used: ",
        ),
        (
            '[storage]\nurl = "postgresql://me:/hunter2/@127.0.0.1:1/x"',
            "storage.url: the database postgresql://me:***@127.0.0.1:1/x cannot be used: ",
        ),
        (
            '[storage]\nurl = "postgresql://me: hunter2 @127.0.0.1:1/x?sslpassword=hunter2"',
            "storage.url: the database postgresql://me:***@127.0.0.1:1/x?*** cannot be used: ",
        ),
        (
            '[storage]\nurl = "postgresql:/me:hunter2@127.0.0.1:1/x"',
            "storage.url: it is not the address of a database; ",
        ),
        ('storage = "postgresql://me:hunter2@127.0.0.1:1/x"', "storage: it is not a table of settings; "),
        ('[storage]\nurl = "sqlite:///x.db?mode=rwc"', "a SQLite URL names a file and nothing else"),
        (
            '[service]\nstop_total = "24s"',
            "service.stop_total: 24s is less than the parts of the service may take to stop (storage 5s, search 8s, ",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_message_and_nothing_is_changed(
    folder: Path, settings: str, told: str
) -> None:
    (folder / "config.toml").write_text(settings)

    ended = cormorant("run", cwd=folder)

    assert ended.code == 2, ended.err
    assert ended.err.startswith("cormorant: ")
    assert told in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert "hunter2" not in ended.err
    assert contents(folder) == ["config.toml"]


def test_a_missing_settings_file_is_refused_with_the_remedy(tmp_path: Path) -> None:
    ended = cormorant("run", "--config", "nowhere.toml", cwd=tmp_path)

    assert ended.code == 2
    assert "nowhere.toml: there is no such file" in ended.err
    assert contents(tmp_path) == []


def test_a_folder_that_may_not_be_written_is_refused(folder: Path) -> None:
    # Root may write everywhere unless that power is taken away.
    command = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    folder.chmod(0o555)

    ended = subprocess.run(
        [*command, sys.executable, "-m", "cormorant", "run"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    folder.chmod(0o755)
    assert ended.returncode == 2, ended.stderr
    assert re.search(rf"data: \w+ may not write {folder}; give the right to it, or set data", ended.stderr)
    assert contents(folder) == ["config.toml"]


def test_a_database_that_needs_newer_code_is_refused_and_left_alone(folder: Path) -> None:
    with Program("-m", "cormorant", "run", cwd=folder) as program:
        program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        program.end()
    database = folder / "data" / "cormorant.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO migrations VALUES (999, 'future', 999, 0)")
    before = database.read_bytes()

    ended = cormorant("run", cwd=folder)

    assert ended.code == 2, ended.err
    assert "needs code of schema version 999" in ended.err
    assert "upgrade Cormorant" in ended.err
    assert database.read_bytes() == before


def test_the_environment_can_name_the_settings_file(folder: Path) -> None:
    (folder / "other.toml").write_text("[log]\nring = 0")

    ended = cormorant("run", cwd=folder, CORMORANT_CONFIG="other.toml")

    assert "other.toml: log.ring: 0 is out of range" in ended.err


def test_postgresql_is_a_database_like_the_other(folder: Path, postgres_url: str) -> None:
    with Program("-m", "cormorant", "run", cwd=folder, CORMORANT_STORAGE__URL=postgres_url) as program:
        ready = program.line_with(" ready in ")
        program.send(signal.SIGTERM)
        ended = program.end()

    assert "database postgresql" in ready
    assert ended.code == 0, ended.err

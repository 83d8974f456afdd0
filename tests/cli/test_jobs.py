"""`cormorant jobs` on real databases, beside a service and without: what it says, what it changes, its exit codes."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, text

from cormorant.cli import main
from cormorant.cli.console import preflight
from cormorant.rules.jobs.states import JobState
from storage import pauses
from storage.database import inspect
from storage.jobs import reports
from tests.cli.job_place import (
    MINUTE,
    OWNER,
    Place,
    claim,
    enqueue,
    failed,
    in_database,
    now,
    register,
    settle,
)
from tests.cli.program import Program, cormorant, environment
from tests.cli.terminal import seen_of
from tests.distribution import install
from tests.upgrades.databases import ADDED, NEXT

pytestmark = pytest.mark.slow("starts programs, which load everything, and databases")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a settings file."""
    (tmp_path / "config.toml").write_text('time_zone = "Europe/Berlin"')
    return tmp_path


@pytest.fixture
def file_place(folder: Path) -> Place:
    """A SQLite file."""
    return Place(folder, f"sqlite:///{folder}/jobs.db")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, folder: Path, file_place: Place) -> Place:
    """Each of the databases."""
    return file_place if request.param == "sqlite" else Place(folder, request.getfixturevalue("postgres_url"))


def line_of(ended_out: str, start: str) -> str:
    [line] = [line for line in ended_out.splitlines() if line.strip().startswith(start)]
    return line


def one_of_each(connection: Connection) -> None:
    """Jobs 1 to 7: done, to be retried, given up, running, due later, held, due."""
    register(connection)
    pauses.pause(connection, "mail", now=now())
    for _ in range(4):
        enqueue(connection, "tidy")
    settle(connection, claim(connection, "tidy"), JobState.SUCCEEDED)
    settle(connection, claim(connection, "tidy"), JobState.RETRYABLE, error="it was busy")
    settle(connection, claim(connection, "tidy"), JobState.FAILED, error="it is gone")
    claim(connection, "tidy")
    enqueue(connection, "tidy", due_in=180 * MINUTE)
    enqueue(connection, "mail")
    enqueue(connection, "tidy")


def test_the_list_says_of_each_job_who_has_it_or_why_it_waits(place: Place) -> None:
    place.write(one_of_each)

    ended = place.program("list")

    assert ended.code == 0, ended.err
    assert re.search(
        r"1 +tidy +succeeded +0/10 +2 h ago +done (now|\d+ (s|min) ago), took \d+\.\d\d s$", ended.out, re.MULTILINE
    )
    assert re.search(
        r"2 +tidy +retryable +1/10 .* retry [\d: -]+ \(in \d+ (s|min)\); after ValueError: it was busy$",
        ended.out,
        re.MULTILINE,
    )
    assert line_of(ended.out, "3 ").endswith(": ValueError: it is gone")
    assert re.search(rf"4 +tidy +running .* for \d+ (s|min) by {OWNER}, beat \d+ (s|min) ago$", ended.out, re.MULTILINE)
    assert re.search(r"5 +tidy +pending .* due [\d: -]+ \(in 2 h\)$", ended.out, re.MULTILINE)
    assert line_of(ended.out, "6 ").endswith("held: mail is paused")
    assert re.search(r"7 +tidy +pending .* due for \d+ (s|min), waits for its turn$", ended.out, re.MULTILINE)
    assert [line.split()[0] for line in ended.out.splitlines()] == ["ID", "7", "6", "5", "4", "3", "2", "1"]


def test_programs_get_the_list_with_owner_heartbeat_error_and_reasons(place: Place) -> None:
    place.write(one_of_each)

    rows = {row["id"]: row for row in place.facts("list")["jobs"]}

    assert [rows[number]["waits_for"] for number in (4, 5, 6, 7)] == [[], ["not_due"], ["kind_paused"], ["turn"]]
    assert rows[4]["owner"] == OWNER
    assert rows[4]["heartbeat_at"].endswith("Z")
    assert rows[3]["error"] == "ValueError: it is gone"
    assert rows[1]["finished_at"] is not None


def test_the_list_is_filtered_and_comes_in_pages(place: Place) -> None:
    place.write(one_of_each)

    first = place.facts("list", "--kind", "tidy", "--limit", "4")
    rest = place.facts("list", "--kind", "tidy", "--limit", "4", "--before", str(first["before"]))

    assert [row["id"] for row in first["jobs"] + rest["jobs"]] == [7, 5, 4, 3, 2, 1]
    assert rest["before"] is None
    assert [row["id"] for row in place.facts("list", "--state", "failed")["jobs"]] == [3]
    assert place.jobs("list", "--limit", "6").out.endswith("older ones: --before 2\n")


def test_a_mistyped_kind_gets_a_hint(place: Place) -> None:
    place.write(one_of_each)

    assert place.jobs("list", "--kind", "tidi").out == "no such jobs; did you mean kind tidy?\n"


def test_a_job_is_shown_with_its_payload_and_errors(place: Place) -> None:
    place.write(one_of_each)

    told, facts = place.jobs("show", "2"), place.facts("show", "2")

    assert told.out.startswith("job 2  tidy  retryable\n")
    assert re.search(r"enqueued +\d{4}-\d\d-\d\d [\d:]+ CES?T \(2 h ago\)\n", told.out)
    assert re.search(r"attempts +1 of 10 used\n", told.out)
    assert re.search(r'payload\n +\{\n +"n": 1\n', told.out)
    assert re.search(r"last errors\n +attempt 1, [\d: -]+ +ValueError: it was busy\n", told.out)
    assert facts["payload"] == {"n": 1}
    assert facts["correlation_id"] == "req-17"
    assert facts["last_errors"][0]["type"] == "ValueError"


def test_a_job_that_is_not_there_is_told_with_code_1(place: Place) -> None:
    place.write(register)

    ended = place.program("show", "4711")

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "cormorant: there is no job 4711; finished jobs are pruned after a while\n"


def test_the_stats_tell_first_what_needs_somebody_and_then_all_numbers(place: Place) -> None:
    place.write(one_of_each)
    place.write(enqueue, "strange")
    assert place.jobs("pause").code == 0

    told, facts = place.jobs("stats"), place.facts("stats")

    alarms = [line for line in told.out.splitlines() if line.startswith("! ")]
    assert [re.sub(r"\d+ (s|min)", "N s", alarm) for alarm in alarms] == [
        "! everything is paused for N s: cormorant jobs resume",
        "! strange: jobs wait and no process has a handler for them",
        "! mail is paused for N s: cormorant jobs resume mail",
        "! 1 dead letter: cormorant jobs list --state failed",
    ]
    assert line_of(told.out, "tidy ").split()[:8] == ["tidy", "2", "1", "1", "1", "1", "-", "-"]
    assert line_of(told.out, "mail ").split() == ["mail", "1", "-", "-", "-", "-", "-", "1", "-"]
    assert line_of(told.out, OWNER).split()[-4:] == ["1", "0.1.0", "mail,", "tidy"]
    assert facts["kinds"]["tidy"]["running"] == 1
    assert (facts["dead_letters"], facts["stuck"]) == (1, 0)
    assert list(facts["paused_kinds_since"]) == ["mail"]
    assert facts["paused_since"] is not None
    assert [(each["id"], each["lives"], each["running"]) for each in facts["workers"]] == [(OWNER, True, 1)]


def two_owners(connection: Connection) -> None:
    """One process is silent for half an hour and has job 1; the other lives and has job 2."""
    register(connection, silent_for=30 * MINUTE)
    register(connection, "cellar.2.bbbbbbbbbbbb")
    enqueue(connection, "tidy")
    claim(connection, "tidy")
    enqueue(connection, "tidy")
    claim(connection, "tidy", "cellar.2.bbbbbbbbbbbb")


def test_stuck_jobs_are_those_whose_owner_is_silent_with_the_owner_and_since_when(place: Place) -> None:
    place.write(two_owners)

    told = place.jobs("stuck")

    assert re.search(rf"^ *1 +tidy .* {OWNER} .*\(3\d min ago\)$", told.out, re.MULTILINE)
    assert "cellar" not in told.out
    assert "reclaimed once a running process has watched the owner be silent for 5m" in told.out
    assert [row["id"] for row in place.facts("stuck")["jobs"]] == [1]
    assert [row["id"] for row in place.facts("stuck", "--silent", "5s")["jobs"]] == [1, 2]
    assert place.jobs("stuck", "--silent", "1h").out == "no running job has an owner that was silent for 1h\n"


def test_without_a_living_process_the_stuck_are_told_to_need_one(place: Place) -> None:
    def alone(connection: Connection) -> None:
        register(connection, silent_for=6 * MINUTE)
        enqueue(connection, "tidy")
        claim(connection, "tidy")

    place.write(alone)

    assert "no process is running that could reclaim them: cormorant run" in place.jobs("stuck").out


def test_each_id_has_its_own_outcome_and_one_that_fails_makes_code_1(place: Place) -> None:
    place.write(one_of_each)

    cancelled = place.program("cancel", "4", "5", "1", "99")
    retried = place.program("retry", "3", "5", "7")
    discarded = place.program("discard", "1", "2")

    assert (cancelled.code, retried.code, discarded.code) == (1, 1, 1)
    assert line_of(cancelled.out, "4 ").endswith(
        f"cancelled; its handler at {OWNER} is stopped soon, at the next heartbeat at the latest"
    )
    assert line_of(cancelled.out, "5 ").endswith("cancelled")
    assert line_of(cancelled.out, "1 ").endswith(
        "it is succeeded; only what is pending, running or retryable can be cancelled"
    )
    assert line_of(cancelled.out, "99 ").endswith("there is no such job; finished jobs are pruned after a while")
    assert line_of(retried.out, "3 ").endswith("retried; due now")
    assert line_of(retried.out, "7 ").endswith("it is pending; only what is failed or cancelled can be retried")
    assert line_of(discarded.out, "1 ").endswith("discarded")
    assert {row["id"]: row["state"] for row in place.facts("list")["jobs"]} == {
        7: "pending",
        6: "pending",
        5: "pending",
        4: "cancelled",
        3: "pending",
        2: "retryable",
    }


def test_programs_get_what_was_done_and_what_was_not(place: Place) -> None:
    place.write(one_of_each)

    ended = place.jobs("retry", "3", "99", "--json")

    assert ended.code == 1
    assert '"done": [\n    3\n  ]' in ended.out
    assert '"id": 99' in ended.out


def test_a_dead_letter_whose_key_is_taken_is_not_retried(place: Place) -> None:
    def taken(connection: Connection) -> None:
        register(connection)
        failed(connection, "tidy", key="attic")
        failed(connection, "tidy")
        enqueue(connection, "tidy", key="attic")

    place.write(taken)

    ended = place.jobs("retry", "1", "2")

    assert ended.code == 1
    assert line_of(ended.out, "1 ").endswith("another job of its kind and key is waiting or running, and does its work")
    assert line_of(ended.out, "2 ").endswith("retried; due now")


def test_all_dead_letters_of_a_kind_are_retried_or_discarded_at_once(place: Place) -> None:
    def many(connection: Connection) -> None:
        register(connection)
        for _ in range(110):  # more than one transaction takes
            failed(connection, "tidy")
        failed(connection, "mail")

    place.write(many)

    retried = place.jobs("retry", "--failed", "--kind", "tidy")
    discarded = place.jobs("discard", "--failed")
    again = place.jobs("discard", "--failed")

    assert (retried.code, retried.out) == (0, "110 retried\n")
    assert (discarded.code, discarded.out) == (0, "111  discarded\n")
    assert (again.code, again.out) == (0, "no dead letters\n")


def test_a_paused_kind_is_held_until_it_is_resumed(place: Place) -> None:
    place.write(one_of_each)

    paused = place.jobs("pause", "tidy")
    place.write(enqueue, "tidy")
    held = {row["id"] for row in place.facts("list", "--kind", "tidy", "--limit", "9")["jobs"] if row["held"]}
    resumed = place.facts("resume", "tidy")

    assert paused.out == "tidy is paused: 4 of its jobs are held, and those to come; what runs goes on\n"
    assert held == {2, 4, 5, 7, 8}
    assert resumed == {"kind": "tidy", "paused": False, "freed": 5, "changed": True}
    assert not any(row["held"] for row in place.facts("list", "--kind", "tidy")["jobs"])


def test_a_kind_that_nobody_knows_is_paused_with_a_hint(place: Place) -> None:
    place.write(one_of_each)

    assert place.jobs("pause", "tidi").out.endswith("there is no job and no handler of that kind; did you mean tidy?\n")
    assert place.jobs("resume", "tidi").code == 0
    assert place.jobs("resume", "mial").out == "mial was not paused; did you mean mail?\n"


def test_everything_is_paused_and_resumed(place: Place) -> None:
    place.write(one_of_each)

    assert place.jobs("pause").out.startswith("everything is paused: no process claims jobs any more")
    assert place.jobs("pause").out == "everything was paused already\n"
    assert line_of(place.jobs("list").out, "7 ").endswith("held: everything is paused")
    assert place.jobs("resume").out.endswith("still paused by name: mail\n")
    assert place.facts("resume") == {"paused": False, "changed": False, "paused_kinds": ["mail"]}


SLEEPER = """
import trio

async def tidy(context):
    await trio.sleep(0.01)

async def sleep(context):
    await trio.sleep(3600)
"""


@pytest.fixture
def service(place: Place) -> Iterator[Program]:
    """`cormorant run` with installed handlers for tidy and sleep; its heart beats fast, so that it hears of changes soon."""
    (place.folder / "config.toml").write_text('[log]\nlevel = "debug"\n[jobs]\nheartbeat = "500ms"')
    install(place.folder / "site", "sleeper", SLEEPER, handlers={"tidy": "sleeper:tidy", "sleep": "sleeper:sleep"})
    path = f"{environment()['PYTHONPATH']}{os.pathsep}{place.folder / 'site'}"
    with Program(
        "-m", "cormorant", "run", cwd=place.folder, CORMORANT_STORAGE__URL=place.url, PYTHONPATH=path
    ) as program:
        program.line_with(" ready in ")
        yield program
        program.send(signal.SIGTERM)
        assert program.end().code == 0


def test_beside_a_running_service_jobs_are_seen_cancelled_and_retried(place: Place, service: Program) -> None:
    job_id = str(place.write(enqueue, "sleep"))
    service.line_with("event=job.started")

    running = place.facts("show", job_id)
    cancelled = place.program("cancel", job_id)
    retried = place.program("retry", job_id)
    service.line_with("event=job.started")

    assert running["state"] == "running"
    assert running["owner"] in {each["id"] for each in place.facts("stats")["workers"]}
    assert (cancelled.code, retried.code) == (0, 0)
    assert place.jobs("cancel", job_id).code == 0


def test_beside_a_running_service_a_pause_holds_and_a_resume_wakes(place: Place, service: Program) -> None:
    assert place.program("pause", "tidy").code == 0
    job_id = str(place.write(enqueue, "tidy"))

    waiting = place.facts("show", job_id)
    assert place.program("resume", "tidy").code == 0
    service.line_with("event=job.completed")

    assert (waiting["state"], waiting["waits_for"]) == ("pending", ["kind_paused"])


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_missing_database_is_not_made(folder: Path) -> None:
    ended = cormorant("jobs", "list", cwd=folder)

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cormorant: there is no database data/cormorant.db yet; `cormorant run` makes it")
    assert contents(folder) == ["config.toml"]


def test_an_empty_database_is_not_filled(folder: Path, postgres_url: str) -> None:
    ended = Place(folder, postgres_url).jobs("pause", "tidy")

    assert ended.code == 2
    assert "is empty; start `cormorant run` once: it makes the tables" in ended.err


def test_an_older_database_is_not_migrated(file_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    in_database(file_place.url, lambda _: None)
    before = (file_place.folder / "jobs.db").read_bytes()
    monkeypatch.setattr(preflight, "inspect", partial(inspect, migrations=NEXT))

    ended = file_place.jobs("stats")

    assert ended.code == 2
    has = f"has schema version {ADDED.VERSION - 1}, this Cormorant needs {ADDED.VERSION}"
    assert f"{has}; start `cormorant run` once" in ended.err
    assert (file_place.folder / "jobs.db").read_bytes() == before


@pytest.mark.parametrize(("needs", "code"), [(1, 0), (999, 2)])
def test_a_newer_database_is_used_only_if_it_allows_that(file_place: Place, needs: int, code: int) -> None:
    file_place.write(register)
    with closing(sqlite3.connect(file_place.folder / "jobs.db")) as connection, connection:
        connection.execute("INSERT INTO migrations VALUES (999, 'future', ?, 0)", [needs])

    ended = file_place.jobs("stats")

    assert ended.code == code, ended.err
    assert ("upgrade Cormorant" in ended.err) is (code == 2)


def test_a_database_that_cannot_be_reached_is_told_without_its_password(folder: Path) -> None:
    ended = Place(folder, "postgresql://me:hunter2@127.0.0.1:1/x").jobs("list", "--json")

    assert (ended.code, ended.out) == (2, "")
    assert "look at storage.url, and whether the database is running" in ended.err
    assert "hunter2" not in ended.err


def test_a_file_that_another_keeps_locked_is_told_and_nothing_is_changed(file_place: Place) -> None:
    file_place.write(one_of_each)

    with closing(sqlite3.connect(file_place.folder / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        looked, changed = file_place.jobs("show", "7"), file_place.jobs("cancel", "7")

    assert looked.code == 0
    assert (changed.code, changed.out) == (2, "")
    assert "nothing was changed" in changed.err
    assert file_place.facts("show", "7")["state"] == "pending"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lsit"], "there is no command 'lsit'; did you mean list?"),
        (["list", "--state", "dead"], "'dead' is not one of 'pending', 'running'"),
        (["list", "--limit", "0"], "0 is not in the range 1<=x<=1000"),
        (["list", "--limit", "1001"], "1001 is not in the range 1<=x<=1000"),
        (["list", "--before", "0"], "'0' is not the number of a job"),
        (["show", "x"], "'x' is not the number of a job"),
        (["show", str(2**63)], f"'{2**63}' is not the number of a job"),
        (["show", "1" * 5000], "is not the number of a job"),
        (["show"], "Missing argument 'ID'"),
        (["stuck", "--silent", "5"], '"5" is not a duration; write numbers with units'),
        (["cancel"], "Missing argument 'ID...'"),
        (["retry"], "give ids, or --failed for all dead letters"),
        (["retry", "1", "--failed"], "give ids, or --failed for all dead letters"),
        (["discard", "1", "--kind", "tidy"], "--kind goes with --failed"),
        (["list", "--config", "nowhere.toml"], "nowhere.toml: there is no such file"),
    ],
)
def test_bad_input_is_told_with_code_2(words: list[str], told: str) -> None:
    ended = CliRunner().invoke(main, ["jobs", *words])

    assert ended.exit_code == 2
    assert told in ended.output


def test_names_that_no_kind_can_have_are_refused(file_place: Place) -> None:
    file_place.write(register)

    ended = file_place.jobs("pause", "a\x1bb")

    assert ended.code == 2
    assert ended.err == "cormorant: 'a\\x1bb' cannot be the name of a kind\n"


def test_the_largest_id_and_the_largest_page_are_taken(file_place: Place) -> None:
    file_place.write(register)

    assert file_place.jobs("show", str(2**63 - 1)).code == 1
    assert file_place.jobs("list", "--limit", "1000").code == 0


def test_nothing_in_a_job_can_move_the_cursor(file_place: Place) -> None:
    def odd(connection: Connection) -> None:
        register(connection)
        failed(connection, "ti\x1b[2Jdy", error="bad\x1b]0;title\x07\nnews")
        connection.execute(text("UPDATE jobs SET payload = :payload"), {"payload": '"\\u001b[31m\\u009b\\ud800"'})

    file_place.write(odd)

    for words in (["list"], ["show", "1"], ["stats"], ["show", "1", "--json"]):
        ended = file_place.program(*words)
        assert ended.code == 0, ended.err
        assert all(character.isprintable() or character == "\n" for character in ended.out)


def test_long_work_shows_how_far_it_is_on_a_terminal(file_place: Place) -> None:
    def many(connection: Connection) -> None:
        for _ in range(2_500):
            enqueue(connection, "tidy")

    file_place.write(many)

    shown = on_a_terminal(file_place, "pause", "tidy")

    assert re.search(r"hold .*\b1000/2500\b", shown)
    assert "tidy is paused: 2,500 of its jobs are held" in shown


def test_who_has_enough_of_waiting_is_told_where_things_stand(file_place: Place) -> None:
    file_place.write(register)
    with closing(sqlite3.connect(file_place.folder / "jobs.db")) as connection, connection:
        rows = ((str(number),) for number in range(50_000))
        connection.executemany(
            "INSERT INTO jobs (uid, kind, state, priority, run_at, max_attempts, enqueued_at, payload) "
            "VALUES (?, 'tidy', 'pending', 5, 0, 10, 0, '{}')",
            rows,
        )

    shown = on_a_terminal(file_place, "pause", "tidy", enough=b" 1000/50000", code=1)
    held = file_place.facts("stats")["kinds"]["tidy"]["held"]
    again = file_place.facts("pause", "tidy")

    assert "interrupted; what is done stays done, the same command does the rest" in shown
    assert 0 < held < 50_000
    assert held + again["held"] == 50_000


def test_jobs_that_an_interrupted_resume_left_held_are_told(file_place: Place) -> None:
    file_place.write(one_of_each)
    file_place.write(pauses.resume, "mail")

    assert line_of(file_place.jobs("list").out, "6 ").endswith("held: mail was paused, resume it once more")
    assert "! mail is not paused and some of it is held: cormorant jobs resume mail" in file_place.jobs("stats").out
    assert file_place.facts("resume", "mail")["freed"] == 1


def test_a_line_fits_the_terminal(file_place: Place) -> None:
    def long(connection: Connection) -> None:
        register(connection)
        failed(connection, "tidy", error="x" * 500)

    file_place.write(long)

    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in on_a_terminal(file_place, "list").splitlines()]

    assert max(map(len, lines)) == 80
    assert lines[-1].endswith("xx…")


def on_a_terminal(place: Place, *words: str, enough: bytes | None = None, code: int = 0) -> str:
    """What a person sees of `cormorant jobs …`."""
    env = environment(CORMORANT_STORAGE__URL=place.url)
    return seen_of("jobs", *words, cwd=place.folder, env=env, enough=enough, code=code)


def test_ids_that_are_written_twice_count_once(file_place: Place) -> None:
    file_place.write(one_of_each)

    assert file_place.facts("cancel", "7", "7") == {"done": [7], "not_done": []}


def test_a_broken_handler_of_a_package_is_refused_before_anything_is_touched(folder: Path) -> None:
    install(folder / "site", "broken", "import no_such_module", handlers={"tidy": "broken:tidy"})
    path = f"{environment()['PYTHONPATH']}{os.pathsep}{folder / 'site'}"

    ended = cormorant("run", cwd=folder, PYTHONPATH=path)

    assert ended.code == 2
    assert ended.err.startswith("cormorant: handlers of installed packages cannot be used; nothing was started\n")
    assert "the handler tidy = 'broken:tidy' of broken 1.0 cannot be used: ModuleNotFoundError" in ended.err
    assert not (folder / "data").exists()


def test_a_look_changes_nothing(file_place: Place) -> None:
    file_place.write(one_of_each)
    before = file_place.write(reports.recent, limit=20)

    for words in (["list"], ["show", "1"], ["stats"], ["stuck", "--silent", "1s"]):
        assert file_place.jobs(*words).code == 0

    assert file_place.write(reports.recent, limit=20) == before

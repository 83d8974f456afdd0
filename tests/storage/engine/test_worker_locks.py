"""WorkerLocks with real files and real processes: the lock shows the death of a process, and nothing else does."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.engine.file_locks import NAME_LENGTH_MAX, WorkerLocks
from tests.bounds import WAIT_S

ODD_NAMES = ["host.12.0a1b", "a/../../b", "..", "", "ä ö\n", "a:b*c?", "-rf", "x" * 1_000, "\0"]
HOLD_UNTIL_KILLED = """
import sys, time
from pathlib import Path
from storage.engine.file_locks import WorkerLocks
locks = WorkerLocks(Path(sys.argv[1]))
for name in sys.argv[2:]:
    locks.hold(name)
print("held", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db-workers"


@contextmanager
def holding_process(folder: Path, *names: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the locks of these workers."""
    command = [sys.executable, "-c", HOLD_UNTIL_KILLED, str(folder), *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_worker_that_holds_its_lock_is_not_dead_for_itself_or_for_others(folder: Path) -> None:
    mine, others = WorkerLocks(folder), WorkerLocks(folder)

    mine.hold("me")
    mine.hold("me")

    assert (mine.dead_among(["me"]), others.dead_among(["me"])) == ([], [])


def test_a_worker_that_released_its_lock_is_dead_for_itself_and_for_others_at_once(folder: Path) -> None:
    mine, others = WorkerLocks(folder), WorkerLocks(folder)
    for name in ("me", "also me"):
        mine.hold(name)

    mine.release("me")

    for locks in (mine, others):
        assert locks.dead_among(["also me", "me", "stranger"]) == ["me"]


def test_a_look_of_others_at_a_lock_does_not_take_it(folder: Path) -> None:
    mine, others = WorkerLocks(folder), WorkerLocks(folder)
    mine.hold("me")
    mine.release("me")

    assert [others.dead_among(["me"]) for _ in range(3)] == [["me"]] * 3
    assert WorkerLocks(folder).dead_among(["me"]) == ["me"]


def test_of_a_worker_without_a_file_nothing_is_known(folder: Path) -> None:
    locks = WorkerLocks(folder)

    assert locks.dead_among(["stranger"]) == []
    locks.hold("me")
    assert locks.dead_among(["stranger"]) == []


def test_a_worker_that_was_forgotten_leaves_no_file_and_nothing_is_known_of_it(folder: Path) -> None:
    mine, others = WorkerLocks(folder), WorkerLocks(folder)
    for name in ("dead", "alive"):
        mine.hold(name)
    mine.release("dead")

    others.forget("dead")
    mine.forget("alive")
    others.forget("stranger")

    assert list(folder.iterdir()) == []
    assert others.dead_among(["dead", "alive"]) == []
    assert mine.dead_among(["alive"]) == []


def test_the_folder_and_the_files_belong_to_the_user_alone(folder: Path) -> None:
    WorkerLocks(folder).hold("me")

    [file] = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_without_a_folder_only_what_this_process_released_is_known() -> None:
    locks = WorkerLocks(None)
    for name in ("me", "gone"):
        locks.hold(name)

    locks.release("gone")

    assert locks.dead_among(["me", "gone", "stranger"]) == ["gone"]
    locks.forget("gone")
    assert locks.dead_among(["gone"]) == []


def test_a_killed_process_is_dead_at_once(folder: Path) -> None:
    locks = WorkerLocks(folder)
    with holding_process(folder, "one", "two") as process:
        assert locks.dead_among(["one", "two"]) == []

        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)

        assert locks.dead_among(["one", "stranger", "two"]) == ["one", "two"]


def test_a_frozen_process_keeps_its_lock_until_it_is_killed(folder: Path) -> None:
    locks = WorkerLocks(folder)
    with holding_process(folder, "frozen") as process:
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert locks.dead_among(["frozen"]) == []

        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)

        assert locks.dead_among(["frozen"]) == ["frozen"]


def test_a_program_that_the_worker_started_does_not_keep_its_lock(folder: Path) -> None:
    mine = WorkerLocks(folder)
    mine.hold("me")
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"

        mine.release("me")

        assert WorkerLocks(folder).dead_among(["me"]) == ["me"]
        child.kill()


def test_a_worker_whose_lock_another_process_holds_takes_nothing_from_it(folder: Path) -> None:
    with holding_process(folder, "same name"):
        mine = WorkerLocks(folder)

        mine.hold("same name")

        assert mine.dead_among(["same name"]) == []
        assert WorkerLocks(folder).dead_among(["same name"]) == []


def test_on_a_file_system_without_locks_nothing_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_number: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    mine, others = WorkerLocks(folder), WorkerLocks(folder)

    mine.hold("me")
    during = [locks.dead_among(["me"]) for locks in (mine, others)]
    mine.release("me")

    assert during == [[], []]
    assert others.dead_among(["me"]) == []
    assert list(folder.iterdir()) == []


def test_on_a_file_system_that_grants_every_lock_nothing_is_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda _number, _operation: None)
    mine, others = WorkerLocks(folder), WorkerLocks(folder)

    mine.hold("me")

    assert [locks.dead_among(["me"]) for locks in (mine, others)] == [[], []]
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_error_and_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    locks = WorkerLocks(tmp_path / "file" / "workers")

    locks.hold("me")

    assert locks.dead_among(["me", "stranger"]) == []
    locks.forget("me")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_worker_without_a_lock_leaves_no_open_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda _number, _operation: None)
    locks = WorkerLocks(folder)
    before = open_files()

    for number in range(20):
        locks.hold(f"w{number}")
        locks.dead_among([f"w{number}"])

    assert open_files() == before


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_name_with_odd_characters_has_a_file_in_the_folder(folder: Path, name: str) -> None:
    mine, others = WorkerLocks(folder), WorkerLocks(folder)

    mine.hold(name)
    files = [each for each in folder.parent.rglob("*") if each.is_file()]
    held = others.dead_among([name])
    mine.release(name)

    assert [each.parent for each in files] == [folder]
    assert len(files[0].name) <= NAME_LENGTH_MAX + len(".lock")
    assert (held, others.dead_among([name])) == ([], [name])
    others.forget(name)
    assert list(folder.iterdir()) == []


def test_long_names_that_differ_at_their_end_are_told_apart(folder: Path) -> None:
    """The end of a name is the random part."""
    mine = WorkerLocks(folder)
    first, second = f"{'x' * 1_000}.0a", f"{'x' * 1_000}.0b"
    for name in (first, second):
        mine.hold(name)

    mine.release(first)

    assert WorkerLocks(folder).dead_among([first, second]) == [first]


def test_names_that_share_a_file_make_no_living_worker_dead(folder: Path) -> None:
    mine, yours, others = WorkerLocks(folder), WorkerLocks(folder), WorkerLocks(folder)
    mine.hold("a/b")
    yours.hold("a:b")

    assert others.dead_among(["a/b", "a:b"]) == []
    mine.release("a/b")
    assert "a:b" not in others.dead_among(["a/b", "a:b"])


def test_old_files_of_workers_that_are_not_known_are_removed(tmp_path: Path) -> None:
    locks, others = WorkerLocks(tmp_path / "locks"), WorkerLocks(tmp_path / "locks")
    for worker in ("left behind", "known", "young"):
        locks.hold(worker)
        locks.release(worker)
    others.hold("held")
    for path in (tmp_path / "locks").iterdir():
        if "young" not in path.name:
            os.utime(path, (0, 0))

    locks.remove_old(["known"])

    assert sorted(path.stem for path in (tmp_path / "locks").iterdir()) == ["held", "known", "young"]


def test_a_folder_that_is_a_link_elsewhere_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "locks").symlink_to(tmp_path / "elsewhere")

    WorkerLocks(tmp_path / "locks").hold("worker")

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_is_a_link_elsewhere_says_nothing(tmp_path: Path) -> None:
    locks = WorkerLocks(tmp_path / "locks")
    (tmp_path / "locks").mkdir()
    (tmp_path / "free").touch()
    (tmp_path / "locks" / "worker.lock").symlink_to(tmp_path / "free")

    assert locks.dead_among(["worker"]) == []

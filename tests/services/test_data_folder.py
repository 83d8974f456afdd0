"""A SQLite database is removed with all that belongs to it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

from cormorant.services.data_folder import remove_database


def test_a_database_is_removed_with_its_log_and_not_the_locks_that_another_process_may_hold(tmp_path: Path) -> None:
    for name in ("own.db", "own.db-wal", "own.db-shm", "own.db-journal", "own.db.lock", "other.db", "other.db-wal"):
        (tmp_path / name).touch()

    remove_database(tmp_path / "own.db")
    remove_database(tmp_path / "own.db")  # what is gone is no error

    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.db", "other.db-wal", "own.db.lock"]

"""Two processes at the same moment, in both databases: one waits for the other where it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from tests.storage.job_store import JobStore
from tests.storage.test_two_at_once import after

T = TypeVar("T")


def at_once(store: JobStore, first: Callable[[Connection], T], second: Callable[[Connection], T]) -> tuple[T, T]:
    """What both get: in PostgreSQL the second begins before the first commits; SQLite has one writer at a time."""
    got: list[T] = []
    if store.engine.dialect.name == "postgresql":
        second_got = after(store, lambda connection: got.append(first(connection)), second)
        return got[0], second_got
    with store.begin() as connection:
        got.append(first(connection))
    with store.begin() as connection:
        return got[0], second(connection)

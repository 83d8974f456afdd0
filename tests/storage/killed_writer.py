"""Writes notes through the real gateway until it is killed, and says which were acknowledged. Run by `test_kills.py`.

For each line on standard input a child is forked, because loading everything anew takes longer than the rest together.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

import trio

import storage.engine.postgres
import storage.engine.sqlite  # noqa: F401 - as the line above: loaded before the first fork, not after each
from cormorant.rules.errors import CommitUnknown
from storage.database import Database
from tests.bounds import WAIT_S
from tests.storage.support import add_note, count_notes, gateway, serving

WRITERS = 8


def say(words: str) -> None:
    """One line, at once and whole, also when several processes speak."""
    os.write(1, f"{words}\n".encode())


async def write_for_ever(database: Database, numbers: Iterator[int]) -> None:
    for number in numbers:
        try:
            await database.run(add_note, number)
        except CommitUnknown:
            continue
        say(f"ack {number}")


async def write_until_killed(url: str, first: int) -> None:
    async with serving(gateway(url, hold_s=WAIT_S), with_notes=False) as database, trio.open_nursery() as nursery:
        assert await database.read(count_notes) >= 0
        numbers = itertools.count(first)
        for _ in range(WRITERS):
            nursery.start_soon(write_for_ever, database, numbers)


def main(url: str) -> None:
    for round_, _ in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            trio.run(write_until_killed, url, (round_ + 1) * 1_000_000)
        say(f"pid {child}")
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main(sys.argv[1])

"""Traces one Torznab search through a whole service: the product files that it executes, and who calls whom.

python -m tests.one_search     prints the files by layer, as docs/architecture.md lists them
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import httpx2
import trio
from attrs import define, field, frozen

from actors import SystemClock
from cormorant.playground import Habits, Indexer, PlayedCatalogue, open_playground
from cormorant.rules.events import WebListening
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.settings import WebSettings
from cormorant.testing import Recorder, in_line, memory_gateway, settings
from supervisors import open_service
from tests.bounds import WAIT_S
from tests.environments import environment_of
from tests.map_check import RANK, room_of

ROOT: Final = Path(__file__).parent.parent
PRODUCT: Final = ("actors/", "cormorant/", "storage/", "supervisors/")
AROUND: Final = ("cormorant/playground/", "cormorant/testing.py")
"""The indexer and the recorder of this test; without threads, because those that run already cannot be traced."""
KEY: Final = "key-of-an-app-in-a-test"
SETTLED_S: Final = 5.0
"""What a start does is done by then."""


@frozen(order=True)
class UpwardCall:
    """A call from a lower layer into a higher one."""

    caller: str
    called: str


@define
class Trace:
    """What was executed."""

    files: set[str] = field(factory=set)
    upward: set[UpwardCall] = field(factory=set)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """See one call. A coroutine that goes on is no call: its frame is past its first line."""
        file = product_file(frame)
        if event != "call" or file is None or frame.f_lineno != frame.f_code.co_firstlineno:
            return
        self.files.add(file)
        caller = nearest_product_frame(frame.f_back)
        if caller is not None and _rank(file) < _rank(caller[0]):
            self.upward.add(UpwardCall(_place(*caller), _place(file, frame)))


def product_file(frame: FrameType) -> str | None:
    """The product file of a frame, relative to the project; None: it is something else."""
    path = frame.f_code.co_filename
    file = path.removeprefix(f"{ROOT}/")
    return file if file != path and file.startswith(PRODUCT) and not file.startswith(AROUND) else None


def nearest_product_frame(frame: FrameType | None) -> tuple[str, FrameType] | None:
    """The first product frame among the callers, past what lies between; None: trio or a test has called."""
    while frame is not None:
        file = product_file(frame)
        if file is not None:
            return file, frame
        frame = frame.f_back
    return None


def _rank(file: str) -> int:
    return RANK[room_of(file.removesuffix(".py").replace("/", ".")) or "supervisors"]


def _place(file: str, frame: FrameType) -> str:
    return f"{file} {frame.f_code.co_qualname}"


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace this thread."""
    trace = Trace()
    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)


async def one_search() -> Trace:
    """Search once through the gate, from a new connection to the last byte of the answer."""
    clock, events = SystemClock(), Recorder()
    site = Indexer(name="attic", habits=Habits(key="k"), catalogue=PlayedCatalogue(clock.now()), clock=clock)
    with memory_gateway() as gateway, tempfile.TemporaryDirectory() as folder:
        async with open_playground(site) as playground:
            source = SourceSettings(url=playground.url_of("attic", "/api"), key=Secret("k"), spacing_s=0.0, pace_s=0.0)
            chosen = settings(
                data=folder,
                sources={"attic": source},
                clients={"sonarr": ClientSettings(key=Secret(KEY))},
                web=WebSettings(listen="127.0.0.1:0", key=Secret("key-of-the-page-in-a-test")),
            )
            async with open_service(
                chosen, environment=environment_of(database=gateway, offload=in_line, listeners=[events])
            ):
                url = f"{events.of(WebListening)[-1].address.rstrip('/')}/gate/attic/api"
                await _ask(url, t="caps")  # the caps of a source are asked for once
                await trio.sleep(SETTLED_S)
                with traced() as trace:
                    answer = await _ask(url, t="search", q="cold ferry")
    assert "<item>" in answer.text
    return trace


async def _ask(url: str, **words: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=WAIT_S) as client:
        answer = await client.get(url, params={"apikey": KEY, **words})
    return answer.raise_for_status()


def files_by_layer(files: set[str]) -> str:
    """One Markdown line per folder, from the accepted socket down to the rules."""
    folders: dict[str, list[str]] = {}
    for file in sorted(files):
        folder, _, name = file.rpartition("/")
        folders.setdefault(folder, []).append(name)
    ordered = sorted(folders, key=lambda folder: (_rank(f"{folder}/x.py"), folder))
    return "\n".join(f"- `{folder}/`: {', '.join(folders[folder])}" for folder in ordered)


if __name__ == "__main__":
    found = trio.run(one_search)
    sys.stdout.write(f"{files_by_layer(found.files)}\n\n{len(found.files)} files\n")
    for each in sorted(found.upward):
        sys.stdout.write(f"{each.caller} -> {each.called}\n")

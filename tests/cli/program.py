"""The real program in a process of its own: started, read line by line, signalled, waited for; every wait is bounded."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import frozen

from tests.bounds import WAIT_S

ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """The environment without settings of whoever runs the tests, without a server, and with buffers as users have them."""
    left_out = ("CORMORANT_", "PYTHONUNBUFFERED", "WORKER_ID")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | {"PYTHONPATH": str(ROOT), "CORMORANT_WEB__ENABLED": "false"} | more


@frozen
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


def cormorant(*words: str, cwd: Path, **more: str) -> Ended:
    """Run `cormorant …` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "cormorant", *words],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class Program:
    """A program that goes on until it is told to stop.

    `out` and `err` say where its streams go, `redirect` says it to a shell: `2>&-`. What it announces comes by a pipe of
    its own, which is never stuck.
    """

    def __init__(
        self,
        *command: str,
        cwd: Path,
        reads_log: bool = True,
        out: int = subprocess.PIPE,
        err: int = subprocess.PIPE,
        redirect: str = "",
        **more: str,
    ) -> None:
        heard, herald = os.pipe()
        self._process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, *command],
            cwd=cwd,
            env=environment(HERALD=str(herald), **more),
            stdout=out,
            stderr=err,
            pass_fds=[herald],
            text=True,
        )
        os.close(herald)
        self._heard = os.fdopen(heard)
        self._lines: dict[str, list[str]] = {"out": [], "err": [], "heard": []}
        self._news: queue.Queue[str] = queue.Queue()
        read = [("out", self._process.stdout), ("heard", self._heard)]
        streams = [*read, ("err", self._process.stderr)] if reads_log else read
        self._readers = [threading.Thread(target=self._read, args=stream, daemon=True) for stream in streams]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: object) -> None:
        for line in stream or ():  # type: ignore[attr-defined]  # a text stream, or none of ours
            self._lines[name].append(line)
            self._news.put(line)

    def line_with(self, text: str) -> str:
        """The next line, of either stream, that holds the text."""
        while text not in (line := self._news.get(timeout=WAIT_S)):
            pass
        return line

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> Ended:
        """Wait for its end."""
        code = self._process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return Ended(code, "".join(self._lines["out"]), "".join(self._lines["err"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self.end()
        for stream in (self._process.stdout, self._process.stderr, self._heard):
            if stream:
                stream.close()

"""What a person sees of the program on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.bounds import WAIT_S


def seen_of(*words: str, cwd: Path, env: Mapping[str, str], enough: bytes | None = None, code: int = 0) -> str:
    """What `cormorant …` shows; who looks on presses Ctrl-C having seen the pattern `enough`. It must end with this code."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "cormorant", *words],
        cwd=cwd,
        env={**env, "COLUMNS": "80"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
            if enough is not None and re.search(enough, shown):
                process.send_signal(signal.SIGINT)
                enough = None
        assert process.wait(WAIT_S) == code, shown
    os.close(ours)
    return shown.decode()


def _read(terminal: int) -> bytes:
    readable, _, _ = select.select([terminal], [], [], WAIT_S)
    try:
        return os.read(terminal, 65536) if readable else b""
    except OSError:  # the other side has gone
        return b""

"""Where does the time of a run go? cProfile for the loop and for the threads that talk to the database."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

TOP = 40
# Where a file is installed is of no interest, and makes lines too long to read.
FOLDERS = re.compile(rf"/\S*/(site-packages|lib/python3\.\d+)/|{re.escape(str(Path(__file__).parents[2]))}/")


def profiled(work: Callable[[], object]) -> str:
    """Run something under the profiler. Returns tables of who spent the time, for the loop and for other threads."""
    others: list[cProfile.Profile] = []

    def begin_thread(frame: FrameType, what: str, argument: Any) -> None:
        others.append(cProfile.Profile())
        others[-1].enable()  # takes the place of this function in this thread

    # Since Python 3.12 one profiler sees all threads, and a second one is refused.
    sees_all = sys.version_info >= (3, 12)
    if not sees_all:
        threading.setprofile(begin_thread)
    loop = cProfile.Profile()
    loop.runcall(work)
    threading.setprofile(None)
    said = [f"== {'all threads' if sees_all else 'the loop'}", _table([loop])]
    if others:
        said += ["== the gateway's threads", _table(others)]
    return "\n".join(said)


def _table(profiles: list[cProfile.Profile]) -> str:
    out = io.StringIO()
    stats = pstats.Stats(*profiles, stream=out)
    for order in ("tottime", "cumtime"):
        stats.sort_stats(order).print_stats(TOP)
    return FOLDERS.sub("", out.getvalue())

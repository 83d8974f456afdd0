"""Start and stop of `cormorant run` in an empty folder: seconds until it is ready, and from SIGTERM until it is gone.

Also the time to open the sites of the playground.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

# Run as a file, Python would look here first and take `bench/storage.py` for the package `storage`.
ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)

from actors import SystemClock  # noqa: E402 - see above
from bench._report import Goal, Row, finish, read_options  # noqa: E402 - see above
from cormorant.playground import open_playground  # noqa: E402 - see above
from cormorant.playground.world import playground_sites  # noqa: E402 - see above

READY_S_MAX = 5.0
GONE_S_MAX = 3.0
PLAYGROUND_MS_MAX = 300.0


def seconds_to_start_and_to_stop() -> tuple[float, float]:
    """One run with default settings and without a server."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "CORMORANT_WEB__ENABLED": "false"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").touch()
        began_at = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "cormorant", "run"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as program:
            assert program.stdout is not None
            if " ready in " not in program.stdout.readline():
                raise RuntimeError("`cormorant run` did not start")
            ready_at = time.perf_counter()
            program.send_signal(signal.SIGTERM)
            if program.wait() != 0:
                raise RuntimeError(f"`cormorant run` ended with {program.returncode}")
            return ready_at - began_at, time.perf_counter() - ready_at


async def milliseconds_to_open_the_playground() -> float:
    """Open the sites and close them."""
    began_at = time.perf_counter()
    async with open_playground(*playground_sites(SystemClock())):
        return (time.perf_counter() - began_at) * 1000


def main() -> int:
    """Measure several runs and judge their medians."""
    options = read_options(__doc__)
    runs = [seconds_to_start_and_to_stop() for _ in range(3 if options.quick else 10)]
    ready, gone = (
        Row(name, "s", samples) for name, samples in zip(("ready", "gone"), zip(*runs, strict=True), strict=True)
    )
    goals = [
        Goal("program.ready_s", ready.median, "<=", READY_S_MAX),
        Goal("program.gone_s", gone.median, "<=", GONE_S_MAX),
    ]
    opened = Row("playground opened", "ms", [trio.run(milliseconds_to_open_the_playground) for _ in runs])
    goals.append(Goal("playground.open_ms", opened.median, "<=", PLAYGROUND_MS_MAX))
    return finish(options, [ready, gone, opened], goals)


if __name__ == "__main__":
    sys.exit(main())

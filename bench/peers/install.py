"""Where do the peers come from? From their registries, into `bench/.peers/`, once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

HERE: Final = Path(__file__).parent
HOME: Final = HERE.parent / ".peers"
PYTHON: Final = HOME / "python"
NODE: Final = HOME / "node"
INSTALL_S = 300
SAID_MAX = 200

PYTHON_PEERS: Final[Mapping[str, Sequence[str]]] = {
    "apscheduler": ["apscheduler==3.11.3", "sqlalchemy==2.0.44"],
    "feedparser": ["feedparser==6.0.14"],
    "huey": ["huey==3.5.4"],
    "pgqueuer": ["pgqueuer==1.6.0", "asyncpg==0.32.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0"],
}
# Each is the newest that Node can run from this version on.
GRAPHILE_WORKER: Final[Mapping[tuple[int, int], str]] = {(22, 18): "0.18.0", (14, 0): "0.17.3"}


class PeerMissing(Exception):
    """A peer could not be had, and why."""


@frozen
class Program:
    """How a peer's script is started: the words before its own, and what the environment needs besides."""

    words: Sequence[str]
    environment: Mapping[str, str] = {}


def have(peer: str) -> Program:
    """Install a peer unless it is there, and say how to start its script. Raises `PeerMissing`."""
    return _have_graphile_worker() if peer == "graphile_worker" else _have_python(peer)


def _have_python(peer: str) -> Program:
    python = PYTHON / "bin" / "python"
    wanted = PYTHON_PEERS[peer]
    stamp = PYTHON / f".{peer}"
    if not _is_there(stamp, wanted):
        if not python.exists():
            _run([sys.executable, "-m", "venv", str(PYTHON)])
        _run([*_installer(python), *wanted])
        stamp.write_text("\n".join(wanted))
    return Program([str(python), str(HERE / f"run_{peer}.py")])


def _installer(python: Path) -> list[str]:
    """The project's uv if it is there: it needs a second where pip needs ten."""
    uv = Path(sys.executable).parent / "uv"
    if uv.exists():
        return [str(uv), "pip", "install", "--quiet", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _have_graphile_worker() -> Program:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise PeerMissing("Node and npm are not installed")
    wanted = [f"graphile-worker@{graphile_worker_for(_node_version(node))}"]
    stamp = NODE / ".graphile_worker"
    if not _is_there(stamp, wanted):
        NODE.mkdir(parents=True, exist_ok=True)
        _run([npm, "install", "--prefix", str(NODE), "--no-audit", "--no-fund", "--loglevel=error", *wanted])
        stamp.write_text("\n".join(wanted))
    return Program([node, str(HERE / "run_graphile_worker.cjs")], {"NODE_PATH": str(NODE / "node_modules")})


def graphile_worker_for(node: tuple[int, int]) -> str:
    """The newest graphile-worker for a version of Node."""
    for oldest, version in GRAPHILE_WORKER.items():
        if node >= oldest:
            return version
    raise PeerMissing(f"Node {node[0]}.{node[1]} is too old for it")


def _node_version(node: str) -> tuple[int, int]:
    found = re.match(r"v(\d+)\.(\d+)", _run([node, "--version"]))
    if found is None:
        raise PeerMissing("Node does not tell its version")
    return int(found[1]), int(found[2])


def _is_there(stamp: Path, wanted: Sequence[str]) -> bool:
    return stamp.exists() and stamp.read_text() == "\n".join(wanted)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=INSTALL_S, env=os.environ | {"CI": "1"}
        )
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr or error.stdout).split())
        raise PeerMissing(f"{Path(command[0]).name} failed: {said[:SAID_MAX]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(f"{Path(command[0]).name}: {error}") from error
    return done.stdout

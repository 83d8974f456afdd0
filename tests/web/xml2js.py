"""XML documents as xml2js parses them, the npm package that cross-seed reads Torznab with.

npm installs it once, at the versions in node/package-lock.json, into a folder that git ignores. After that no network is needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bounds import WAIT_S

__all__ = ["Parse", "parser"]

Parse = Callable[[Mapping[str, bytes]], dict[str, Any]]

_HERE: Final = Path(__file__).parent / "node"
_FOLDER: Final = Path(__file__).parents[2] / ".venv-node"
_INSTALL: Final = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]


def parser() -> Parse:
    """Parses documents by name. Call it in a fixture: it skips where there is no node, or npm cannot install."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("No node: the gate's documents were not parsed with xml2js, which cross-seed uses")
    _install()
    return partial(_parsed, node)


def _parsed(node: str, documents: Mapping[str, bytes]) -> dict[str, Any]:
    texts = {name: document.decode() for name, document in documents.items()}
    environ = os.environ | {"NODE_PATH": str(_FOLDER / "node_modules")}
    done = subprocess.run(
        [node, str(_HERE / "parse.cjs")],
        input=json.dumps(texts),
        env=environ,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _install() -> None:
    wanted, stamp = (_HERE / "package-lock.json").read_text(), _FOLDER / "installed"
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if stamp.exists() and stamp.read_text() == wanted:
            return
        problem = _problem_of_install()
        if problem:
            pytest.skip(f"npm could not install xml2js: the gate's documents were not parsed with it: {problem[:500]}")
        stamp.write_text(wanted)


def _problem_of_install() -> str:
    """Why npm failed; empty when it did not."""
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(_HERE / name, _FOLDER / name)
    try:
        done = subprocess.run(_INSTALL, cwd=_FOLDER, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")

"""Records what users and embedding programs can see, and compares it with an older version.

    python -m tests.baseline record FOLDER [--figures]
    python -m tests.baseline compare OLD_FOLDER NEW_FOLDER
    python -m tests.baseline against COMMIT

`against` records both versions: the older one in a Git worktree of its own, with its own copy of this package.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.baseline.compare import differences, read_renames

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Carry out one command. The exit code is 1 if the versions differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="record this version")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--figures", action="store_true", help="also run the benchmarks, which takes minutes")
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    commands.add_parser("against", help="record and compare with an older commit").add_argument("commit")
    given = parser.parse_args()
    if given.command == "record":
        from tests.baseline.record import record  # noqa: PLC0415 - comparing needs none of the product

        record(given.folder, figures=given.figures)
        return 0
    return compare(given.old, given.new) if given.command == "compare" else against(given.commit)


def compare(old: Path, new: Path) -> int:
    """Print every difference."""
    found = list(differences(old, new, read_renames()))
    for line in found:
        print(line)
    print(f"{len(found)} differences" if found else "equal")
    return 1 if found else 0


def against(commit: str) -> int:
    """Record `commit` and this version, and compare them."""
    with tempfile.TemporaryDirectory(prefix="cormorant-baseline-") as folder:
        tree, old, new = (Path(folder) / name for name in ("tree", "old", "new"))
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True)
        try:
            for place, result in ((tree, old), (ROOT, new)):
                subprocess.run([sys.executable, "-m", "tests.baseline", "record", result], cwd=place, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        return compare(old, new)


if __name__ == "__main__":
    sys.exit(main())

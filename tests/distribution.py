"""An installed package as Python sees it: a module, and a folder that says which entry points it has. Nothing is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install(site: Path, name: str, source: str, *, handlers: Mapping[str, str], version: str = "1.0") -> None:
    """Put a package into a folder that is, or will be, on the path. Its module has the package's name."""
    site.mkdir(exist_ok=True)
    (site / f"{name}.py").write_text(source)
    about = site / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = "".join(f"{kind} = {value}\n" for kind, value in handlers.items())
    (about / "entry_points.txt").write_text(f"[cormorant.handlers]\n{points}")

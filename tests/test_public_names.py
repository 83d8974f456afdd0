"""Embedding programs find every public name, and the pages and examples use no others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PUBLIC = {
    "actors": {"Actor", "Address", "Handler", "JobContext", "Reply", "SystemClock"},
    "cormorant.playground": {"open_playground"},
    "cormorant.rules": {"Priority", "Snooze", "Retry", "Fail", "Cancel"},
    "cormorant.services": {"payload_for"},
    "cormorant.settings": {"Settings", "WebSettings", "load_settings"},
    "cormorant.testing": {"memory_gateway", "settings", "simulated"},
    "storage": {"Database", "NewJob", "from_micros", "read_answers", "to_micros"},
    "storage.jobs": {"enqueue"},
    "supervisors": {"ChildSpec", "Supervisor", "open_service"},
}
"""Modules that programs import, with names that each must export."""
OURS = {name.partition(".")[0] for name in PUBLIC}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_exported_and_can_be_loaded(module: str) -> None:
    loaded = import_module(module)

    assert set(loaded.__all__) >= PUBLIC[module]
    assert [name for name in loaded.__all__ if getattr(loaded, name, None) is None] == []


@pytest.mark.parametrize("module", ["actors", "storage", "supervisors", "cormorant.services"])
def test_a_name_that_is_not_exported_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'helpers'"):
        _ = import_module(module).helpers


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of everything of ours that is imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def deep_imports(source: str) -> list[str]:
    """Imports of ours that are not public."""
    found = [(module, name) for module, name in imports_of(source) if module.partition(".")[0] in OURS]
    return [
        f"{module} {name}".strip()
        for module, name in found
        if f"{module}.{name}" not in PUBLIC and not (module in PUBLIC and name in import_module(module).__all__)
    ]


def test_a_deep_import_is_found() -> None:
    deep = "from actors.jobs.handler import JobContext\nfrom cormorant.rules.search.reasons import explain\nimport storage.gate"
    right = "from actors import Actor\nfrom storage import jobs\nimport trio"

    assert deep_imports(deep) == [
        "actors.jobs.handler JobContext",
        "cormorant.rules.search.reasons explain",
        "storage.gate",
    ]
    assert deep_imports(right) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_import_public_names_only(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    dotted = re.findall(r"`((?:actors|cormorant\.[a-z]+|storage|supervisors)(?:\.[A-Za-z_]+)+)\(", text)

    # An `await` or `async with` outside of a function is no mistake on a page.
    wrapped = ["async def example():\n" + re.sub(r"(?m)^", "    ", block) for block in blocks]
    assert [each for block in wrapped for each in deep_imports(block)] == []
    assert [name for name in dotted if name.rpartition(".")[0] not in PUBLIC] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_examples_import_public_names_only(program: Path) -> None:
    assert deep_imports(program.read_text()) == []


@pytest.mark.slow("starts an interpreter")
@pytest.mark.parametrize("module", ["supervisors", "actors"])
def test_the_supervisor_kit_loads_no_database(module: str) -> None:
    asked = f"import sys, {module}; print(sorted({{'sqlalchemy', 'storage.database'}} & sys.modules.keys()))"

    answer = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)

    assert answer.stdout == "[]\n"

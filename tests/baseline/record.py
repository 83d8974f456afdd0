"""Records what users and embedding programs can see of this version, one text file per subject."""

from __future__ import annotations

import inspect
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import httpx2
import trio
from sqlalchemy import create_engine, text

from cormorant.cli import main as command
from cormorant.reference import events_reference, metrics_reference, settings_reference
from cormorant.rules.events import WebListening
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import StorageSettings
from cormorant.settings import WebSettings
from cormorant.testing import Recorder, settings
from supervisors import open_service
from tests.baseline.scenarios import SCENARIOS, trace
from tests.bounds import WAIT_S
from tests.environments import environment_of
from tests.postgres import open_server

ROOT: Final = Path(__file__).parents[2]
PUBLIC: Final = (
    "actors",
    "supervisors",
    "storage",
    "storage.jobs",
    "cormorant.rules",
    "cormorant.services",
    "cormorant.settings",
    "cormorant.testing",
    "cormorant.playground",
)
HELP_WIDTH: Final = 100


def record(folder: Path, *, figures: bool) -> None:
    """Write every subject into `folder`. Benchmark figures take minutes and are recorded on request."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, subject in SUBJECTS.items():
        _write(folder / name, subject())
    for name, scenario in SCENARIOS.items():
        _write(folder / f"trace_{name}.txt", trace(scenario))
    if figures:
        _write(folder / "figures.txt", benchmark_figures())


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    print(f"{path.name}: {len(content.splitlines())} lines", flush=True)


def collected_tests() -> str:
    """The id of every test and doctest, soak tests included."""
    paths = ("tests", "tests/chaos", "cormorant/clients", "cormorant/rules")
    words = ("-m", "pytest", "--collect-only", "-q", "-n", "0", *paths)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return _lines(sorted(line for line in done.stdout.splitlines() if "::" in line))


def public_names() -> str:
    """Every public name with its parameters or its public attributes."""
    return _lines(line for name in PUBLIC for line in _exports(name))


def _exports(module_name: str) -> Iterator[str]:
    module = import_module(module_name)
    for name in sorted(getattr(module, "__all__", ())):
        yield f"{module_name}.{name}{_shape(getattr(module, name))}"


def _shape(thing: Any) -> str:
    if inspect.isclass(thing):
        members = [f"{name}{_parameters(member)}" for name, member in vars(thing).items() if not name.startswith("_")]
        return f"{_parameters(thing)}: {', '.join(sorted(members))}"
    return _parameters(thing)


def _parameters(thing: Any) -> str:
    try:
        return f"({', '.join(inspect.signature(thing).parameters)})" if callable(thing) else ""
    except ValueError:  # a class without a signature of its own, such as an enum
        return "()"


def help_texts() -> str:
    """The help of every command."""
    return "\n".join(_help_of(command, None, "cormorant"))


def _help_of(each: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(
        each, info_name=name, parent=parent, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH
    )
    yield f"$ {context.command_path} --help\n{each.get_help(context)}\n"
    if isinstance(each, click.Group):
        for inner in each.list_commands(context):
            found = each.get_command(context, inner)
            assert found is not None
            yield from _help_of(found, context, inner)


def openapi_document() -> str:
    """The OpenAPI document, as a running service gives it."""
    return trio.run(_openapi)


async def _openapi() -> str:
    events, key = Recorder(), "key-of-the-baseline"
    with tempfile.TemporaryDirectory() as folder:
        web = WebSettings(listen="127.0.0.1:0", key=Secret(key))
        async with open_service(settings(data=folder, web=web), environment=environment_of(listeners=[events])):
            address = events.of(WebListening)[-1].address.rstrip("/")
            async with httpx2.AsyncClient(headers={"X-Api-Key": key}, timeout=WAIT_S) as client:
                answer = await client.get(f"{address}/api/v1/openapi.json")
    return json.dumps(answer.raise_for_status().json(), indent=1, sort_keys=True) + "\n"


async def _create_schema(folder: str, url: str = "") -> None:
    async with open_service(settings(data=folder, storage=StorageSettings(url=Secret(url)))):
        pass


def sqlite_schema() -> str:
    """Every table and index of a new SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_create_schema, folder)
        [file] = Path(folder).glob("*.db")
        connection = sqlite3.connect(file)
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
        connection.close()
    return _lines(f"{kind} {name}\n{sql}" for kind, name, sql in rows)


def postgres_schema() -> str:
    """Every column, index and constraint of a new PostgreSQL database."""
    with open_server() as server, tempfile.TemporaryDirectory() as folder:
        url = server.create_database()
        trio.run(_create_schema, folder, url)
        engine = create_engine(url)
        with engine.connect() as connection:
            rows = [row for query in _POSTGRES_QUERIES for row in connection.execute(text(query))]
        engine.dispose()
        server.drop_database(url)
    return _lines(" ".join(str(value) for value in row) for row in rows)


_POSTGRES_QUERIES: Final = (
    """SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity
       FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position""",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexdef",
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
       WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
)


def benchmark_figures() -> str:
    """The median of every row of every benchmark, from short runs."""
    return _lines(line for path in sorted((ROOT / "bench").glob("[a-z]*.py")) for line in _figures_of(path))


def _figures_of(path: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        words = [sys.executable, str(path), "--quick", "--json", str(file)]
        subprocess.run(
            words, cwd=ROOT, stdout=subprocess.DEVNULL, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for row in rows:
        yield f"{path.stem}: {row['name'].strip()}: {row['median']:.4g} {row['unit']}"


def _lines(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)


SUBJECTS: Final[dict[str, Callable[[], str]]] = {
    "tests.txt": collected_tests,
    "public_names.txt": public_names,
    "settings.md": settings_reference,
    "events.md": events_reference,
    "metrics.md": metrics_reference,
    "help.txt": help_texts,
    "openapi.json": openapi_document,
    "schema_sqlite.txt": sqlite_schema,
    "schema_postgres.txt": postgres_schema,
}

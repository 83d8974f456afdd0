"""What in a source file breaks the map or the house rules? Looks at the text only; nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

from attrs import frozen

# Imports go down this list, never up and never sideways.
LAYERS: Final = (
    (
        "cormorant.__main__",
        "cormorant.cli",
        "cormorant.playground",
        "cormorant.reference",
        "cormorant.scripted",
        "cormorant.scripted",
        "cormorant.settings",
        "cormorant.log",
        "cormorant.testing",
    ),
    ("supervisors",),
    ("cormorant.web",),
    ("cormorant.services",),
    ("actors",),
    ("storage", "cormorant.clients"),
    ("cormorant.rules",),
)
TOP: Final = 0
RANK: Final = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

# A rule gets time and chance as arguments and touches nothing outside.
IMPURE: Final = frozenset(
    {
        "asyncio",
        "httpx2",
        "io",
        "logging",
        "os",
        "pathlib",
        "psycopg",
        "random",
        "secrets",
        "shutil",
        "socket",
        "sqlalchemy",
        "sqlite3",
        "structlog",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "trio",
        "urllib.request",
        "uuid",
    }
)
CLOCK_CALLS: Final = frozenset({"now", "utcnow", "today"})

FILE_LINES_REVIEWED: Final = 600
"""A longer file is named at the end of a test run. It is no failure: one concept may need it."""
FUNCTION_LINES_MAX: Final = 70

# "noqa: S311 - why" or "type: ignore[arg-type]  # why"; the reason has two words or more.
SILENCED: Final = re.compile(r"#\s*(noqa|type:\s*ignore|mypy:|ruff:|pragma:)")
SILENCED_WITH_REASON: Final = re.compile(r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|type: ignore\[[a-z, -]+\]) +[-#] \S+ \S")


@frozen
class Module:
    """A source file: its dotted name, whether it is a package's own file, and its text."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.text)

    @property
    def room(self) -> str | None:
        """The part of the map it belongs to. None: outside the map, or the package `cormorant` itself."""
        return room_of(self.name)


def room_of(name: str) -> str | None:
    """Which room a dotted name is in.

    >>> room_of("cormorant.web.pages"), room_of("storage.jobs.jobs"), room_of("trio.testing")
    ('cormorant.web', 'storage', None)
    """
    return next((room for room in RANK if name == room or name.startswith(f"{room}.")), None)


def imported_names(module: Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, also inside functions and for type checkers only.

    `from a import b` gives `a.b`, because `b` may be a module.
    """
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            if node.level:
                origin = importlib.util.resolve_name(origin, package)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module":
            yield from ((node.lineno, text) for text in map(_text_of, node.args) if text)


def homeless_modules(module: Module) -> Iterator[str]:
    """Modules that the map does not show, so that nothing would be said about their imports."""
    if module.room is None and module.name != "cormorant":
        yield f"{module.name} is in no room of the map: give it one in LAYERS"


def wrong_imports(module: Module) -> Iterator[str]:
    """Imports that go up, sideways, or out of the product."""
    for line, name in imported_names(module):
        if name.split(".")[0] in {"tests", "bench", "examples"}:
            yield f"{module.name}:{line} the product imports {name}"
        room = room_of(name)
        if room is None or module.room is None or room == module.room:
            continue
        is_downward = RANK[room] > RANK[module.room]
        are_both_on_top = RANK[room] == RANK[module.room] == TOP
        if not is_downward and not are_both_on_top:
            yield f"{module.name}:{line} {module.room} must not know {room} ({name})"


def impurities(module: Module) -> Iterator[str]:
    """Where a rule reaches for time, chance, files or the network."""
    if module.room != "cormorant.rules":
        return
    for line, name in imported_names(module):
        if any(name == impure or name.startswith(f"{impure}.") for impure in IMPURE):
            yield f"{module.name}:{line} a rule imports {name}"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        owner, _, method = called.rpartition(".")
        if called == "open" or (method in CLOCK_CALLS and owner.split(".")[-1] in {"datetime", "date"}):
            yield f"{module.name}:{node.lineno} a rule calls {called}()"


def wide_handlers(module: Module) -> Iterator[str]:
    """Handlers that catch everything. Only supervisors may: elsewhere they hide the crash that a restart would cure."""
    if module.room == "supervisors":
        return
    for place, node in _with_places(module):
        caught: list[ast.expr | None] = []
        if isinstance(node, ast.ExceptHandler):
            caught = [*node.type.elts] if isinstance(node.type, ast.Tuple) else [node.type]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "suppress":
            caught = [*node.args]
        for kind in caught:
            name = "everything" if kind is None else ast.unparse(kind).split(".")[-1]
            if name in {"everything", "Exception", "BaseException"}:
                yield f"{place} catches {name}"


def long_files(module: Module) -> Iterator[str]:
    """Files that are worth a review: more than one concept may be in them."""
    lines = len(module.text.splitlines())
    if lines > FILE_LINES_REVIEWED:
        yield f"{module.name} has {lines} lines"


def long_functions(module: Module) -> Iterator[str]:
    """Functions that nobody reads in one go."""
    for place, node in _with_places(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{place} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def undocumented_packages(module: Module) -> Iterator[str]:
    """Packages that do not say what they are for."""
    if module.is_package and not ast.get_docstring(module.tree):
        yield f"{module.name} has no docstring"


def more_than_a_version(module: Module) -> Iterator[str]:
    """Whatever stands in `cormorant/__init__.py` besides the docstring and the version; it would make an import circle."""
    if module.name != "cormorant":
        return
    for node in module.tree.body:
        is_docstring = isinstance(node, ast.Expr) and _text_of(node.value) is not None
        is_version = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
        if not is_docstring and not is_version:
            yield f"{module.name}:{node.lineno} holds more than its version: {ast.unparse(node)}"


def silenced_without_reason(module: Module) -> Iterator[str]:
    """Warnings that are switched off without saying why, or in a way that switches off more than one line."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type != tokenize.COMMENT or not SILENCED.search(token.string):
            continue
        if not SILENCED_WITH_REASON.match(token.string):
            yield f"{module.name}:{token.start[0]} silences a warning and does not say why: {token.string}"


Check = Callable[[Module], Iterator[str]]

CHECKS: Final[tuple[Check, ...]] = (
    homeless_modules,
    wrong_imports,
    impurities,
    wide_handlers,
    long_functions,
    undocumented_packages,
    more_than_a_version,
    silenced_without_reason,
)


def _text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _with_places(module: Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of what it stands in, which outlives a change of line numbers."""

    def walk(node: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = place
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{place}.{child.name}"
            yield inner, child
            yield from walk(child, inner)

    return walk(module.tree, module.name)

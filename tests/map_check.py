"""Checks of the map and the house rules. They read the text of source files and import nothing."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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

# Domains in the order in which they may know each other: each knows those before it. A module in a folder of a domain
# belongs to it; the table has the others. What belongs to no domain (settings, engine, http, …) may know all and be known.
DOMAINS: Final = ("shared", "jobs", "search", "watch", "gate", "everything")
ORDERED_LAYERS: Final = ("cormorant.rules", "storage", "actors", "cormorant.services")
DOMAIN_OF: Final = {
    **dict.fromkeys(
        (
            "actors.actor",
            "actors.periodic",
            "cormorant.rules.addresses",
            "cormorant.rules.errors",
            "cormorant.rules.events",
            "cormorant.rules.json_documents",
            "cormorant.rules.ports",
            "cormorant.rules.schedules",
            "cormorant.rules.secrets",
            "cormorant.rules.supervision",
            "cormorant.rules.units",
            "cormorant.rules.views",
            "cormorant.rules.web_requests",
            "cormorant.services.data_folder",
            "cormorant.services.event_bus",
            "cormorant.services.keys",
            "storage.database",
            "storage.engine",
            "storage.tables",
        ),
        "shared",
    ),
    **dict.fromkeys(("actors.contained", "cormorant.services.jobs", "storage.pauses"), "jobs"),
    **dict.fromkeys(
        (
            "cormorant.services.durable_search",
            "cormorant.services.search_views",
            "cormorant.services.searches",
            "cormorant.services.sources",
        ),
        "search",
    ),
    "cormorant.services.schedule": "watch",
    **dict.fromkeys(
        (
            "cormorant.rules.app_indexers",
            "cormorant.rules.latest_polls",
            "cormorant.rules.torznab_queries",
            "cormorant.services.app_connections",
            "cormorant.services.indexer_import",
            "storage.access",
            "storage.gate",
        ),
        "gate",
    ),
    **dict.fromkeys(
        (
            "actors.maintenance",
            "actors.notifier",
            "cormorant.rules.notices",
            "cormorant.services.notifications",
            "cormorant.services.source_clients",
            "storage.overview",
            "storage.pruning",
        ),
        "everything",
    ),
}

PARTS: Final = {
    "actors": ("jobs", "search", "watch"),
    "cormorant.cli": ("console",),
    "cormorant.clients": ("http", "targets"),
    "cormorant.playground": (),
    "cormorant.rules": ("jobs", "search", "settings", "watch"),
    "cormorant.services": ("gate", "watch"),
    "cormorant.web": ("api", "page"),
    "storage": ("engine", "jobs", "migrations", "search", "watch"),
    "supervisors": (),
}
"""The folders of each layer. A path is layer/part/module, and never deeper."""

FOLDER_MODULES_MIN: Final = 5
FOLDER_MODULES_MAX: Final = 20
NOT_COUNTED: Final = ("storage.migrations", "cormorant.web.page")
SMALL_LINES: Final = 60

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
_CONNECTION: Final = re.compile(r"""['"]?(sqlalchemy\.)?Connection( \| None)?['"]?""")
"""An argument that is a connection; a function that takes one is something else."""
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


def wrong_places(module: Module) -> Iterator[str]:
    """Modules that are deeper than layer/part/module, or in a part that the layer does not have."""
    layer = next((each for each in PARTS if module.name.startswith(f"{each}.")), None)
    if layer is None:
        return
    *folders, last = module.name.removeprefix(f"{layer}.").split(".")
    parts = [*folders, last] if module.is_package else folders
    if len(parts) > 1 or any(part not in PARTS[layer] for part in parts):
        yield f"{module.name} is in no part of {layer}; it has {', '.join(PARTS[layer]) or 'none'}"


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


WITHOUT_DOMAIN: Final = ("actors.environment",)
"""The environment names a client of every domain, and every actor takes it."""


def domain_of(name: str) -> str | None:
    """The domain of a module; None: it has none, and the order of domains says nothing about it.

    >>> domain_of("storage.jobs.batch"), domain_of("actors.notifier"), domain_of("cormorant.rules.settings.watch")
    ('jobs', 'everything', None)
    """
    layer = next((each for each in ORDERED_LAYERS if name.startswith(f"{each}.")), None)
    if layer is None:
        return None
    part = name.removeprefix(f"{layer}.").partition(".")[0]
    if part in DOMAINS and f"{layer}.{part}" not in DOMAIN_OF:
        return part
    return next((DOMAIN_OF[each] for each in DOMAIN_OF if name == each or name.startswith(f"{each}.")), None)


def modules_without_domain(module: Module) -> Iterator[str]:
    """Modules in the root of an ordered layer that the table of domains does not name."""
    layer, _, own = module.name.rpartition(".")
    is_module = layer in ORDERED_LAYERS and own and not module.is_package and module.name not in WITHOUT_DOMAIN
    if is_module and domain_of(module.name) is None:
        yield f"{module.name} has no domain: give it one in DOMAIN_OF"


def wrong_domains(module: Module) -> Iterator[str]:
    """Imports against the order of domains."""
    own = domain_of(module.name)
    for line, name in imported_names(module) if own else ():
        other = domain_of(name)
        if other is not None and DOMAINS.index(other) > DOMAINS.index(own or ""):
            yield f"{module.name}:{line} {own} must not know {other} ({name})"


def connections_outside_storage(module: Module) -> Iterator[str]:
    """Functions outside of storage that take a `Connection`: transactions are in storage."""
    if module.room == "storage":
        return
    for place, node in _with_places(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = node.args
            arguments = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
            types = [ast.unparse(each.annotation) for each in arguments if each is not None and each.annotation]
            if any(_CONNECTION.fullmatch(each) for each in types):
                yield f"{place} takes a Connection"


def sql_outside_storage(module: Module) -> Iterator[str]:
    """Imports of SQLAlchemy outside of storage."""
    if module.room in {"storage", "cormorant.rules"}:  # rules have a check of their own
        return
    for _, name in imported_names(module):
        if name.partition(".")[0] == "sqlalchemy":
            yield f"{module.name} imports {name}"


def protocols_in_web(module: Module) -> Iterator[str]:
    """Protocols of the web. It uses services, which it may know."""
    if module.room != "cormorant.web":
        return
    for place, node in _with_places(module):
        if isinstance(node, ast.ClassDef) and any(
            re.fullmatch(r"(\w+\.)?Protocol(\[.*\])?", ast.unparse(base)) for base in node.bases
        ):
            yield f"{place} is a Protocol"


def question_docstrings(module: Module) -> Iterator[str]:
    """Modules whose docstring asks instead of stating what the module contains."""
    first = (ast.get_docstring(module.tree) or "").split("\n")[0]
    if "?" in first:
        yield f"{module.name} asks a question: {first}"


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


def repeated_classes(modules: Sequence[Module]) -> Iterator[str]:
    """Public class names that two modules use."""
    places: dict[str, list[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"class {name} is in {', '.join(found)}"


def odd_folders(modules: Sequence[Module]) -> Iterator[str]:
    """Folders with too few or too many modules."""
    counts = Counter(module.name.rpartition(".")[0] for module in modules if not module.is_package)
    for folder, count in sorted(counts.items()):
        if not _is_within(folder, NOT_COUNTED) and not FOLDER_MODULES_MIN <= count <= FOLDER_MODULES_MAX:
            yield f"{folder} has {count} modules, allowed: {FOLDER_MODULES_MIN} to {FOLDER_MODULES_MAX}"


def crumbs(modules: Sequence[Module]) -> Iterator[str]:
    """Small modules that only one other module imports: they belong there."""
    names = {module.name for module in modules}
    importers: dict[str, set[str]] = {}
    for module in modules:
        for _, name in imported_names(module):
            for imported in {name, name.rpartition(".")[0]} & names:
                importers.setdefault(imported, set()).add(module.name)
    for module in modules:
        is_small = not module.is_package and len(module.text.splitlines()) < SMALL_LINES
        if is_small and len(importers.get(module.name, ())) == 1 and not _is_within(module.name, NOT_COUNTED):
            yield f"{module.name} is small, and only {min(importers[module.name])} imports it"


def _is_within(name: str, places: Iterable[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


Check = Callable[[Module], Iterator[str]]
ProductCheck = Callable[[Sequence[Module]], Iterator[str]]

PRODUCT_CHECKS: Final[tuple[ProductCheck, ...]] = (repeated_classes, odd_folders, crumbs)

CHECKS: Final[tuple[Check, ...]] = (
    homeless_modules,
    wrong_places,
    wrong_imports,
    modules_without_domain,
    wrong_domains,
    connections_outside_storage,
    sql_outside_storage,
    protocols_in_web,
    question_docstrings,
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

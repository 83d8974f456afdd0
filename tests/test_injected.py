"""What is injected: one Environment, few functions besides it, and a reason for every protocol."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors import Clients, Environment
from actors.actor import Actor
from cormorant.settings import Settings
from tests.test_map import PRODUCT, modules

INJECTED_IN = ("actors.", "cormorant.services.", "cormorant.web.", "supervisors.")
FUNCTIONS_MAX = 10
FUNCTIONS = {
    "actors.actor ServedActor.make": "makes the next incarnation of an actor",
    "actors.actor Reply.on_settled": "lets the address know that nobody waits any more",
    "actors.actor ServedActor.on_gone": "ends what belongs to an address whose actor is gone for good",
    "actors.periodic ClockWatch.sleepers": "the actors that sleep, of which some come and go",
    "actors.search.search Ticket.on_left": "tells the limiter that a caller has left",
    "actors.search.source_reconciler SourceReconciler.start": "an actor does not know the supervisor of the limiters",
    "actors.search.source_reconciler SourceReconciler.stop": "as above",
    "cormorant.services.event_bus ServiceMonitor.is_ready": "the web does not know the supervisors",
    "cormorant.services.event_bus ServiceMonitor.children": "as above",
    "supervisors.child _Status.acknowledge": "a child acknowledges its start to the loop",
}
NOT_COUNTED = {"emit", "offload", "listeners", "handlers", "run", "execute", "function", "on_complete", "on_job_done"}
"""Ambient functions, handlers of jobs, and callbacks of callers."""
PROTOCOLS_MAX = 10
PROTOCOLS = {
    "cormorant.clients.http.transport Sink": "memory, or a file",
    "cormorant.clients.targets.target Target": "eight kinds of target",
    "cormorant.playground.http StandInSite": "each stand-in of a playground, and those of programs",
    "cormorant.rules.search.source_queue QueueTicket": "rules do not know actors",
    "storage.engine.calls CallSession": "SQLite, and PostgreSQL",
    "storage.engine.change_listener ChangeConnection": "SQLite, and PostgreSQL",
    "storage.engine.schema Migration": "a module for each step",
    "supervisors.child Runnable": "actors, supervisors, and functions of programs",
}
"""Outside of actors and `rules/ports.py`, each with its implementations or the layer that needs it."""


def _is_class_variable(node: ast.AnnAssign) -> bool:
    return "ClassVar" in ast.unparse(node.annotation) or "Final" in ast.unparse(node.annotation)


def _functions() -> set[str]:
    """The names of types that are functions."""
    found = {"Callable"}
    for module in modules(*PRODUCT):
        assigned = [node for node in module.tree.body if isinstance(node, ast.Assign)]
        for node in assigned:
            if isinstance(node.value, ast.Subscript) and ast.unparse(node.value.value).endswith("Callable"):
                found.add(ast.unparse(node.targets[0]))
    return found - {"Handler"}


def _parts(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Fields and constructor parameters of a class, with their types."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and not _is_class_variable(each):
            yield ast.unparse(each.target), each.annotation
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for argument in (*each.args.args, *each.args.kwonlyargs):
                if argument.annotation is not None:
                    yield argument.arg, argument.annotation


def injected_functions() -> set[str]:
    types, found = _functions(), set()
    for module in modules(*PRODUCT):
        if not module.name.startswith(INJECTED_IN) or module.name == "actors.environment":
            continue
        classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
        for node in classes:
            for name, annotation in _parts(node):
                used = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
                if used & types and name not in NOT_COUNTED:
                    found.add(f"{module.name} {node.name}.{name}")
    return found


def test_few_functions_are_injected_and_each_has_its_reason() -> None:
    assert injected_functions() == set(FUNCTIONS)
    assert len(FUNCTIONS) <= FUNCTIONS_MAX


def test_every_protocol_has_its_reason() -> None:
    found = {
        f"{module.name} {node.name}"
        for module in modules(*PRODUCT)
        if not module.name.startswith("actors.") and module.name != "cormorant.rules.ports"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).split("[")[0] == "Protocol" for base in node.bases)
    }

    assert found == set(PROTOCOLS)
    assert len(PROTOCOLS) <= PROTOCOLS_MAX


def actor_classes(base: type[Any] = Actor) -> Iterator[type[Any]]:
    for each in base.__subclasses__():
        yield each
        yield from actor_classes(each)


def test_the_environment_is_the_first_argument_of_every_actor() -> None:
    import supervisors.assembly  # noqa: F401, PLC0415 - defines all of them
    from cormorant.web.server import WebServer  # noqa: PLC0415 - as above

    ours = {each for each in actor_classes() if attrs.has(each) and each.__module__.startswith("actors.")}

    assert WebServer not in ours
    assert {each.__name__: attrs.fields(each)[0].name for each in ours if attrs.fields(each)} == {
        each.__name__: "environment" for each in ours if attrs.fields(each)
    }


def test_an_environment_is_frozen_and_needs_no_more_than_settings() -> None:
    environment = Environment(Settings())

    assert environment.clients == Clients()
    assert [attrs.asdict(environment, recurse=False)[name] for name in ("database", "emit")] == [None, None]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        environment.settings = Settings()  # type: ignore[misc]  # that it cannot be done is the test


def test_this_test_finds_a_function_behind_an_alias(tmp_path: Path) -> None:
    source = "class A:\n    ask: SearchSource\n    emit: Emit\n    def __init__(self, make: Callable[[], int]): ...\n"
    [node] = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)

    types = _functions()

    assert {"Callable", "SearchSource", "Emit"} <= types
    assert [name for name, _ in _parts(node)] == ["ask", "emit", "make"]

"""Which module changes objects of a class, and who sets an asynchronous value. It reads the text of source files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Final

from attrs import frozen

from tests.map_check import Module
from tests.messages import Function

READING_CALLS: Final = frozenset({"copy", "get", "is_set", "items", "keys", "values", "wait"})
CHANGING_CALLS: Final = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "push"),
        *("put_back", "remove", "set", "setdefault", "sort", "take_head", "update"),
    }
)
"""Methods of collections, events and queues that change them."""


@frozen
class Kind:
    """A class, and which of its methods and properties only read."""

    name: str
    reading: frozenset[str]


def kind_in(module: Module, name: str) -> Kind:
    """A class of a module. A method reads if it stores nothing, and calls only methods of its object that read."""
    [node] = [each for each in ast.walk(module.tree) if isinstance(each, ast.ClassDef) and each.name == name]
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    reading = {each for each in methods if not each.startswith("__")}
    while changing := {each for each in reading if _changes_itself(methods[each], frozenset(reading))}:
        reading -= changing
    return Kind(name, frozenset(reading))


def _changes_itself(method: Function, reading: frozenset[str]) -> bool:
    own = {"self", *_members(method)}
    for node in ast.walk(method):
        stored = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
        if stored and _chain(node)[0] in own:
            return True
        if isinstance(node, ast.Call):
            called = _chain(node.func)
            is_of_self = called[0] in own and called[-1] not in reading | READING_CALLS
            is_of_heap = called[0] == "heapq" and any(_chain(each)[0] in own for each in node.args)
            if is_of_self or is_of_heap:
                return True
    return False


def _members(method: Function) -> Iterator[str]:
    """The variables of loops over something of `self`."""
    for node in ast.walk(method):
        if isinstance(node, ast.For | ast.comprehension) and re.search(r"\bself\b", ast.unparse(node.iter)):
            yield from (each.id for each in ast.walk(node.target) if isinstance(each, ast.Name))


def changes(module: Module, kind: Kind, names: frozenset[str]) -> Iterator[str]:
    """Where a module changes an object of a class. `names`: attributes that hold one, from `names_of`.

    It sees stores below such an attribute, calls of methods that do more than read, and the same through a local variable, a
    parameter of that type, or `self` in the class. It does not see objects that are reached through a collection or a call.
    """
    if not any(name in module.text for name in names | {kind.name}):
        return
    for owner, body, function in _scopes(module.tree):
        own = _fields(body) if body is not None else {}
        held = {f"self.{name}" for name in names if _is_of(own.get(name, kind.name), kind.name)}
        local = _locals(function, kind, names, held)
        for node in ast.walk(function):
            chain = _changed_chain(node)
            if chain is None:
                continue
            below = _below(chain, names, held, local)
            if below and (not isinstance(node, ast.Call) or _is_change(below, kind)):
                yield f"{module.name} {owner}.{function.name}: {'.'.join(chain)}"


def names_of(modules: Iterable[Module], kind: str) -> frozenset[str]:
    """The attributes and parameters that are declared with a class."""
    found = set()
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.AnnAssign) and _is_of(ast.unparse(node.annotation), kind):
                found.add(ast.unparse(node.target).rpartition(".")[2])
            elif (
                isinstance(node, ast.arg) and node.annotation is not None and _is_of(ast.unparse(node.annotation), kind)
            ):
                found.add(node.arg)
    return frozenset(found)


def value_writers(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Who sets `value` of each attribute that is an `AsyncValue` or `AsyncBool`, by class and attribute.

    A store through another object than `self` counts for every attribute of that name.
    """
    modules = list(modules)
    declared = {
        (node.name, name)
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for name, said in _fields(node).items()
        if re.search(r"\bAsync(Value|Bool)\b", said)
    }
    writers = {f"{owner}.{name}": set[str]() for owner, name in declared}
    for module in modules:
        for owner, _, function in _scopes(module.tree):
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or node.attr != "value" or not isinstance(node.ctx, ast.Store):
                    continue
                *_, before, name = [*_chain(node.value), ""][:-1] if len(_chain(node.value)) > 1 else ("", "")
                is_own = before == "self" and (owner, name) in declared
                for each, attribute in declared:
                    if attribute == name and (each == owner if is_own else before != "self"):
                        writers[f"{each}.{attribute}"].add(f"{module.name} {owner}")
    return writers


def _scopes(tree: ast.AST) -> Iterator[tuple[str, ast.ClassDef | None, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield "", None, node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, node, each) for each in node.body if isinstance(each, Function))


def _fields(body: ast.ClassDef) -> dict[str, str]:
    """The attributes that a class declares, in its body or by a store in a method, with their types."""
    found = {}
    for node in ast.walk(body):
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target).removeprefix("self.")] = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            found.setdefault(ast.unparse(node.targets[0]).removeprefix("self."), ast.unparse(node.value))
    return found


def _is_of(annotation: str, kind: str) -> bool:
    return re.search(rf"\b{kind}\b", annotation) is not None and not annotation.startswith(("Callable", "type"))


def _locals(function: Function, kind: Kind, names: frozenset[str], held: set[str]) -> set[str]:
    given = [*function.args.args, *function.args.kwonlyargs]
    found = {
        each.arg for each in given if each.annotation is not None and _is_of(ast.unparse(each.annotation), kind.name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.Tuple):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for target, value in zip(targets, values, strict=False):
                chain = _chain(value)
                is_one = (
                    chain[-1] in names
                    and len(chain) > 1
                    and (chain[0] != "self" or len(chain) > 2 or ".".join(chain) in held)
                )
                if isinstance(target, ast.Name) and is_one:
                    found.add(target.id)
    return found


def _changed_chain(node: ast.AST) -> list[str] | None:
    """What is stored to, or what is called."""
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _chain(node)
    return _chain(node.func) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _below(chain: list[str], names: frozenset[str], held: set[str], local: set[str]) -> list[str]:
    """The part of a chain below an object of the class; empty: there is none."""
    if chain[0] in local:
        return chain[1:]
    for at in range(1, len(chain)):
        is_held = ".".join(chain[: at + 1]) in held if at == 1 and chain[0] == "self" else chain[at] in names
        if is_held:
            return chain[at + 1 :]
    return []


def _is_change(below: list[str], kind: Kind) -> bool:
    return below[0] not in kind.reading if len(below) == 1 else below[-1] in CHANGING_CALLS


def _chain(node: ast.AST) -> list[str]:
    """The names of `a.b[c].d()`: a, b, d."""
    parts = list[str]()
    while True:
        match node:
            case ast.Attribute(value=inner, attr=name):
                parts.append(name)
                node = inner
            case ast.Subscript(value=inner) | ast.Call(func=inner):
                node = inner
                if isinstance(node, ast.Name | ast.Attribute) and not parts:
                    parts.append("[]")
            case ast.Name(id=name):
                return [name, *reversed(parts)]
            case _:
                return ["", *reversed(parts)]

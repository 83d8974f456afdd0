"""Which module sends which message to which actor. It reads the text of source files and imports nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

from tests.map_check import Module

SENDING: Final = frozenset({"tell", "tell_nowait", "tell_once", "ask", "ask_nowait"})
_ADDRESS: Final = re.compile(r"\bAddress\[([\w\s|]+)\]")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Send:
    """A call that sends a message."""

    module: str
    owner: str
    """The class whose method calls; empty: a function."""
    receiver: str
    """What the message is sent to, as written."""
    message: str


def unions_in(modules: Iterable[Module]) -> dict[str, frozenset[str]]:
    """Names for several classes: `LimiterMessage = Admit | Withdraw`."""
    found = {}
    for module in modules:
        for node in module.tree.body:
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.BinOp)
                and isinstance(node.value.op, ast.BitOr)
            ):
                found[ast.unparse(node.targets[0])] = frozenset(ast.unparse(node.value).split(" | "))
    return found


def addresses_in(modules: Iterable[Module]) -> dict[str, set[frozenset[str]]]:
    """What attributes and arguments with the type of an address take, by their last name."""
    modules = list(modules)
    unions, found = unions_in(modules), dict[str, set[frozenset[str]]]()
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.AnnAssign | ast.arg) or node.annotation is None:
                continue
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            for said in _ADDRESS.findall(ast.unparse(node.annotation)):
                takes = frozenset().union(*(unions.get(each, {each}) for each in said.split(" | ")))
                if not any(re.fullmatch(r"[A-Z]\w?|M_co", each) for each in takes):  # the variable of a generic class
                    found.setdefault(name.rpartition(".")[2], set()).add(takes)
    return found


def sends_in(modules: Iterable[Module], messages: Iterable[str]) -> Iterator[Send]:
    """Every call that sends one of the messages.

    The message is found in the argument of the call. Where that is a variable, every message that the function names counts;
    where it names none, because it was given the message, every one that its class names.
    """
    known = frozenset(messages)
    for module in modules:
        for owner, function in _functions(module.tree):
            for call in _calls_in(function):
                if isinstance(call.func, ast.Attribute) and call.func.attr in SENDING and call.args:
                    places = (call.args[0], function, _class_in(module.tree, owner))
                    named = next(filter(None, (_named_in(each, known) for each in places)), set[str]())
                    for message in sorted(named):
                        yield Send(module.name, owner, ast.unparse(call.func.value), message)


def receivers(
    send: Send,
    takes: Mapping[str, frozenset[str]],
    addresses: Mapping[str, set[frozenset[str]]],
    served: Mapping[str, set[str]],
) -> set[str]:
    """The actors that may get a message. `served`: the actors behind the addresses that the service makes, by their attribute.

    The attribute decides, then the type of the address. A local variable may be the address of any actor that takes the message.
    """
    if send.receiver == "self.address" and send.owner in takes:
        return {send.owner} if send.message in takes[send.owner] else set()
    takers = {actor for actor, messages in takes.items() if send.message in messages}
    if "." not in send.receiver:
        return takers
    last = send.receiver.rpartition(".")[2]
    typed = {actor for actor in takers if takes[actor] in addresses.get(last, ())}
    return served.get(last, set()) & takers or typed or takers


def _functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, node.name)
        elif isinstance(node, Function):
            yield owner, node
        else:
            yield from _functions(node, owner)


def _class_in(tree: ast.AST, name: str) -> ast.AST:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return next(found, ast.Module([], []))


def _calls_in(function: Function) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def _named_in(node: ast.AST, known: frozenset[str]) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return names & known

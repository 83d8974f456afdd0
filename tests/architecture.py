"""The supervision tree, the messages of each actor and their senders, as docs/architecture.md shows them.

`python -m tests.architecture` writes them into the page.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import trio
from attrs import AttrsInstance, fields

from actors.actor import Actor, Address, ServedActor
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import NotifySettings, WebSettings
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.supervision import OnExhausted, Restart
from cormorant.rules.units import format_duration
from cormorant.testing import memory_gateway, simulated
from supervisors import ChildSpec, Supervisor
from supervisors.service import open_service
from tests.environments import environment_of
from tests.messages import addresses_in, receivers, sends_in
from tests.test_map import PRODUCT, modules

PAGE: Final = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN: Final = "<!-- Made by `python -m tests.architecture`; a test compares. -->\n"
END: Final = "<!-- The end of what is made. -->\n"
NAME: Final = "NAME"
EVERYTHING: Final = Settings(
    notify=NotifySettings(apprise=Secret("json://127.0.0.1/")),
    web=WebSettings(listen="127.0.0.1:0"),
    sources={"name": SourceSettings(url="http://name")},
)
"""A service with every child that there may be."""


def root_of(settings: Settings) -> Supervisor:
    """The tree of a service that is put together and not started."""
    root: Supervisor = _made(settings)["_root"]
    return root


def _made(settings: Settings) -> dict[str, Any]:
    with memory_gateway() as database:
        return vars(open_service(settings, environment=environment_of(database=database)))


def supervisors_in(supervisor: Supervisor) -> Iterator[tuple[str, Supervisor]]:
    """All supervisors of a tree, each with its name."""
    for spec in supervisor.specs:
        if isinstance(spec.run, Supervisor):
            yield spec.name, spec.run
            yield from supervisors_in(spec.run)


def added_children() -> dict[str, list[ChildSpec]]:
    """The children that a running service with one source has added, by supervisor."""
    simulation, added = simulated(0), dict[str, list[ChildSpec]]()

    async def main() -> None:
        async with simulation.open_service(EVERYTHING, gateway=gateway) as service:
            await service.sources.find("name")
            await trio.sleep(1)
            for name, supervisor in supervisors_in(vars(service)["_root"]):
                listed = vars(supervisor)["_listed"]
                added[name] = [spec for spec in supervisor.specs[listed:] if spec.name]

    with memory_gateway() as gateway:
        simulation.run(main)
    return added


def actor_of(spec: ChildSpec) -> Actor[Any] | None:
    """An actor as the child makes it; None: the child is none."""
    return vars(spec.run)["_make"]() if isinstance(spec.run, ServedActor) else None


def children_of(
    name: str, supervisor: Supervisor, added: Mapping[str, list[ChildSpec]]
) -> Iterator[tuple[str, ChildSpec]]:
    """The children of a supervisor as the page calls them."""
    yield from ((spec.name, spec) for spec in supervisor.specs)
    for spec in added.get(name, ()):
        yield spec.name.replace(":name", f":{NAME}"), spec


def all_actors(added: Mapping[str, list[ChildSpec]]) -> list[type[Actor[Any]]]:
    """The classes of the actors of the service, in starting order."""

    def walk(name: str, supervisor: Supervisor) -> Iterator[type[Actor[Any]]]:
        for _, spec in children_of(name, supervisor, added):
            if isinstance(spec.run, Supervisor):
                yield from walk(spec.name, spec.run)
            elif (actor := actor_of(spec)) is not None:
                yield type(actor)

    return list(walk("root", root_of(EVERYTHING)))


def tree_text(added: Mapping[str, list[ChildSpec]]) -> str:
    """The tree: a line for each child, in starting order."""
    root = root_of(EVERYTHING)
    rows = [("root", _supervisor_text(root)), *_rows("root", root, added, "  ")]
    width = max(len(name) for name, _ in rows)
    return "".join(f"    {name:<{width}}  {text}\n" for name, text in rows)


def _rows(
    name: str, supervisor: Supervisor, added: Mapping[str, list[ChildSpec]], indent: str
) -> Iterator[tuple[str, str]]:
    for shown, spec in children_of(name, supervisor, added):
        if isinstance(spec.run, Supervisor):
            yield indent + shown, _supervisor_text(spec.run)
            yield from _rows(spec.name, spec.run, added, f"{indent}  ")
        else:
            yield indent + shown, _child_text(spec)


def _supervisor_text(supervisor: Supervisor) -> str:
    policy = vars(supervisor)["_policy"]
    within = format_duration(supervisor.stop_total_s)
    return f"{policy.strategy.value}, {policy.intensity} restarts in {format_duration(policy.period_s)}, stops within {within}"


def _child_text(spec: ChildSpec) -> str:
    actor = actor_of(spec)
    words = [type(spec.run if actor is None else actor).__name__]
    words.append(f"grace {format_duration(spec.grace_s)}" if spec.grace_s else "cancelled at once")
    if spec.restart is not Restart.PERMANENT:
        words.append(spec.restart.value)
    if spec.on_exhausted is OnExhausted.SET_ASIDE:
        words.append("set aside when its restarts are used up")
    return ", ".join(words)


def served_by(settings: Settings) -> dict[str, set[str]]:
    """The actors behind the addresses of a service, by the name of the attribute that holds the address."""
    made = _made(settings)
    actors = {
        address_of(spec).name: type(actor).__name__
        for supervisor in (made["_root"], *(each for _, each in supervisors_in(made["_root"])))
        for spec in supervisor.specs
        if (actor := actor_of(spec)) is not None
    }
    served: dict[str, set[str]] = {}
    for name, address in addresses_below(made["_assembly"]):
        if address.name in actors:
            served.setdefault(name, set()).add(actors[address.name])
    return served


def address_of(spec: ChildSpec) -> Address[Any]:
    """The address that a child serves."""
    address: Address[Any] = vars(spec.run)["_address"]
    return address


def addresses_below(assembly: AttrsInstance) -> Iterator[tuple[str, Address[Any]]]:
    """Every address that an assembly and its branches hold, with the name of the attribute."""
    for each in fields(type(assembly)):
        part = getattr(assembly, each.name)
        if isinstance(part, Address):
            yield each.name, part
        elif type(part).__name__.endswith("Assembly"):
            yield from addresses_below(part)


def messages_text(added: Mapping[str, list[ChildSpec]]) -> str:
    """The messages of each actor: what they mean and which modules send them."""
    classes, served = all_actors(added), served_by(EVERYTHING)
    takes = {each.__name__: frozenset(message.__name__ for message in taken(each)) for each in classes}
    sources = modules(*PRODUCT)
    addresses = addresses_in(sources)
    senders: dict[tuple[str, str], set[str]] = {}
    for send in sends_in(sources, frozenset().union(*takes.values())):
        for actor in receivers(send, takes, addresses, served):
            senders.setdefault((actor, send.message), set()).add(send.module)
    lines = ["| actor | message | meaning | sent by |\n", "| --- | --- | --- | --- |\n"]
    for each in classes:
        for message in taken(each):
            sent_by = ", ".join(f"`{name}`" for name in sorted(senders.get((each.__name__, message.__name__), ())))
            lines.append(f"| {each.__name__} | {message.__name__} | {_meaning(message)} | {sent_by or 'no module'} |\n")
        if not taken(each):
            lines.append(f"| {each.__name__} | none | | |\n")
    return "".join(lines)


def taken(actor: type[Actor[Any]]) -> list[type]:
    """The classes of the messages of an actor."""
    return [message for message in actor.messages if message is not type(None)]


def _meaning(message: type) -> str:
    first = " ".join((inspect.getdoc(message) or "").partition("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".") + "."


def generated() -> str:
    """What the page has between its two marks."""
    added = added_children()
    bound = format_duration(root_of(EVERYTHING).graces_s)
    return (
        f"{BEGIN}\n"
        "Children start in this order and stop in reverse; those that are added later stop first, together. The grace is what a child\n"
        "that is asked to stop may take. The tree has every child that there may be, with the default settings: without `web` or\n"
        f"`notify` these children are missing. All graces together are {bound}. That is the least `service.stop_total`.\n\n"
        f"{tree_text(added)}\n"
        "An actor may wait only for actors that are started before it.\n\n"
        f"{messages_text(added)}\n{END}"
    )


def with_generated(page: str, made: str) -> str:
    """The page with what is made in its place."""
    before, _, rest = page.partition(BEGIN)
    return before + made + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_generated(PAGE.read_text(), generated()))

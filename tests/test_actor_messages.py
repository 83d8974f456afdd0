"""Actors are reached by messages: each message has a sender and a test, and objects that actors share are listed."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import attrs
import pytest
from attrs import define, field, frozen

from actors.actor import Actor, Address
from tests.architecture import added_children, all_actors, taken
from tests.map_check import Module
from tests.messages import Function
from tests.test_map import PRODUCT, modules
from tests.test_requirements import names_in
from tests.writers import changes, kind_in, names_of, value_writers

ROOT = Path(__file__).parents[1]

CHECKS = "tests/conformance/subscriptions/test_checks.py"
BASIC = "tests/conformance/test_basic_searches.py"
SCHEDULING = "tests/conformance/test_scheduling.py"
OTHERS = "tests/conformance/test_sources_of_others.py"
SLEEPING = "tests/conformance/test_sleeping.py"
SUSPEND = f"{SLEEPING}::test_after_a_suspend_every_ticker_is_on_time_within_eleven_seconds"
RUNNER = "tests/actors/jobs/test_runner.py"
TESTS = {
    ("RateLimiter", "Admit"): (
        f"{BASIC}::test_every_source_is_asked_and_has_one_outcome",
        "a ticket gets in line and has one outcome",
    ),
    ("RateLimiter", "Withdraw"): (
        f"{SCHEDULING}::test_a_cancelled_search_ends_at_once_whether_it_waits_or_runs",
        "a request that no ticket waits for is dropped or cancelled",
    ),
    ("RateLimiter", "SourceChanged"): (
        "tests/conformance/test_limiter_faults.py::test_a_change_by_the_program_is_shown_when_its_call_returns",
        "the limiter adopts the state that the program has written, or the record that the reconciler has read",
    ),
    ("RateLimiter", "Recheck"): (
        f"{OTHERS}::test_the_end_of_a_pause_in_another_process_lets_what_waits_go_at_once",
        "the limiter reads the state of its source again",
    ),
    ("RateLimiter", "Decide"): (
        f"{SCHEDULING}::test_never_two_at_once_at_one_source_and_never_more_than_the_slots",
        "the next request goes when one has ended",
    ),
    ("RateLimiter", "Close"): (
        f"{SCHEDULING}::test_at_a_stop_what_waits_ends_and_what_runs_has_its_grace",
        "what waits ends, and what runs has its grace",
    ),
    ("Callbacks", "CallbackStream"): (
        f"{BASIC}::test_callbacks_come_once_for_each_source_and_once_at_the_end",
        "the callbacks of a search are called",
    ),
    ("SourceReconciler", "Recheck"): (
        f"{OTHERS}::test_a_source_that_another_process_adds_can_be_searched_at_once",
        "the sources are read again, and a limiter is started",
    ),
    ("Dispatcher", "Submit"): (
        f"{SCHEDULING}::test_what_comes_within_5_ms_is_ordered_by_priority_then_by_arrival",
        "the tickets of a search are ordered and sent",
    ),
    ("JobRunner", "CancelHandler"): (
        "tests/actors/test_lost_runs.py::test_the_next_job_starts_as_soon_as_a_cancelled_one_has_ended",
        "the handler of the job is cancelled",
    ),
    ("JobRunner", "RunEphemeral"): (
        f"{RUNNER}::test_passing_work_runs_when_its_delay_is_over_and_is_not_tried_again",
        "the work is queued",
    ),
    ("JobRunner", "SetClaiming"): (
        f"{RUNNER}::test_a_pause_of_everything_survives_a_restart",
        "jobs are claimed, or left where they are",
    ),
    ("JobRunner", "Recheck"): (SUSPEND, "the producer looks for due jobs"),
    ("FeedTicker", "Recheck"): (
        f"{SLEEPING}::test_a_feed_that_is_moved_forward_is_checked_then",
        "the next due time is read again",
    ),
    ("SavedSearchTicker", "Recheck"): (
        f"{SLEEPING}::test_a_saved_search_that_is_added_is_checked_at_once",
        "what is due is enqueued",
    ),
    ("PriceTicker", "Recheck"): (
        f"{SLEEPING}::test_a_price_that_is_resumed_is_collected_at_once",
        "what is due is enqueued",
    ),
    ("WatchlistTicker", "Recheck"): (
        f"{SLEEPING}::test_an_artist_that_is_added_is_looked_at_within_the_interval",
        "the next tick begins when the interval allows",
    ),
    ("WatchlistTicker", "TickNow"): (
        f"{SLEEPING}::test_an_artist_is_looked_at_by_hand_whatever_the_interval",
        "a tick begins at once",
    ),
    ("HandoverTracker", "Recheck"): (
        "tests/conformance/watchlist/test_wants.py::test_a_release_is_searched_chosen_handed_over_and_followed_to_its_end",
        "the next due time is read again",
    ),
    ("ReclaimSweeper", "Recheck"): (
        f"{SLEEPING}::test_the_sweeper_begins_when_this_process_is_registered",
        "a sweep begins",
    ),
    ("Maintenance", "Recheck"): (
        f"{SLEEPING}::test_old_searches_are_pruned_a_minute_after_the_clock_was_set",
        "old rows are pruned",
    ),
    ("Notifier", "Recheck"): (
        "tests/notifying/test_telling.py::test_a_danger_is_told_within_seconds_and_the_rest_of_a_minute_together",
        "jobs are made of notices",
    ),
    ("WebServer", "StopServing"): (
        "tests/web/test_server.py::test_a_service_that_begins_to_stop_tells_its_server",
        "no more connections are taken",
    ),
    ("FeedTicker", "CheckNow"): (
        f"{CHECKS}::test_a_check_by_hand_is_the_check_and_one_that_runs_is_joined",
        "the feed is checked now",
    ),
}
"""For each message: the test that shows that the product sends it, and what it changes. The test fails if the message is dropped."""

WRITTEN_BY_SEVERAL = {
    "CheckStatistics": "counted by the feed ticker; a reader drops minutes that are over, as the ticker would",
    "Database": "the gateway: its calls are queued, and each is one transaction",
    "JobWakeUp": "a wake-up: setting it twice is setting it once",
    "OpenTickets": "a counter like the tokens of trio.CapacityLimiter; a ticket counts itself once",
    "Search": "its tickets hand it their outcomes; a caller waits for them",
    "SlotPool": "a shared synchronous object, like trio.CapacityLimiter",
    "SlotWaiters": "the waiting side of the slot pool",
    "Ticket": "the caller, the dispatcher and the limiter end it; the first outcome counts",
    "TicketIntake": "the dispatcher fills it; after its last crash the reconciler ends what it left",
    "_Minute": "a part of CheckStatistics",
}
"""Mutable objects that more than one actor writes, each with its reason. The event bus is reached through the function `emit`."""
WRITTEN_BY_ONE = {
    "OwnerLease": {"actors.jobs.heartbeat", "actors.jobs.producer", "actors.jobs.runner"},
    "SourceDirectory": {"actors.search.source_reconciler"},
    "SourceRequests": {"actors.search.rate_limiter", "actors.search.waiting"},
}
"""Mutable objects that several actors hold, and the modules of the one actor that writes them. `waiting` is a part of the limiter."""
DEFINED_IN = {
    "OwnerLease": "actors.jobs.working_set",
    "SourceDirectory": "actors.search.source_directory",
    "SourceRequests": "actors.search.source_requests",
}
WRITTEN_BY_NONE = {"Secret"}
"""Classes without a method that changes them, which are not frozen because they are written out."""
MANY = {"RateLimiter"}
"""Actors of which there are many: what one of them shares with nobody else may still be shared among them."""


# Messages


@cache
def actors() -> list[type[Actor[Any]]]:
    """The classes of the actors of the service, in starting order."""
    return all_actors(added_children())


def classes_in(source: Iterable[Module]) -> list[tuple[str, ast.ClassDef]]:
    return [
        (module.name, node) for module in source for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    ]


def actor_classes(source: Iterable[Module]) -> dict[str, ast.ClassDef]:
    """The classes that are actors, by name, however far below `Actor`."""
    classes = {node.name: node for _, node in classes_in(source)}
    found = {"Actor"}
    while more := {name for name, node in classes.items() if name not in found and found & set(_bases(node))}:
        found |= more
    return {name: classes[name] for name in found if name in classes and name != "Actor"}


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def without_messages(source: Iterable[Module]) -> set[str]:
    """Actors whose base is `Actor[None]`, or an actor with `None` or nothing for its messages."""
    source = list(source)
    known = actor_classes(source)
    return {
        name
        for name, node in known.items()
        for base in node.bases
        if re.fullmatch(r"(\w+\.)?(Actor|Periodic|\w*Ticker)(\[None\])?", ast.unparse(base))
    }


@pytest.mark.slow("reads all modules")
def test_every_actor_names_its_messages() -> None:
    assert without_messages(modules(*PRODUCT)) == set()


@pytest.mark.slow("runs a service to see its tree")
def test_every_actor_of_the_tree_takes_at_least_one_message() -> None:
    assert [each.__name__ for each in actors() if not taken(each)] == []


def test_each_message_has_a_test_that_shows_who_sends_it_and_what_it_changes() -> None:
    assert {(each.__name__, message.__name__) for each in actors() for message in taken(each)} == TESTS.keys()
    missing = []
    for node_id, changed in TESTS.values():
        file, _, test = node_id.partition("::")
        if test not in names_in(file) or not changed:
            missing.append(node_id)
    assert missing == []


def test_the_test_of_a_message_does_not_send_it_itself() -> None:
    named = [
        node_id
        for (_, message), (node_id, _) in TESTS.items()
        if re.search(rf"\b{message}\(", _text_of_test(*node_id.split("::")))
    ]

    assert named == []


def _text_of_test(file: str, test: str) -> str:
    [node] = [each for each in ast.parse((ROOT / file).read_text()).body if getattr(each, "name", "") == test]
    return ast.unparse(node)


# Objects that actors share


def reached_from(cls: type, seen: set[type] | None = None) -> set[type]:
    """The classes of the product whose objects a class is given, directly or inside other objects.

    By the types of constructor fields: what hides behind a function, a protocol or a class without declared fields is not seen,
    nor what an actor gets in a message. An address is a mailbox and ends the search.
    """
    seen = set() if seen is None else seen
    if not attrs.has(cls):
        return seen
    try:
        attrs.resolve_types(cls)
    except NameError:  # it names types that are there for type checkers only
        return seen
    for each in attrs.fields(cls):
        for part in _classes_of(each.type) if each.init else ():
            is_ours = part.__module__.startswith(("actors.", "cormorant.", "storage.", "supervisors.", __name__))
            if is_ours and part not in seen and not issubclass(part, Address | enum.Enum | BaseException):
                seen.add(part)
                reached_from(part, seen)
    return seen


def _classes_of(hint: Any) -> Iterator[type]:
    origin = get_origin(hint)
    if isinstance(hint, type) and origin is None:
        yield hint
    elif isinstance(origin, type):
        yield origin
    if origin is not Address:
        for part in get_args(hint):
            yield from _classes_of(part)


def _is_mutable(cls: type) -> bool:
    is_frozen = attrs.has(cls) and cls.__setattr__.__name__ == "_frozen_setattrs"
    return not is_frozen and not getattr(cls, "_is_protocol", False)


def shared_by(classes: Iterable[type[Actor[Any]]], many: Iterable[str] = ()) -> set[str]:
    """Mutable classes whose objects may be held by two actors."""
    holders: dict[str, int] = {}
    for each in set(classes):
        for part in filter(_is_mutable, reached_from(each)):
            holders[part.__name__] = holders.get(part.__name__, 0) + (2 if each.__name__ in many else 1)
    return {name for name, count in holders.items() if count > 1}


def test_objects_that_actors_share_are_listed_with_their_reason() -> None:
    assert shared_by(actors(), MANY) == WRITTEN_BY_SEVERAL.keys() | WRITTEN_BY_ONE.keys() | WRITTEN_BY_NONE
    assert all(WRITTEN_BY_SEVERAL.values())
    assert not WRITTEN_BY_SEVERAL.keys() & WRITTEN_BY_ONE.keys()


@pytest.mark.slow("reads all modules")
@pytest.mark.parametrize("name", WRITTEN_BY_ONE)
def test_an_object_with_one_writer_is_changed_only_by_its_modules(name: str) -> None:
    source = modules(*PRODUCT)
    [own] = [module for module in source if module.name == DEFINED_IN[name]]
    kind, names = kind_in(own, name), names_of(source, name)

    changing = {module.name: list(changes(module, kind, names)) for module in source if module is not own}

    assert {module for module, found in changing.items() if found} == WRITTEN_BY_ONE[name], changing


def test_an_object_that_none_writes_has_no_method_that_changes_it() -> None:
    [own] = [module for module in modules(*PRODUCT) if module.name == "cormorant.rules.secrets"]

    assert kind_in(own, "Secret").reading == {"reveal"}


def test_what_ends_waits_at_a_source_belongs_to_its_limiter() -> None:
    makers = {
        module.name for module in modules(*PRODUCT) if "WaitExpiry(" in module.text.replace("class WaitExpiry(", "")
    }

    assert makers == {"actors.search.rate_limiter"}


@pytest.mark.slow("reads all modules")
def test_an_asynchronous_value_has_one_writer() -> None:
    writers = value_writers(modules(*PRODUCT))

    assert writers
    assert {name: found for name, found in writers.items() if len(found) != 1} == {}


# Ticks


def unscoped_ticks(source: Iterable[Module]) -> Iterator[str]:
    """Actors with a tick that no cancel scope surrounds.

    A tick is what `wake` of an actor awaits, or what `Periodic` awaits of its abstract methods. A class below `Periodic` must not
    replace a method of it that awaits the tick.
    """
    source = list(source)
    known = actor_classes(source)
    periodic = known.get("Periodic")
    ticks, runs = set[str](), set[str]()
    if periodic is not None:
        methods = {each.name: each for each in periodic.body if isinstance(each, Function)}
        ticks = {name for name, each in methods.items() if "abstractmethod" in map(ast.unparse, each.decorator_list)}
        runs = {name for name, each in methods.items() if any(_awaits(each, tick) for tick in ticks)}
        if not ticks or not runs or any(_awaits(methods[name], tick, unscoped=True) for name in runs for tick in ticks):
            yield "Periodic"
    for name, node in known.items():
        for each in (each for each in node.body if isinstance(each, Function) and node is not periodic):
            is_wake = each.name == "wake" and "Periodic" not in _ancestors(node, known) and _has_unscoped_await(each)
            is_run = each.name in runs or (each.name not in ticks and any(_awaits(each, tick) for tick in ticks))
            if is_wake or ("Periodic" in _ancestors(node, known) and is_run):
                yield name


def _ancestors(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> set[str]:
    found = set(_bases(node))
    return found.union(*(_ancestors(known[base], known) for base in found if base in known))


def _awaits(function: Function, tick: str, *, unscoped: bool = False) -> bool:
    """Whether a function awaits `self.tick(…)`; `unscoped`: outside of every cancel scope."""
    calls = _unscoped(function) if unscoped else ast.walk(function)
    return any(isinstance(each, ast.Await) and ast.unparse(each.value).startswith(f"self.{tick}(") for each in calls)


def _has_unscoped_await(function: Function) -> bool:
    return any(isinstance(each, ast.Await) for each in _unscoped(function))


def _unscoped(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function that are in no `with` of a cancel scope."""
    scopes = {"CancelScope", "move_on_after", "move_on_at", "fail_after", "fail_at"}
    given = {
        each.arg for each in function.args.args if each.annotation and "CancelScope" in ast.unparse(each.annotation)
    }
    made = {
        ast.unparse(each.targets[0])
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and any(f"trio.{scope}(" in ast.unparse(each.value) for scope in scopes)
    }

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.With):
            opened = [ast.unparse(item.context_expr) for item in node.items]
            if any(text in given | made or re.match(rf"trio\.({'|'.join(scopes)})\(", text) for text in opened):
                return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    return walk(function)


@pytest.mark.slow("reads all modules")
def test_every_tick_runs_inside_a_cancel_scope() -> None:
    assert set(unscoped_ticks(modules(*PRODUCT))) == set()


# Each check finds what it is for


def bad(*lines: str) -> Module:
    return Module("actors.bad", "\n".join(lines))


PERIODIC = (
    "class Periodic(Actor[M]):",
    "    @abstractmethod",
    "    async def tick(self): ...",
    "    async def _run(self, stop: trio.CancelScope):",
    "        with stop:",
    "            await self.tick()",
)


def test_an_actor_without_messages_is_found() -> None:
    source = bad("class Deaf(Actor[None]): ...", "class Mute(Periodic[None]): ...", "class Periodic(Actor[M]): ...")
    also = bad("class Heir(Periodic): ...", "class Good(Actor[A | B]): ...", "class Periodic(Actor[M]): ...")

    assert without_messages([source]) == {"Deaf", "Mute"}
    assert without_messages([also]) == {"Heir"}


@pytest.mark.parametrize(
    "lines",
    [
        ["class Sweeper(Actor[A]):", "    async def wake(self):", "        await self.sweep()"],
        ["class Periodic(Actor[M]):", *PERIODIC[1:3], "    async def _run(self):", "        await self.tick()"],
        [*PERIODIC, "class Ticker(Periodic[A]):", "    async def _run(self, stop):", "        pass"],
        [*PERIODIC, "class Ticker(Periodic[A]):", "    async def handle(self, message):", "        await self.tick()"],
    ],
)
def test_a_tick_without_a_scope_is_found(lines: list[str]) -> None:
    assert len(list(unscoped_ticks([bad(*lines)]))) == 1


def test_a_tick_in_a_scope_is_left_alone() -> None:
    wake = [
        "class A(Actor[B]):",
        "    async def wake(self):",
        "        with trio.move_on_after(1):",
        "            await x()",
    ]
    plain = ["class C(Actor[B]):", "    async def wake(self):", "        self.decide()"]
    ticker = ["class Ticker(Periodic[A]):", "    async def tick(self):", "        await x()"]

    assert list(unscoped_ticks([bad(*PERIODIC, *wake, *plain, *ticker)])) == []


QUEUES = (
    "class Queues:",
    "    waiting: list[int]",
    "    def size(self):",
    "        return len(self.waiting)",
    "    def push(self, x):",
    "        self._put(x)",
    "    def _put(self, x):",
    "        self.waiting.append(x)",
    "    def stop_all(self):",
    "        for each in self.waiting:",
    "            each.stop()",
)


@pytest.mark.parametrize(
    "lines",
    [
        ["class A:", "    queues: Queues", "    def f(self):", "        self.queues.limit = 1"],
        ["class A:", "    queues: Queues", "    def f(self):", "        self.queues.push(1)"],
        ["class A:", "    queues: Queues", "    def f(self):", "        self.queues.stop_all()"],
        ["class A:", "    queues: Queues", "    def f(self):", "        self.queues.waiting.clear()"],
        ["class A:", "    queues: Queues", "    def f(self):", "        del self.queues.waiting[0]"],
        ["class A:", "    queues: Queues", "    def f(self):", "        mine = self.queues", "        mine.push(1)"],
        ["class A:", "    def f(self, entry):", "        entry.queues.limit += 1"],
        ["def f(given: Queues):", "    given.push(1)"],
    ],
)
def test_a_change_of_an_object_is_found(lines: list[str]) -> None:
    kind = kind_in(bad(*QUEUES), "Queues")

    assert len(list(changes(bad(*lines), kind, frozenset({"queues"})))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["class A:", "    queues: Queues", "    def f(self):", "        return self.queues.size()"],
        ["class A:", "    queues: Queues", "    def f(self, queues: Queues):", "        self.queues = queues"],
        ["class A:", "    queues: list[int]", "    def f(self):", "        self.queues.append(1)"],
        ["def f(queues: dict[str, int]):", "    queues.clear()"],
    ],
)
def test_what_only_reads_an_object_is_left_alone(lines: list[str]) -> None:
    kind = kind_in(bad(*QUEUES), "Queues")

    assert kind.reading == {"size"}
    assert list(changes(bad(*lines), kind, frozenset({"queues"}))) == []


def test_a_second_writer_of_a_value_is_found() -> None:
    own = ("class A:", "    open: AsyncValue[int]", "    def f(self):", "        self.open.value += 1")
    other = ("class B:", "    a: A", "    def g(self):", "        self.a.open.value = 0")
    bystander = ("class C:", "    open: Box", "    def h(self):", "        self.open.value = 0")

    assert value_writers([bad(*own, *bystander)]) == {"A.open": {"actors.bad A"}}
    assert value_writers([bad(*own, *other)]) == {"A.open": {"actors.bad A", "actors.bad B"}}
    assert value_writers([bad(*own[:2])]) == {"A.open": set()}


@define(eq=False)
class Board:
    """An object that can be changed."""

    lines: list[str] = field(factory=list)


@frozen
class Case:
    """An object that cannot be changed, with one inside that can."""

    board: Board


@define(eq=False)
class First(Actor[str]):
    """Holds it directly."""

    board: Board


@define(eq=False)
class Second(Actor[str]):
    """Holds it inside another object."""

    cases: tuple[Case, ...]


@define(eq=False)
class Third(Actor[str]):
    """Holds the mailbox of an actor."""

    first: Address[str]


def test_an_object_that_two_actors_hold_is_found() -> None:
    assert shared_by([First, Second]) == {"Board"}
    assert shared_by([First, Third]) == set()
    assert shared_by([First], many=["First"]) == {"Board"}

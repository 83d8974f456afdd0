"""A Trio program that embeds two services: both stop in order within their bounds, and one error with its cause comes out."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from cormorant.rules.errors import RestartsExhausted, ServiceFailed, leaves_of
from cormorant.rules.events import ChildExited, ChildStarted, ServiceStopping, Stamped, SupervisorStopped
from cormorant.testing import (
    TIMEOUT,
    ScriptedSource,
    SimulatedClock,
    in_line,
    memory_gateway,
    named_sources,
    scripted,
    settings,
)
from storage.database import Database
from supervisors import Service, open_service
from tests.environments import environment_of
from tests.supervisors.probes import Boom

pytestmark = pytest.mark.slow("starts and stops two whole services")

FAILS_AFTER_S = 0.5


class BrokenDatabase(Database):
    """A gateway that crashes some time after each start."""

    async def __call__(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(super().__call__)
            task_status.started()
            await trio.sleep(FAILS_AFTER_S)
            raise Boom("the gateway")


@define
class Host:
    """A program of somebody else, with two services and what happened to them in order."""

    gateways: dict[str, Database]
    clock: SimulatedClock = field(factory=SimulatedClock)
    started: list[tuple[str, str]] = field(factory=list)
    ended: list[tuple[str, str]] = field(factory=list)
    services: dict[str, Service] = field(factory=dict)
    stopping_at: dict[str, float] = field(factory=dict)
    ended_at: dict[str, float] = field(factory=dict)

    def service(self, name: str, gateway: Database) -> Service:
        """One of the services; its source never answers, so that a search is always in progress."""

        def heard(stamped: Stamped) -> None:
            event = stamped.event
            if isinstance(event, ServiceStopping):
                self.stopping_at[name] = trio.current_time()
            elif isinstance(event, ChildStarted) and event.supervisor == "root":
                self.started.append((name, event.child))
            elif isinstance(event, ChildExited) and event.supervisor == "root":
                self.ended.append((name, event.child))
            elif isinstance(event, SupervisorStopped) and event.supervisor == "root":
                self.ended_at[name] = trio.current_time()

        self.services[name] = open_service(
            settings(sources=named_sources("a")),
            environment=environment_of(
                clock=self.clock,
                chance=random.Random(1),
                offload=in_line,
                database=gateway,
                listeners=[heard],
                search=scripted({"a": ScriptedSource(TIMEOUT)}),
            ),
        )
        return self.services[name]

    async def side_by_side(self) -> None:
        """Embed both, each in a task of its own."""
        async with trio.open_nursery() as nursery:
            for name, gateway in self.gateways.items():
                nursery.start_soon(self.use, name, gateway)

    async def one_in_the_other(self) -> None:
        """Embed both in one task."""
        async with self.service("first", self.gateways["first"]):
            await self.use("second", self.gateways["second"])

    async def use(self, name: str, gateway: Database) -> None:
        """Search with a service, and wait for what never comes."""
        async with self.service(name, gateway) as service:
            await (await service.search("x", timeout_s=3_600.0)).wait()

    async def cancelled_after_failure(self, embed: Embed, after_s: float) -> None:
        """Embed both, and be cancelled from outside some time after the first service has begun to fail."""
        with trio.CancelScope() as outside:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel, outside, after_s)
                await embed(self)
                nursery.cancel_scope.cancel()

    async def _cancel(self, outside: trio.CancelScope, after_s: float) -> None:
        with trio.CancelScope(shield=True):  # ends by itself: the failure comes, whatever the host does
            while "first" not in self.stopping_at:
                await trio.sleep(0.1)
            await trio.sleep(after_s)
            outside.cancel()

    def order_of(self, name: str) -> list[str]:
        """The children of the root of a service in the order they ended."""
        return list(dict.fromkeys(child for each, child in self.ended if each == name))

    def children_of(self, name: str) -> list[str]:
        """The children of the root of a service in the order they were first started."""
        return list(dict.fromkeys(child for each, child in self.started if each == name))


Embed = Callable[[Host], Awaitable[None]]


@contextmanager
def host(*, breaks: bool) -> Iterator[Host]:
    """A host whose first service fails, or not."""
    with memory_gateway() as first, memory_gateway() as second:
        if breaks:
            first.__class__ = BrokenDatabase
        yield Host({"first": first, "second": second})


def assert_stopped_in_order(place: Host) -> None:
    """Both have stopped in the reverse of the order in which they were started, within their bound."""
    for name, service in place.services.items():
        has_crashed = isinstance(place.gateways[name], BrokenDatabase)
        left = [child for child in place.children_of(name) if not (has_crashed and child == "storage")]
        assert place.order_of(name) == list(reversed(left)), name
        assert len(left) > 3
        assert service.report is not None
        assert service.report.took_s <= service.settings.service.stop_total_s
        assert place.ended_at[name] - place.stopping_at[name] <= service.settings.service.stop_total_s


@pytest.mark.parametrize("embed", [Host.side_by_side, Host.one_in_the_other])
async def test_when_one_of_two_services_fails_the_other_stops_too_and_the_host_sees_one_error_with_its_cause(
    clock: MockClock, embed: Embed
) -> None:
    with host(breaks=True) as place, pytest.raises((ServiceFailed, ExceptionGroup)) as caught:
        await embed(place)

    assert_is_the_failure(caught.value)
    assert_stopped_in_order(place)


@pytest.mark.parametrize("embed", [Host.side_by_side, Host.one_in_the_other])
@pytest.mark.parametrize("after_s", [0.0, 0.5, 2.5, 10.0])
async def test_a_host_that_is_cancelled_while_a_service_fails_sees_the_same_error(
    clock: MockClock, embed: Embed, after_s: float
) -> None:
    with host(breaks=True) as place, pytest.raises((ServiceFailed, ExceptionGroup)) as caught:
        await place.cancelled_after_failure(embed, after_s)

    assert_is_the_failure(caught.value)
    assert_stopped_in_order(place)


@pytest.mark.parametrize("embed", [Host.side_by_side, Host.one_in_the_other])
async def test_a_host_that_is_cancelled_before_a_service_fails_sees_no_error(clock: MockClock, embed: Embed) -> None:
    with host(breaks=False) as place, trio.move_on_after(12.0) as outside:
        await embed(place)

    assert outside.cancelled_caught
    assert_stopped_in_order(place)


def assert_is_the_failure(error: BaseException) -> None:
    """One error, whose causes lead to what has crashed."""
    [failure] = leaves_of(error)
    assert isinstance(failure, ServiceFailed)
    causes: list[BaseException] = [failure]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert [type(each) for each in causes[:-1]] == [ServiceFailed, RestartsExhausted]
    assert [type(each) for each in leaves_of(causes[-1])] == [Boom]

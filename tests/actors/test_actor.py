"""Mailboxes outlive their actors, messages are handled at most once, and nobody waits for one who is gone."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.lowlevel
from attrs import define, field, frozen
from trio.testing import MockClock

from actors.actor import Actor, Address, Reply
from cormorant.rules.errors import ActorCrashed, ActorGone, AskTimedOut, MailboxFull, WaitForbidden
from cormorant.rules.events import Event, MessageLost
from supervisors import ChildSpec, ChildState, OnExhausted, Restart, Strategy, Supervisor


@frozen
class Deposit:
    amount: int
    takes_s: float = 0.0


@frozen(kw_only=True)
class Balance:
    reply: Reply[int]


@frozen(kw_only=True)
class Promise:
    """A question that is answered later, or never."""

    reply: Reply[int]


@frozen(kw_only=True)
class Crash:
    reply: Reply[None] | None = None


Message = Deposit | Balance | Promise | Crash


@define(eq=False)
class Account(Actor[Message]):
    handled: list[Message]
    balance: int = 0
    promised: list[Reply[int]] = field(factory=list)

    async def handle(self, message: Message) -> None:
        self.handled.append(message)
        match message:
            case Deposit(amount, takes_s):
                await trio.sleep(takes_s)
                self.balance += amount
            case Balance(reply=reply):
                reply.answer(self.balance)
            case Promise(reply=reply):
                self.promised.append(reply)
            case Crash():
                raise ValueError("crash")


@define
class Bank:
    """An account with its address, under a supervisor."""

    handled: list[Message] = field(factory=list)
    events: list[Event] = field(factory=list)
    address: Address[Message] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.address = Address("account", capacity=4, emit=self.events.append)

    def spec(self, *, restart: Restart = Restart.PERMANENT) -> ChildSpec:
        return ChildSpec("account", self.address.served_by(lambda: Account(self.handled)), restart=restart)

    def lost(self) -> list[tuple[str, str]]:
        return [(event.message, event.why) for event in self.events if isinstance(event, MessageLost)]


async def test_messages_are_handled_one_at_a_time_in_order(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        await bank.address.tell(Deposit(5, takes_s=2.0))
        await bank.address.tell(Deposit(3))
        assert await bank.address.ask(Balance) == 8

    assert trio.current_time() == 2.0


async def test_a_full_mailbox_makes_tell_wait_and_tell_nowait_raise(clock: MockClock) -> None:
    bank = Bank()
    for _ in range(4):
        bank.address.tell_nowait(Deposit(1, takes_s=1.0))

    with pytest.raises(MailboxFull, match="4 messages"):
        bank.address.tell_nowait(Deposit(1))
    async with Supervisor([bank.spec()]):
        await trio.lowlevel.checkpoint()
        await bank.address.tell(Deposit(1))
        assert await bank.address.ask(Balance) == 5
    assert trio.current_time() == 4.0


async def test_messages_wait_while_the_actor_restarts_and_its_state_is_fresh(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        await bank.address.tell(Deposit(100))
        await bank.address.tell(Crash())
        await bank.address.tell(Deposit(7))
        assert await bank.address.ask(Balance) == 7

    assert [message for message in bank.handled if isinstance(message, Deposit)] == [Deposit(100), Deposit(7)]


async def test_an_ask_in_hand_at_a_crash_gets_actor_crashed_with_the_cause(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        with pytest.raises(ActorCrashed) as caught:
            await bank.address.ask(Crash)

    assert isinstance(caught.value.__cause__, Exception)
    assert "crash" in repr(caught.value.__cause__)
    assert bank.lost() == []


async def test_a_promise_not_kept_before_a_crash_gets_actor_crashed(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]), trio.open_nursery() as nursery:
        nursery.start_soon(expect_crashed, bank)
        await trio.sleep(1)
        await bank.address.tell(Crash())


async def expect_crashed(bank: Bank) -> None:
    with pytest.raises(ActorCrashed):
        await bank.address.ask(Promise)
    assert trio.current_time() == 1.0


async def test_a_tell_in_hand_at_a_crash_becomes_message_lost(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        await bank.address.tell(Crash())
        assert await bank.address.ask(Balance) == 0

    assert bank.lost() == [("Crash", "its actor crashed")]
    assert sum(isinstance(message, Crash) for message in bank.handled) == 1


async def test_a_message_cut_short_by_a_group_restart_is_lost_and_not_repeated(clock: MockClock) -> None:
    bank = Bank()

    async def neighbour(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(1)
        if trio.current_time() < 5:
            raise ValueError("neighbour")
        await trio.sleep_forever()

    specs = [bank.spec(), ChildSpec("neighbour", neighbour)]
    async with Supervisor(specs, strategy=Strategy.ONE_FOR_ALL, stop_total_s=30.0):
        await bank.address.tell(Deposit(1, takes_s=60.0))
        await trio.sleep(20)

    assert bank.lost() == [("Deposit", "its actor was cancelled")]
    assert len(bank.handled) == 1


async def test_when_the_actor_is_gone_unread_asks_and_later_calls_are_told(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec(restart=Restart.TEMPORARY)]), trio.open_nursery() as nursery:
        await bank.address.tell(Deposit(1, takes_s=1.0))
        await bank.address.tell(Crash())
        nursery.start_soon(expect_gone, bank)
        await trio.sleep(0.5)
        bank.address.tell_nowait(Deposit(2))
        await trio.sleep(1)
        with pytest.raises(ActorGone):
            bank.address.tell_nowait(Deposit(3))
        with pytest.raises(ActorGone):
            await bank.address.tell(Deposit(3))

    assert bank.lost() == [("Crash", "its actor crashed"), ("Deposit", "its actor is gone")]


async def expect_gone(bank: Bank) -> None:
    with pytest.raises(ActorGone):
        await bank.address.ask(Balance)
    assert trio.current_time() == 1.0


async def test_the_end_of_the_tree_is_the_end_of_its_mailboxes(clock: MockClock) -> None:
    bank = Bank()
    below = Supervisor([bank.spec()], name="below")

    async with Supervisor([ChildSpec("below", below)]):
        await bank.address.tell(Deposit(1))

    with pytest.raises(ActorGone):
        await bank.address.ask(Balance)


async def test_a_supervisor_restarted_from_above_reopens_the_mailboxes_it_gave_up(clock: MockClock) -> None:
    bank = Bank()

    async def trouble(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(1)
        if trio.current_time() < 3:
            raise ValueError("trouble")
        await trio.sleep_forever()

    below = Supervisor([bank.spec(restart=Restart.TEMPORARY), ChildSpec("trouble", trouble)], intensity=0)
    async with Supervisor([ChildSpec("below", below)]):
        await bank.address.tell(Crash())
        await trio.sleep(0.5)
        with pytest.raises(ActorGone):
            await bank.address.ask(Balance)
        await trio.sleep(2)
        assert await bank.address.ask(Balance) == 0


async def test_stop_finishes_the_message_in_hand_and_leaves_the_rest_unread(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]) as supervisor:
        await bank.address.tell(Deposit(1, takes_s=3.0))
        await bank.address.tell(Deposit(2))
        await trio.sleep(1)
        report = await supervisor.stop()

    assert trio.current_time() == 3.0
    assert report.clean
    assert bank.handled == [Deposit(1, takes_s=3.0)]
    assert bank.lost() == [("Deposit", "its actor is gone")]


async def test_an_ask_has_a_deadline_and_withdraws_what_was_not_read(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        await bank.address.tell(Deposit(1, takes_s=5.0))
        with pytest.raises(AskTimedOut, match="within 2 s"):
            await bank.address.ask(Balance, timeout_s=2.0)
        assert await bank.address.ask(Balance) == 1

    assert sum(isinstance(message, Balance) for message in bank.handled) == 1


async def test_an_ask_keeps_its_deadline_while_the_actor_is_down(clock: MockClock) -> None:
    bank = Bank()

    with pytest.raises(AskTimedOut):
        await bank.address.ask(Balance, timeout_s=3.0)

    assert trio.current_time() == 3.0


async def test_a_question_may_carry_more_than_its_reply(clock: MockClock) -> None:
    @frozen(kw_only=True)
    class Double:
        number: int
        reply: Reply[int]

    class Calculator(Actor[Double]):
        async def handle(self, message: Double) -> None:
            if message.number < 0:
                message.reply.refuse(ValueError("negative"))
            message.reply.answer(2 * message.number)

    address: Address[Double] = Address("calculator")
    async with Supervisor([ChildSpec("calculator", address.served_by(Calculator))]):
        assert await address.ask(partial(Double, number=21)) == 42
        with pytest.raises(ValueError, match="negative"):
            await address.ask(partial(Double, number=-1))


async def test_asking_oneself_raises_and_telling_oneself_never_waits(clock: MockClock) -> None:
    caught: list[Exception] = []

    class Selfish(Actor[str]):
        async def handle(self, message: str) -> None:
            if message == "fill":
                await address.tell("one")
                with pytest.raises(MailboxFull):
                    await address.tell("two")
                try:
                    await address.ask(lambda reply: "anything")  # noqa: ARG005 - never sent
                except WaitForbidden as error:
                    caught.append(error)

    address: Address[str] = Address("selfish", capacity=1)
    async with Supervisor([ChildSpec("selfish", address.served_by(Selfish))]):
        await address.tell("fill")
        await trio.sleep(1)

    assert len(caught) == 1


async def test_waiting_goes_only_towards_what_was_started_earlier(clock: MockClock) -> None:
    heard: list[str] = []

    class Talker(Actor[str]):
        def __init__(self, other: Address[str]) -> None:
            self.other = other

        async def handle(self, message: str) -> None:
            try:
                await self.other.tell("hello")
                heard.append(message)
            except WaitForbidden:
                self.other.tell_nowait("hello")
                heard.append(f"{message}, but not waiting")

    class Listener(Actor[str]):
        async def handle(self, message: str) -> None: ...

    limiter: Address[str] = Address("rate_limiter:x")
    dispatcher: Address[str] = Address("dispatcher")
    down = [
        ChildSpec("rate_limiter:x", limiter.served_by(Listener)),
        ChildSpec("dispatcher", dispatcher.served_by(lambda: Talker(limiter))),
    ]
    async with Supervisor(down):
        await dispatcher.tell("down")
        await trio.sleep(1)
    up = [
        ChildSpec("rate_limiter:x", limiter.served_by(lambda: Talker(dispatcher))),
        ChildSpec("dispatcher", dispatcher.served_by(Listener)),
    ]
    async with Supervisor(up):
        await limiter.tell("up")
        await trio.sleep(1)

    assert heard == ["down", "up, but not waiting"]


async def test_one_timer_serves_any_number_of_items(clock: MockClock) -> None:
    woken: list[float] = []

    class Ticker(Actor[float]):
        def __init__(self) -> None:
            self.due: list[float] = []

        async def handle(self, message: float) -> None:
            self.due = sorted([*self.due, message])
            self.wake_at = self.due[0]

        async def wake(self) -> None:
            woken.append(self.due.pop(0))
            assert trio.current_time() == woken[-1]
            self.wake_at = self.due[0] if self.due else float("inf")

    address: Address[float] = Address("ticker", capacity=200)
    async with Supervisor([ChildSpec("ticker", address.served_by(Ticker))]):
        for at in range(100, 0, -1):
            await address.tell(float(at))
        await trio.sleep(1000)

    assert woken == [float(at) for at in range(1, 101)]


async def test_a_task_of_the_actor_that_crashes_takes_the_actor_with_it(clock: MockClock) -> None:
    class Worker(Actor[str]):
        async def handle(self, message: str) -> None:
            self.nursery.start_soon(self.work)

        async def work(self) -> None:
            await trio.sleep(1)
            raise ValueError("work")

    address: Address[str] = Address("worker")
    spec = ChildSpec("worker", address.served_by(Worker), on_exhausted=OnExhausted.SET_ASIDE)
    async with Supervisor([spec]) as supervisor:
        await address.tell("go")
        await trio.sleep(3)
        (view,) = supervisor.children()

    assert (view.state, view.restarts) == (ChildState.RUNNING, 1)


async def test_end_runs_within_the_grace_and_ends_the_actors_tasks(clock: MockClock) -> None:
    tidied: list[float] = []

    class Tidy(Actor[str]):
        async def begin(self) -> None:
            self.nursery.start_soon(trio.sleep_forever)

        async def end(self) -> None:
            await trio.sleep(2)
            tidied.append(trio.current_time())

    address: Address[str] = Address("tidy")
    async with Supervisor([ChildSpec("tidy", address.served_by(Tidy), grace_s=3.0)]) as supervisor:
        report = await supervisor.stop()

    assert tidied == [2.0]
    assert report.clean


async def test_an_actor_without_a_handler_says_so(clock: MockClock) -> None:
    address: Address[str] = Address("mute")

    with pytest.raises(TypeError, match="has no handle"):
        await Actor[str]().handle("x")
    assert address.waiting() == 0


async def test_a_promise_outlives_an_orderly_stop_only_as_actor_gone(clock: MockClock) -> None:
    bank = Bank()
    refusals: list[type[BaseException]] = []

    async def ask() -> None:
        with pytest.raises(ActorGone) as caught:
            await bank.address.ask(Promise)
        refusals.append(caught.type)

    async with trio.open_nursery() as nursery, Supervisor([bank.spec()]):
        nursery.start_soon(ask)
        await trio.sleep(1)

    assert refusals == [ActorGone]


async def test_after_the_tree_was_stopped_inside_the_body_asks_do_not_hang(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]) as supervisor:
        await supervisor.stop()
        with pytest.raises(ActorGone):
            await bank.address.ask(Balance)


async def test_a_task_of_the_actor_may_set_its_timer(clock: MockClock) -> None:
    woken: list[float] = []

    class Late(Actor[str]):
        async def begin(self) -> None:
            self.nursery.start_soon(self.set_timer)

        async def set_timer(self) -> None:
            await trio.sleep(1)
            self.wake_at = 2.0

        async def wake(self) -> None:
            woken.append(trio.current_time())
            self.wake_at = float("inf")

    address: Address[str] = Address("late")
    async with Supervisor([ChildSpec("late", address.served_by(Late))]):
        await trio.sleep(10)

    assert woken == [2.0]


async def test_an_actor_given_without_its_address_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"given as address.served_by\(Account\)"):
        ChildSpec("account", Account([]))  # type: ignore[arg-type]  # being wrong is the point

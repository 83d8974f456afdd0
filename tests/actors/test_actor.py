"""Mailboxes outlive their actors, messages are handled at most once, and nobody waits for one who is gone."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeVar

import pytest
import trio
import trio.lowlevel
from attrs import define, field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.actor import Actor, Address, Reply
from cormorant.rules.errors import (
    ActorCrashed,
    ActorError,
    ActorGone,
    AskTimedOut,
    MailboxFull,
    NotAnswered,
    UnknownMessage,
    WaitForbidden,
)
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
class Loan:
    """A question that no account takes."""

    reply: Reply[int]


@frozen(kw_only=True)
class Forgotten:
    """A question that the account does not answer."""

    reply: Reply[int]


@frozen(kw_only=True)
class Crash:
    reply: Reply[None] | None = None


Message = Deposit | Balance | Promise | Forgotten | Crash


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
                reply.defer()
                self.promised.append(reply)
            case Forgotten():
                pass
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


R = TypeVar("R")


class Keeper(Actor[int], Generic[R]):
    """An actor that is generic in something else than its messages."""


class NoteKeeper(Keeper[str]):
    """Its messages are those of its base."""


def test_a_class_takes_the_messages_that_its_base_names() -> None:
    assert (Keeper.messages, NoteKeeper.messages) == ((int,), (int,))


class Caller(Actor[str]):
    """Asks another actor, and tells a journal what came of it."""

    def __init__(self, other: Address[Any], heard: list[str]) -> None:
        self.other = other
        self.heard = heard

    async def handle(self, message: str) -> None:
        try:
            await self.other.ask(Answered)
            self.heard.append(message)
        except WaitForbidden as refusal:
            self.heard.append(str(refusal))


@frozen(kw_only=True)
class Answered:
    reply: Reply[None]


class Answerer(Actor[Answered]):
    async def handle(self, message: Answered) -> None:
        message.reply.answer(None)


async def test_waiting_goes_only_towards_what_was_started_earlier(clock: MockClock) -> None:
    heard: list[str] = []
    early: Address[Any] = Address("early")
    late: Address[Any] = Address("late")
    down = [
        ChildSpec("early", early.served_by(Answerer)),
        ChildSpec("late", late.served_by(lambda: Caller(early, heard))),
    ]
    async with Supervisor(down):
        await late.tell("answered")
        await trio.sleep(1)
    up = [
        ChildSpec("early", early.served_by(lambda: Caller(late, heard))),
        ChildSpec("late", late.served_by(Answerer)),
    ]
    async with Supervisor(up):
        await early.tell("never")
        await trio.sleep(1)

    why = "waiting goes only towards what was started earlier; use tell_nowait, or let the other side ask"
    assert heard == ["answered", f"early may not wait for late: {why}"]


async def test_the_starting_order_counts_across_branches_of_a_tree(clock: MockClock) -> None:
    heard: list[str] = []
    names = ("listed", "twin", "other twin", "after")
    listed, twin, other, after = [Address[Any](name) for name in names]
    below = Supervisor([ChildSpec("listed", listed.served_by(lambda: Caller(twin, heard)))], name="below")
    root = [ChildSpec("below", below), ChildSpec("after", after.served_by(lambda: Caller(twin, heard)))]

    async with Supervisor(root):
        await below.start_child(ChildSpec("twin", twin.served_by(Answerer)))
        await below.start_child(ChildSpec("other twin", other.served_by(lambda: Caller(twin, heard))))
        for caller in (after, other, listed):
            await caller.tell("answered")
            await trio.sleep(1)

    assert [text.partition(":")[0] for text in heard] == [
        "answered",
        "other twin may not wait for twin",
        "listed may not wait for twin",
    ]


async def test_actors_of_another_tree_may_be_waited_for(clock: MockClock) -> None:
    heard: list[str] = []
    ours: Address[Any] = Address("ours")
    theirs: Address[Any] = Address("theirs")

    async with (
        Supervisor([ChildSpec("first", ours.served_by(lambda: Caller(theirs, heard)))]),
        Supervisor([ChildSpec("first", sleep_for_ever), ChildSpec("second", theirs.served_by(Answerer))]),
    ):
        await ours.tell("answered")
        await trio.sleep(1)

    assert heard == ["answered"]


async def sleep_for_ever(*, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await trio.sleep_forever()


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


def test_an_actor_knows_the_classes_of_its_messages() -> None:
    class Savings(Account):
        pass

    assert Account.messages == Savings.messages == (Deposit, Balance, Promise, Forgotten, Crash)


async def test_a_message_that_the_actor_does_not_take_is_refused_and_nothing_else_happens(clock: MockClock) -> None:
    bank = Bank()
    strange: Address[Any] = bank.address

    async with Supervisor([bank.spec()]) as supervisor:
        await strange.tell("a text")
        with pytest.raises(UnknownMessage, match="account takes no message of class Loan"):
            await strange.ask(Loan)
        assert await bank.address.ask(Balance) == 0
        assert [child.restarts for child in supervisor.children()] == [0]

    assert bank.lost() == [("str", "it takes no such message")]
    assert [type(message) for message in bank.handled] == [Balance]


async def test_a_question_that_was_handled_without_an_answer_is_refused_at_once(clock: MockClock) -> None:
    bank = Bank()

    async with Supervisor([bank.spec()]):
        with pytest.raises(NotAnswered, match="account handled Forgotten and gave no answer"):
            await bank.address.ask(Forgotten)

    assert trio.current_time() == 0.0


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ActorCrashed("teller"), 503, "teller crashed before it answered; it is being restarted, ask again"),
        (ActorGone("teller"), 503, "teller has ended and takes no more messages"),
        (AskTimedOut("teller", 2.5), 503, "teller did not answer within 2.5 s"),
        (MailboxFull("teller", 64), 503, "the mailbox of teller is full (64 messages)"),
        (UnknownMessage("teller", "Loan"), 503, "teller takes no message of class Loan"),
        (NotAnswered("teller", "Loan"), 500, "teller handled Loan and gave no answer; report this"),
    ],
)
def test_each_error_of_an_actor_names_it_and_says_what_happened(error: ActorError, status: int, text: str) -> None:
    assert (str(error), error.actor, error.http_status) == (text, "teller", status)


async def test_an_actor_that_is_set_aside_lets_nobody_wait(clock: MockClock) -> None:
    bank = Bank()
    spec = ChildSpec("account", bank.address.served_by(lambda: Account([])), on_exhausted=OnExhausted.SET_ASIDE)

    async with Supervisor([spec], intensity=1) as supervisor, trio.open_nursery() as nursery:
        for _ in range(2):
            bank.address.tell_nowait(Crash())
        for _ in range(6):  # more than there is room for
            nursery.start_soon(expect_set_aside, bank)
        await trio.sleep(60)
        assert [child.state for child in supervisor.children()] == [ChildState.SET_ASIDE]
        await expect_set_aside(bank)
        with pytest.raises(ActorGone):
            await bank.address.tell(Deposit(1))


async def expect_set_aside(bank: Bank) -> None:
    with pytest.raises(ActorGone, match="account has ended and takes no more messages"):
        await bank.address.ask(Balance)


async def test_a_promise_that_is_never_kept_ends_with_the_deadline_of_its_asker(clock: MockClock) -> None:
    bank, account = Bank(), Account([])
    spec = ChildSpec("account", bank.address.served_by(lambda: account))

    async with Supervisor([spec]):
        with pytest.raises(AskTimedOut, match="account did not answer within 3 s"):
            await bank.address.ask(Promise, timeout_s=3.0)
        account.promised[0].answer(7)  # too late: it changes nothing
        assert await bank.address.ask(Balance) == 0

    assert trio.current_time() == 3.0


async def test_an_ask_that_waits_for_room_in_the_mailbox_keeps_its_deadline(clock: MockClock) -> None:
    bank = Bank()
    for _ in range(4):
        bank.address.tell_nowait(Deposit(1))

    with pytest.raises(AskTimedOut):
        await bank.address.ask(Balance, timeout_s=3.0)

    assert trio.current_time() == 3.0
    assert bank.address.waiting() == 4


async def test_any_number_of_messages_told_once_count_as_one_until_it_is_read(clock: MockClock) -> None:
    bank = Bank()

    for _ in range(9):
        bank.address.tell_once(Deposit(1, takes_s=1.0))
    async with Supervisor([bank.spec()]):
        await trio.sleep(0.5)
        bank.address.tell_once(Deposit(1))
        bank.address.tell_once(Deposit(1))
        assert await bank.address.ask(Balance) == 2


async def test_what_is_told_once_to_a_full_mailbox_or_to_one_that_is_gone_raises_nothing(clock: MockClock) -> None:
    bank = Bank()
    for _ in range(4):
        bank.address.tell_nowait(Crash())

    bank.address.tell_once(Deposit(1))
    async with Supervisor([bank.spec(restart=Restart.TEMPORARY)]):
        await trio.sleep(1)
        bank.address.tell_once(Deposit(1))

    assert [type(message) for message in bank.handled] == [Crash]


@frozen
class Parcel:
    """A message that deals with its own loss."""

    losses: list[ActorError]

    def lost(self, error: ActorError) -> None:
        self.losses.append(error)


@define(eq=False)
class Carrier(Actor[Parcel]):
    """Crashes in the middle of the second parcel that it finds in its mailbox."""

    taken: int = 0

    async def handle(self, message: Parcel) -> None:
        self.taken = 1
        while self.address.take_nowait() is not None:
            self.taken += 1
            if self.taken == 2:
                raise ValueError("crash")


async def test_a_message_with_a_method_for_it_deals_with_its_loss_and_those_taken_before_do_not(
    clock: MockClock,
) -> None:
    events: list[Event] = []
    address: Address[Parcel] = Address("carrier", emit=events.append)
    losses: list[list[ActorError]] = [[], [], []]
    for each in losses:
        address.tell_nowait(Parcel(each))

    async with Supervisor([ChildSpec("carrier", address.served_by(Carrier), restart=Restart.TEMPORARY)]):
        await trio.sleep(1)

    # The first was handled when the second was taken; the third was never read.
    assert [[type(error) for error in each] for each in losses] == [[], [ActorCrashed], [ActorGone]]
    assert not any(isinstance(event, MessageLost) for event in events)


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


async def test_a_sender_that_gives_up_while_its_address_is_closed_leaves_the_count_right() -> None:
    address, scope = Address[int]("one", capacity=1), trio.CancelScope()
    address._messages = (int,)  # noqa: SLF001 - as an actor that serves it would set them
    address.tell_nowait(1)

    async def send() -> None:
        with scope:
            await address.tell(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        scope.cancel()
        address._close()  # noqa: SLF001 - as its supervisor does, in the same turn of the scheduler
    address._reopen()  # noqa: SLF001 - as above
    address.tell_nowait(7)

    assert address.take_nowait() == 7

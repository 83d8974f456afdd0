"""SupervisorLoop: the one loop that owns the table of children; its commands and the restart queue."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Literal

import trio
from attrs import define, field, frozen

from actors.actor import Reply
from cormorant.rules.errors import RestartsExhausted, StartFailed, describe
from cormorant.rules.events import (
    ChildCrashed,
    ChildExited,
    ChildOverran,
    ChildSetAside,
    ChildStarted,
    SupervisorStopped,
)
from cormorant.rules.ports import Chance, Emit
from cormorant.rules.supervision import (
    ChildState,
    OnExhausted,
    Place,
    Restart,
    Strategy,
    add_restart,
    delay_before_restart,
    is_restarted,
    restarted_with,
)
from supervisors.child import Child, ChildReport, ChildSpec, ShutdownReport


@define(eq=False)
class RestartQueue:
    """The children that wait out their back-off, and a clock that stands still meanwhile."""

    _due: list[tuple[float, int, Child]] = field(init=False, factory=list)
    _order: Iterator[int] = field(init=False, factory=count)
    _waiting: set[Child] = field(init=False, factory=set)
    _stood_still_s: float = field(init=False, default=0.0)
    _standing_since: float = field(init=False, default=0.0)

    def plan(self, child: Child, delay_s: float) -> None:
        """Start a child again after a delay."""
        now = trio.current_time()
        if child.spec.on_exhausted is OnExhausted.ESCALATE:  # those that are set aside are counted by themselves
            if not self._waiting:
                self._standing_since = now
            self._waiting.add(child)
        child.state = ChildState.BACKING_OFF
        child.revive_at = now + delay_s
        heapq.heappush(self._due, (child.revive_at, next(self._order), child))

    def forget(self, child: Child) -> None:
        """Nothing is planned for a child any more."""
        child.revive_at = child.leader = None
        if child in self._waiting:
            self._waiting.remove(child)
            if not self._waiting:
                self._stood_still_s += trio.current_time() - self._standing_since

    def next(self) -> Child | None:
        """The child that is due first; its `revive_at` says when."""
        while self._due:
            revive_at, _, child = self._due[0]
            if child.revive_at == revive_at:
                return child
            heapq.heappop(self._due)
        return None

    def running_time(self) -> float:
        """Time that stands still while a child waits out its back-off."""
        now = self._standing_since if self._waiting else trio.current_time()
        return now - self._stood_still_s


OVER = frozenset({ChildState.ENDED, ChildState.SET_ASIDE})


@frozen(kw_only=True)
class Policy:
    """How a supervisor keeps its children."""

    name: str
    strategy: Strategy
    intensity: int
    period_s: float
    stop_total_s: float
    emit: Emit
    chance: Chance


@frozen
class _ChildEvent:
    kind: Literal["acknowledged", "ended"]
    child: Child


class _Stop:
    pass


@define(eq=False)
class SupervisorLoop:
    """One run of a supervisor. Exits, commands and the wish to stop are its inputs; nobody else writes its table."""

    policy: Policy
    table: dict[str, Child]
    nursery: trio.Nursery
    stop_asked: bool = False
    _exits: deque[Child] = field(init=False, factory=deque)
    _commands: deque[StartChild | StopChild] = field(init=False, factory=deque)
    _obeying: list[StartChild | StopChild] = field(init=False, factory=list)
    _revivals: RestartQueue = field(init=False, factory=RestartQueue)
    _restart_times: tuple[float, ...] = field(init=False, default=())
    _stop_deadline: float = field(init=False, default=math.inf)
    _post: trio.MemorySendChannel[_ChildEvent | StartChild | StopChild | _Stop] = field(init=False)
    _inbox: trio.MemoryReceiveChannel[_ChildEvent | StartChild | StopChild | _Stop] = field(init=False)

    def __attrs_post_init__(self) -> None:
        # Without a bound of its own, because bounded by what it serves: two facts for each child, one command for each
        # caller that waits.
        self._post, self._inbox = trio.open_memory_channel[_ChildEvent | StartChild | StopChild | _Stop](math.inf)

    # Inputs

    def command(self, command: StartChild | StopChild) -> None:
        """Give a command; its reply tells the result."""
        self._post.send_nowait(command)

    def ask_to_stop(self) -> None:
        """Let the loop end as soon as it looks."""
        self._post.send_nowait(_Stop())

    def _acknowledged(self, child: Child) -> None:
        self._post.send_nowait(_ChildEvent("acknowledged", child))

    def _ended(self, child: Child) -> None:
        self._post.send_nowait(_ChildEvent("ended", child))

    async def _pump(self, deadline: float = math.inf) -> bool:
        """Take in one input. False when the deadline came first."""
        with trio.CancelScope(deadline=deadline):
            self._absorb(await self._inbox.receive())
            return True
        return self._absorb_one()  # what came in the same tick as the deadline came in time

    def _absorb_one(self) -> bool:
        try:
            self._absorb(self._inbox.receive_nowait())
        except trio.WouldBlock:
            return False
        return True

    def _absorb(self, what: _ChildEvent | StartChild | StopChild | _Stop) -> None:
        match what:
            case _ChildEvent("acknowledged", child):
                self._note_started(child)
            case _ChildEvent(_, child):
                self._note_ended(child)
            case _Stop():
                if not self.stop_asked:
                    self.stop_asked = True
                    self._stop_deadline = trio.current_time() + self.policy.stop_total_s
            case command:
                self._commands.append(command)

    def _note_started(self, child: Child) -> None:
        # After a time-out it is too late: the scope is cancelled, and the end will be that of a failed start.
        if child.state is ChildState.STARTING and not child.scope.cancel_called:
            child.state = ChildState.RUNNING
            restarts = child.launches - 1
            self.policy.emit(ChildStarted(supervisor=self.policy.name, child=child.name, restarts=restarts))

    def _note_ended(self, child: Child) -> None:
        child.take_down_end()
        if child.state is ChildState.RUNNING:  # else somebody in this loop waits for the end and deals with it
            self._exits.append(child)

    # The loop

    async def start_all(self) -> None:
        """Start the children one after the other, in the order they are listed."""
        for child in list(self.table.values()):
            await self._launch(child)
            if self.stop_asked:
                return
            if child.alive:
                continue
            if child.spec.on_exhausted is OnExhausted.ESCALATE:
                self._emit_end(child, restart_in_s=None)
                raise start_failed(child)
            await self._judge(child, with_siblings=False)  # those before it have just come up, the others are to come

    async def serve(self) -> None:
        """Keep the children running until asked to stop."""
        while not self.stop_asked:
            if self._exits:
                await self._judge(self._exits.popleft())
            elif self._commands:
                await self._obey(self._commands.popleft())
            elif (due := self._revivals.next()) is None:
                await self._pump()
            elif due.revive_at is not None and due.revive_at > trio.current_time():
                await self._pump(due.revive_at)
            else:
                await self._restart(due)

    async def stop_all(self) -> ShutdownReport:
        """Stop what was added later at once, then the listed children in reverse order, each within its grace."""
        began_at = trio.current_time()
        self._stop_deadline = min(self._stop_deadline, began_at + self.policy.stop_total_s)
        self._absorb_waiting()
        reports = await self._stop_together([child for child in self.table.values() if child.dynamic])
        for child in reversed(self.table.values()):
            reports += await self._stop_together([child])
        reports += [self._report_own_end(child) for child in self.table.values() if not child.is_told]
        for child in self.table.values():
            if child.state is not ChildState.SET_ASIDE:
                child.state = ChildState.ENDED
        self._absorb_waiting()
        for command in [*self._obeying, *self._commands]:
            command.reply.refuse(StartFailed(subject_of(command), "its supervisor is stopping"))
        report = ShutdownReport(took_s=trio.current_time() - began_at, children=tuple(reports))
        self.policy.emit(SupervisorStopped(supervisor=self.policy.name, took_s=report.took_s, forced=report.forced))
        return report

    def cancel_all(self) -> None:
        """Leave nothing running, even if `stop_all` itself has failed: nobody else can cancel a shielded child."""
        for child in self.table.values():
            child.scope.cancel()

    def _report_own_end(self, child: Child) -> ChildReport:
        """It ended by itself before it was its turn, and nobody has judged that."""
        self._emit_end(child, restart_in_s=None)
        child.stop_began_at = child.ended_at
        return child.report()

    def _absorb_waiting(self) -> None:
        while self._absorb_one():
            pass

    # Starting

    async def _launch(self, child: Child) -> None:
        """Start a child and wait until it is up, has ended, or the supervisor is asked to stop."""
        self._revivals.forget(child)
        child.launch(self.nursery, self._acknowledged, self._ended)
        deadline = child.launched_at + child.spec.start_timeout_s
        while child.state is ChildState.STARTING and child.alive and not self.stop_asked:
            if not await self._pump(deadline):
                child.scope.cancel()
                deadline = math.inf

    async def _obey(self, command: StartChild | StopChild) -> None:
        if command.reply.abandoned:
            return
        self._obeying = [command]  # refused by `stop_all` if this is cut short
        if isinstance(command, StartChild):
            await self._start_added(command)
        else:
            await self._stop_named(command)
        self._obeying = []

    async def _start_added(self, command: StartChild) -> None:
        known = self.table.get(command.spec.name)
        if known is not None and known.state not in OVER:
            command.reply.refuse(StartFailed(known.name, "a child of that name is there already"))
            return
        child = self.table[command.spec.name] = Child(command.spec, dynamic=True)
        child.take_place(command.place)
        await self._launch(child)
        if self.stop_asked:
            command.reply.refuse(StartFailed(child.name, "its supervisor is stopping"))
        elif not child.alive and child.state is ChildState.STARTING:
            self._emit_end(child, restart_in_s=None)
            self._forget(child)
            command.reply.refuse(start_failed(child))
        elif command.reply.abandoned:  # the caller was cancelled: it shall not find a child it does not know of
            await self._stop_together([child])
            self._forget(child)
        else:
            command.reply.answer(None)

    async def _stop_named(self, command: StopChild) -> None:
        child = self.table.get(command.name)
        if child is None:
            command.reply.refuse(StartFailed(command.name, "there is no child of that name"))
            return
        self._drain(child)
        child.stop_began_at = trio.current_time()
        await self._stop_together([child])
        self._forget(child)
        self._bring_back_the_rest(child)
        command.reply.answer(child.report())

    # Restarting

    async def _judge(self, child: Child, *, with_siblings: bool = True) -> None:
        """Do what follows from a child's end."""
        if not is_restarted(child.spec.restart, child.ending):
            self._emit_end(child, restart_in_s=None)
            self._give_up(child, ChildState.ENDED)
        elif self._is_exhausted(child):
            self._emit_end(child, restart_in_s=None)
            self._exhausted(child)
        else:
            child.crashes_in_a_row = 1 if child.ran_s >= self.policy.period_s else child.crashes_in_a_row + 1
            jitter = self.policy.chance.random()
            delay_s = delay_before_restart(crashes_in_a_row=child.crashes_in_a_row, jitter=jitter)
            self._emit_end(child, restart_in_s=delay_s)
            if with_siblings:
                await self._stop_siblings(child, delay_s)
            self._revivals.plan(child, delay_s)

    def _is_exhausted(self, child: Child) -> bool:
        """Count this restart: by itself for a child that would be set aside, else for the whole supervisor."""
        period_s = self.policy.period_s
        if child.spec.on_exhausted is OnExhausted.SET_ASIDE:
            child.restart_times = add_restart(child.restart_times, now=child.ran_before_s, period_s=period_s)
            return len(child.restart_times) > self.policy.intensity
        self._restart_times = add_restart(self._restart_times, now=self._revivals.running_time(), period_s=period_s)
        return len(self._restart_times) > self.policy.intensity

    def _exhausted(self, child: Child) -> None:
        error = RestartsExhausted(child.name, intensity=self.policy.intensity, period_s=self.policy.period_s)
        if child.spec.on_exhausted is OnExhausted.ESCALATE:
            raise error from child.crash
        self._give_up(child, ChildState.SET_ASIDE)
        self.policy.emit(ChildSetAside(supervisor=self.policy.name, child=child.name, error=child.crash or error))

    async def _stop_siblings(self, crashed: Child, delay_s: float) -> None:
        """Stop those that are restarted together with `crashed`; their ends are not counted."""
        self._absorb_waiting()  # who has just ended by itself is not to be stopped
        names = restarted_with(self.policy.strategy, list(self.table), crashed.name)
        for sibling in [self.table[name] for name in reversed(names) if name != crashed.name]:
            if sibling.state in OVER:
                continue
            comes_back = self._drain(sibling, restart_in_s=delay_s) and sibling.spec.restart is not Restart.TEMPORARY
            await self._stop_together([sibling])
            if comes_back:
                sibling.state = ChildState.BACKING_OFF
                sibling.leader = crashed
            else:
                self._give_up(sibling, ChildState.ENDED)

    def _drain(self, child: Child, *, restart_in_s: float | None = None) -> bool:
        """Take back whatever was planned for a child. Whether it would have gone on, or come back."""
        self._revivals.forget(child)
        if child not in self._exits:
            return child.state not in OVER
        self._exits.remove(child)
        comes_back = is_restarted(child.spec.restart, child.ending)
        self._emit_end(child, restart_in_s=restart_in_s if comes_back else None)
        return comes_back

    async def _restart(self, leader: Child) -> None:
        """Start a child again, and those that were stopped with it, in order."""
        for child in [child for child in self.table.values() if child is leader or child.leader is leader]:
            await self._launch(child)
            if self.stop_asked:
                return
            if not child.alive and child.state is ChildState.STARTING:
                await self._judge(child)
                break
        self._bring_back_the_rest(leader)

    def _bring_back_the_rest(self, leader: Child) -> None:
        """Whoever waits for a sibling that will not lead them back comes back without it."""
        if leader.state is ChildState.BACKING_OFF:
            return
        rest = [child for child in self.table.values() if child.leader is leader]
        for child in rest:
            child.leader = rest[0]
        if rest:
            rest[0].leader = None
            self._revivals.plan(rest[0], 0.0)

    # Stopping

    async def _stop_together(self, children: Iterable[Child]) -> list[ChildReport]:
        """Ask all of them at once, wait for each until its grace is over, then cancel it."""
        asked = [child for child in children if child.alive]
        for child in asked:
            child.begin_stop()
        for child in sorted(asked, key=lambda child: child.cancel_at):
            while child.alive and not child.scope.cancel_called:
                if not await self._pump(min(child.cancel_at, self._stop_deadline)):
                    self._cancel_late([child for child in asked if child.alive])
        for child in asked:
            while child.alive:
                await self._pump()
        for child in asked:
            self._emit_end(child, restart_in_s=None)
            child.state = ChildState.ENDED
        return [child.report() for child in asked]

    def _cancel_late(self, alive: list[Child]) -> None:
        now = trio.current_time()
        for child in alive:
            if not child.scope.cancel_called and min(child.cancel_at, self._stop_deadline) <= now:
                self.policy.emit(
                    ChildOverran(supervisor=self.policy.name, child=child.name, grace_s=child.spec.grace_s)
                )
                child.scope.cancel()

    def _give_up(self, child: Child, state: ChildState) -> None:
        child.state = state
        child.report_removed()
        if child.dynamic and child.spec.restart is Restart.TEMPORARY:
            self.table.pop(child.name, None)

    def _forget(self, child: Child) -> None:
        child.report_removed()
        child.state = ChildState.ENDED
        self.table.pop(child.name, None)

    def _emit_end(self, child: Child, *, restart_in_s: float | None) -> None:
        child.is_told = True
        by, name, ran_s = self.policy.name, child.name, child.ran_s
        if child.crash is None:
            self.policy.emit(ChildExited(supervisor=by, child=name, how=child.ending.value, ran_s=ran_s))
        else:
            crashed = ChildCrashed(supervisor=by, child=name, error=child.crash, ran_s=ran_s, restart_in_s=restart_in_s)
            self.policy.emit(crashed)


@frozen
class StartChild:
    """Command: add a child and start it. Answered when it is up."""

    spec: ChildSpec
    place: Place
    reply: Reply[None]


@frozen
class StopChild:
    """Command: stop a child and forget it. Answered with how it ended."""

    name: str
    reply: Reply[ChildReport]


def subject_of(command: StartChild | StopChild) -> str:
    """The name of the child a command is about."""
    return command.spec.name if isinstance(command, StartChild) else command.name


def start_failed(child: Child) -> StartFailed:
    """What whoever wanted a child is told when it did not come up."""
    if isinstance(child.crash, StartFailed) and child.crash.child == child.name:
        return child.crash
    error = StartFailed(child.name, describe(child.crash))
    error.__cause__ = child.crash
    return error

"""A world that watches the protocol between callers, dispatcher, limiters and reconciler at every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from attrs import define, evolve, field

from actors.actor import Recheck
from actors.search.rate_limiter import Admit, Decide, Withdraw
from actors.search.search import Search
from actors.search.source_directory import SourceEntry
from cormorant.rules.errors import ActorError, AlreadyExists, CommitUnknown, StorageError, leaves_of
from cormorant.rules.events import ChildCrashed, Stamped
from cormorant.rules.search.events import RequestFinished
from cormorant.rules.search.outcomes import SearchQueueFull
from cormorant.rules.search.reasons import ReasonName
from cormorant.rules.search.requests import SearchPage, SearchRequest
from cormorant.rules.search.reservations import Reserved
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import SearchSettings
from cormorant.rules.settings.sources import limits_of
from cormorant.services.searches import ADOPT_S
from cormorant.services.sources import Sources
from cormorant.testing import settings
from storage.search import source_states
from storage.search import sources as source_table
from storage.search.requests import record_result, reserve_now
from storage.search.sources import SourceRecord, UnknownSource
from supervisors import Service
from tests.conformance.crashing import address_of, assembly_of, broken_stream, unread_of
from tests.conformance.days import ANSWERS, CALM_JOBS, Followed, World

QUEUE_MAX = 6
"""So few that callers reach it."""
ADDED = "c"
"""The source that is added by command, so that it can be removed and changed."""
SET_ASIDE_AFTER = 12
_ANSWERS = {"found": 60, "broken": 10, "hangs": 10, "crashes": 5, "refused": 5}
_ALREADY_CANCELLED = (ActorError, SearchQueueFull, StorageError, UnknownSource)
"""What a submission may raise while parts crash, the database is away and sources are removed."""


class Steps(trio.abc.Instrument):
    """Counts the batches of tasks that trio runs, and looks at the mailboxes after each."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.count = 0
        self._look = look

    def before_io_wait(self, timeout: float) -> None:
        """A batch has run."""
        self.count += 1
        self._look()


@define(eq=False)
class Protocol(World):
    """Callers, sources, faults, and a look at each promise whenever it can be broken. What is broken is collected."""

    lag_s: float = 0.0
    """How long the database takes for each reservation and each end."""
    has_cache: bool = False
    loses_callbacks: bool = False
    """Whether the callbacks crashed, so that what they were told is lost."""
    weights: Sequence[int] = tuple(_ANSWERS.get(kind, 0) for kind in ANSWERS)
    searches: list[Search] = field(factory=list)
    callers: list[trio.CancelScope] = field(factory=list)
    doubts: list[bool] = field(factory=list)
    """For each coming write of a request: whether it happens although its COMMIT is lost."""
    steps: Steps = field(init=False)
    _service: Service | None = field(init=False, default=None)
    _run: Callable[..., Any] = field(init=False)
    _reserved: set[trio.lowlevel.Task] = field(init=False, factory=set)
    """The tasks whose request is reserved and not sent yet."""
    _paused: Counter[str] = field(init=False, factory=Counter)
    """Whether each source is paused in the database."""
    _changing: Counter[str] = field(init=False, factory=Counter)
    """How many changes of a source are under way."""
    _changed_at: dict[trio.lowlevel.Task, float] = field(init=False, factory=dict)
    _unread_since: dict[int, tuple[int, object]] = field(init=False, factory=dict)
    _left_for: Counter[str] = field(init=False, factory=Counter)
    """For how many batches requests wait that every caller has left, and no withdrawal of them is unread."""
    _unwanted_since: dict[str, float] = field(init=False, factory=dict)
    """Since when a source is asked for what every caller has left."""
    _key: int = field(init=False, default=0)
    _branch_crashed_at: float = field(init=False, default=-1e9)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.steps = Steps(self._look)
        self._run = self.gateway.run
        vars(self.gateway)["run"] = self._watched_run

    def service(self) -> Service:
        """A service with two configured sources; the third is added by command."""
        chosen = settings(
            sources={name: each for name, each in self.limits.items() if name != ADDED},
            jobs=CALM_JOBS,
            search=SearchSettings(slots=self.slots, queue_max=QUEUE_MAX, cache_enabled=self.has_cache),
        )
        self._service = self.simulation.open_service(
            chosen, gateway=self.gateway, listeners=[self.events, self._heard], ask=self.ask
        )
        return self._service

    def expect(self, holds: bool, promise: str) -> None:  # noqa: FBT001 - it reads as a sentence
        """Note a promise that does not hold."""
        if not holds:
            self.broken.append(AssertionError(f"{promise} (at {trio.current_time():.3f} s)"))

    # The database, as the service reaches it

    async def _watched_run(self, function: Callable[..., Any], /, *args: Any, **words: Any) -> Any:
        if function is source_states.change:
            return await self._change(args[0], args, words)
        if function is reserve_now:
            self._look_at_decision(args[0])
        elif function is not record_result:
            return await self._run(function, *args, **words)
        if self.lag_s:
            await trio.sleep(self.lag_s)
        is_doubtful, is_written = bool(self.doubts), not self.doubts or self.doubts.pop()
        answer: Any = await self._run(function, *args, **words) if is_written else None
        if is_doubtful:
            raise CommitUnknown("the connection was cut")
        if function is reserve_now and isinstance(answer[0], Reserved):
            self._reserved.add(trio.lowlevel.current_task())
        return answer

    async def _change(self, source_id: int, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        """Change a source by hand, and know in the same transaction what is true from then on."""
        name = self._name_of(source_id)

        def changed(*args: Any, **words: Any) -> Any:
            known = source_states.change(*args, **words)
            if name is not None:
                self._note_change(name, is_paused=known.state.is_paused)
            return known

        known = await self._run(changed, *args, **words)
        self._changed_at[trio.lowlevel.current_task()] = trio.current_time()
        return known

    def _note_change(self, name: str, *, is_paused: bool) -> None:
        self._paused[name] = is_paused
        site = self.sites[name]
        if not is_paused:
            site.paused_since = None
        elif site.paused_since is None:
            site.paused_since = trio.current_time()

    def _name_of(self, source_id: int) -> str | None:
        return next((name for name, entry in self._entries().items() if entry.record.id == source_id), None)

    def _entries(self) -> dict[str, SourceEntry]:
        return {} if self._service is None else assembly_of(self._service).directory.by_name

    # The promises

    def _look(self) -> None:
        """After each batch of tasks: nothing is fuller than its bound, and no request waits without a caller."""
        service = self._service
        if service is None:
            return
        unread: dict[int, tuple[int, object]] = {}
        tickets = 0
        for name, entry in self._entries().items():
            messages = unread_of(entry.address)
            kinds = Counter(map(type, messages))
            tickets += sum(len(message.tickets) for message in messages if type(message) is Admit)
            self.expect(kinds[Withdraw] <= QUEUE_MAX, f"{name} has {kinds[Withdraw]} withdrawals unread")
            self.expect(max(kinds[Decide], kinds[Recheck]) <= 1, f"{name} has a message twice that is coalesced")
            unread |= {id(each): self._unread_since.get(id(each), (self.steps.count, each)) for each in messages}
            self._look_at_left(name, entry, withdrawals=kinds[Withdraw])
        count = assembly_of(service).intake.open.count
        self.expect(tickets <= count <= QUEUE_MAX, f"{tickets} tickets are unread, {count} are open")
        self._unread_since = unread

    def _look_at_left(self, name: str, entry: SourceEntry, *, withdrawals: int) -> None:
        """What every caller has left does not wait, and is not asked for any longer."""
        view = entry.view()
        left = entry.requests.waiting() - len(view.waiting)
        # What was sent to a limiter that waits for a message is in none of its hands for one batch.
        self._left_for[name] = self._left_for[name] + 1 if left > withdrawals else 0
        self.expect(self._left_for[name] <= 1, f"{name}: {left} requests wait that every caller has left")
        now = trio.current_time()
        if self.sites[name].in_flight <= sum(1 for each in view.running if each.shared_by):
            self._unwanted_since.pop(name, None)
        elif self._unwanted_since.setdefault(name, now) < now:
            self.expect(False, f"{name} is asked although every caller has left")  # noqa: FBT003 - as above

    def _look_at_decision(self, source_id: int) -> None:
        """A request was just chosen: every message that was there by then was read."""
        name = self._name_of(source_id)
        if name is not None:
            unread = unread_of(self._entries()[name].address)
            since = min((self._unread_since.get(id(each), (self.steps.count, each))[0] for each in unread), default=1e9)
            self.expect(since >= self.steps.count, f"{name} decided with messages unread: {unread}")

    def _look_at_mailbox(self, name: str, when: str) -> None:
        """Whether a limiter has read everything before it acts."""
        entry = self._entries().get(name)
        # That a task has ended is told by the drain itself.
        unread = [] if entry is None else [each for each in unread_of(entry.address) if type(each) is not Decide]
        self.expect(not unread, f"{name} had messages unread {when}: {unread}")

    def _heard(self, stamped: Stamped) -> None:
        event = stamped.event
        if isinstance(event, RequestFinished):
            self._look_at_mailbox(event.source, "when a request was settled")
        elif isinstance(event, ChildCrashed):
            is_ours = {str(each) for each in leaves_of(event.error)} == {"broken"}
            self.expect(is_ours, f"{event.child} crashed by itself: {event.error!r}")

    async def ask(self, record: SourceRecord, request: SearchRequest) -> SearchPage:
        """The search function of all sources: only a request that is reserved may come here."""
        self.expect(self._is_reserved(), f"{record.name} was asked without a reservation")
        self._look_at_mailbox(record.name, "when a request was sent")
        return await super().ask(record, request)

    def _is_reserved(self) -> bool:
        """Whether the task that asks, or one that it is part of, has reserved, and has not asked since."""
        task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        while task is not None and task not in self._reserved:
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        if task is None:
            return False
        self._reserved.discard(task)
        return True

    # What callers, people and faults do

    async def submit(self, service: Service, names: Sequence[str], query: str, *, waits: bool, **how: Any) -> None:
        """Search. A caller that waits may be cancelled at any step; then all that it waited for has ended."""
        known = [name for name in names if name in service.sources.directory.by_name]
        told: list[str] = []
        with suppress(*_ALREADY_CANCELLED), trio.CancelScope() as scope:
            if waits:
                self.callers.append(scope)
            search = await service.search(
                query,
                sources=known,
                on_complete=lambda _, source, *__: told.append(source),
                on_job_done=lambda _: told.append("done"),
                **how,
            )
            self.searches.append(search)
            self.followed.append(Followed(search, known, told))
            if waits:
                await self._wait(search)

    async def _wait(self, search: Search) -> None:
        try:
            async with search:
                async for _ in search:
                    pass
        finally:
            self.expect(search.is_done, "a caller has left, and its search goes on")

    async def change(self, service: Service, name: str, verb: str) -> None:
        """Pause, resume or reset. What `explain` says then is true, unless the limiter could not answer in time."""
        entry = service.sources.directory.by_name.get(name)
        if entry is None:
            return
        self._changing[name] += 1
        try:
            await getattr(service, f"{verb}_source")(name)
        except StorageError:
            return
        finally:
            self._changing[name] -= 1
        if self._changing[name] or service.sources.directory.by_name.get(name) is not entry:
            return  # the last one that returns shows what is true
        waited_s = trio.current_time() - self._changed_at.pop(trio.lowlevel.current_task())
        is_hopeless = bool(entry.snapshot.gone_because) or waited_s >= ADOPT_S - 1e-6
        self.expect(is_hopeless or self.explains(service, name), f"explain is wrong {waited_s:g} s after {verb} {name}")

    def explains(self, service: Service, name: str) -> bool:
        """Whether `explain` says of a pause what the database has."""
        reasons = {reason.name for reason in service.explain(name).reasons}
        return (ReasonName.PAUSED in reasons) == bool(self._paused[name])

    async def edit(self, service: Service, verb: str) -> None:
        """Add, change or remove the source that was added by command, and let the reconciler read it."""
        edited = Sources(service.environment)
        self._key += 1
        source = self.limits[ADDED]
        limits = limits_of(source, service.settings.limits)
        with suppress(AlreadyExists, StorageError, UnknownSource):
            if verb == "add":
                await edited.add(ADDED, evolve(source, key=Secret(f"key {self._key}")), limits)
            elif verb == "remove":
                await edited.remove(ADDED)
            else:
                found = await service.environment.database.read(source_table.find, ADDED)
                changed = evolve(found, key=Secret(f"key {self._key}"))
                await service.transaction(source_table.change, changed, now=service.clock.now())
        self.recheck(service)

    def recheck(self, service: Service) -> None:
        """Let the reconciler read the sources."""
        address_of(service, "source_keeper").tell_once(Recheck())

    def set_aside(self, service: Service, name: str) -> None:
        """Let a limiter crash until it is not started again."""
        for _ in range(SET_ASIDE_AFTER):
            self.crash_limiter(service, name)

    def crash_callbacks(self, service: Service) -> None:
        """Let the callbacks crash, and with them all that starts after them. Not so often that they would be given up."""
        if trio.current_time() > self._branch_crashed_at + 30:
            self._branch_crashed_at = trio.current_time()
            self.loses_callbacks = True
            address_of(service, "callbacks").tell_nowait(broken_stream())

    def crash_limiter(self, service: Service, name: str) -> None:
        """Let a limiter crash, if it is there."""
        with suppress(ActorError, KeyError):
            super().crash_limiter(service, name)

    async def calm_down(self, service: Service) -> None:
        """Take every obstacle away. What is left then is nothing."""
        self.doubts.clear()
        self.gateway.come_back()
        await trio.sleep(60)
        while ADDED not in service.sources.directory.by_name:  # an edit that an outage held may remove it yet
            await self.edit(service, "add")
            await trio.sleep(5)
        await super().calm_down(service)
        await trio.sleep(60)
        assembly = assembly_of(service)
        self.expect((assembly.intake.open.count, assembly.intake.waiting) == (0, {}), "tickets stay open")
        for name, entry in self._entries().items():
            self.expect(entry.address.waiting() == 0, f"{name} has not read {unread_of(entry.address)}")
            self.expect(entry.view().running + entry.view().waiting == (), f"{name} has requests left")
            if not entry.snapshot.gone_because:
                self.expect(self.explains(service, name), f"explain is wrong of {name} in the end")
                self.expect(not entry.requests.left_over + entry.requests.unrecorded, f"{name} has ends to record")

    def assert_ended(self) -> None:
        """After the service: nothing is taken, nothing waits, and every promise held."""
        assert self._service is not None
        slots = assembly_of(self._service).slots
        assert (slots.pool.taken, slots._waiting) == (0, {}), "a slot did not come back"  # noqa: SLF001 - what it holds is the question
        assert all(search.is_done for search in self.searches), "a caller waits for ever"
        assert self.broken == [], self.broken[:3]
        for each in self.followed:
            assert Counter(outcome.source for outcome in each.search.outcomes) == Counter(each.sources)
            if not self.loses_callbacks:
                each.assert_whole()

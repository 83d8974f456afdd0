"""Dispatcher: admits searches, orders them in a 5 ms window and admits each at its source."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Address, Reply
from actors.environment import Environment
from actors.search.callbacks import CallbackStream, OnComplete, OnJobDone
from actors.search.search import Execute, Search, Ticket
from actors.search.source_requests import SourceRequests
from cormorant.rules.errors import ActorCrashed
from cormorant.rules.search.events import SearchSubmitted
from cormorant.rules.search.limits import Lane
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SearchQueueFull
from cormorant.rules.search.priorities import Priority
from cormorant.rules.search.requests import Result, SearchRequest


@frozen(kw_only=True)
class Submit:
    """Command: run this search at every source it names. Answered with the `Search`, or `SearchQueueFull`."""

    request: SearchRequest
    sources: Sequence[str]
    cached: Mapping[str, Sequence[Result]]
    """What needs no asking."""
    priority: Priority
    max_wait_s: float | None
    timeout_s: float
    pace_s: float | None
    lane: Lane
    consumer: str
    execute: Execute | None
    on_complete: OnComplete | None
    on_job_done: OnJobDone | None
    reply: Reply[Search]


@define(eq=False)
class AdmittedTickets:
    """Searches that were taken in and are not yet in line. Belongs to the address, so that a crash leaves nobody waiting."""

    sequence: int = 0
    searches: int = 0
    open: int = 0
    """How many tickets have no outcome yet."""
    waiting: list[Ticket] = field(factory=list)

    def ended(self, _: Outcome) -> None:
        """A ticket has its outcome."""
        self.open -= 1

    def shut_down(self) -> None:
        """What is not in line yet will not be."""
        tickets, self.waiting = self.waiting, []
        for ticket in tickets:
            ticket.end(OutcomeStatus.SHUT_DOWN)


@define(eq=False, kw_only=True)
class Dispatcher(Actor[Submit]):
    """One loop without any await sorts, deduplicates, and wakes the limiters."""

    environment: Environment = field(kw_only=False)
    directory: Mapping[str, SourceRequests]
    intake: AdmittedTickets
    callbacks: Address[CallbackStream]

    async def begin(self) -> None:
        """What a crash left behind ends as failed: its submitters were told that we crashed."""
        left, self.intake.waiting = self.intake.waiting, []
        for ticket in left:
            ticket.end(OutcomeStatus.FAILED, ActorCrashed("dispatcher"))

    async def handle(self, message: Submit) -> None:
        """Take a search in."""
        if self.intake.open + len(message.sources) > self.environment.settings.search.queue_max:
            message.reply.refuse(SearchQueueFull(self.environment.settings.search.queue_max))
            return
        search = self._open(message)
        message.reply.answer(search)
        self.environment.emit(
            SearchSubmitted(search_id=search.id, priority=message.priority.name.lower(), sources=len(message.sources))
        )
        if self.wake_at == math.inf and self.intake.waiting:
            # A fixed window, not a debounce: whoever keeps coming must not keep the others waiting.
            self.wake_at = trio.current_time() + self.environment.settings.search.window_s

    async def wake(self) -> None:
        """The window is over: the most urgent first, then in the order they came."""
        self.wake_at = math.inf
        tickets = self.intake.waiting
        tickets.sort(key=lambda ticket: (ticket.priority, ticket.sequence), reverse=True)
        while tickets:
            # It stays in the intake until it is in line: a crash here leaves nobody waiting for ever.
            self._enqueue(tickets[-1])
            tickets.pop()

    def _enqueue(self, ticket: Ticket) -> None:
        if not ticket.is_live:
            return
        requests = self.directory.get(ticket.source)
        if requests is None:
            ticket.end(OutcomeStatus.SHUT_DOWN)
        else:
            requests.admit(ticket)

    async def end(self) -> None:
        """What is not in line yet will not be."""
        self.intake.shut_down()

    def _open(self, message: Submit) -> Search:
        intake = self.intake
        intake.searches += 1
        intake.open += len(message.sources)
        if message.on_complete is None and message.on_job_done is None:
            search = Search(intake.searches, len(message.sources), intake.ended, _ignore)
        else:
            search = self._followed(message)
        now = self.environment.now()
        search.tickets = [self._ticket(message, source, search, now) for source in message.sources]
        for ticket in search.tickets:
            if ticket.source in message.cached:
                _answer_from_cache(ticket, message.cached[ticket.source])
            else:
                intake.waiting.append(ticket)
        return search

    def _followed(self, message: Submit) -> Search:
        send, receive = trio.open_memory_channel[Outcome](len(message.sources) + 1)
        number, intake = self.intake.searches, self.intake

        def told(outcome: Outcome) -> None:
            intake.ended(outcome)
            with suppress(trio.BrokenResourceError):  # whoever called back has ended; the search goes on without
                send.send_nowait(outcome)

        self.callbacks.tell_nowait(
            CallbackStream(
                search_id=number, outcomes=receive, on_complete=message.on_complete, on_job_done=message.on_job_done
            )
        )
        return Search(number, len(message.sources), told, lambda _: send.close())

    def _ticket(self, message: Submit, source: str, search: Search, now: datetime) -> Ticket:
        self.intake.sequence += 1
        return Ticket(
            sequence=self.intake.sequence,
            source=source,
            request=message.request,
            search=search,
            priority=message.priority,
            submitted_at=now,
            deadline=None if message.max_wait_s is None else now + timedelta(seconds=message.max_wait_s),
            max_wait_s=message.max_wait_s,
            timeout_s=message.timeout_s,
            pace_s=message.pace_s,
            lane=message.lane,
            consumer=message.consumer,
            execute=message.execute,
        )


def _answer_from_cache(ticket: Ticket, results: Sequence[Result]) -> None:
    ticket.finish(
        Outcome(
            job_id=ticket.search.id,
            source=ticket.source,
            status=OutcomeStatus.FOUND,
            results=tuple(results),
            coverage=(ticket.source,),
            is_cached=True,
        )
    )


def _ignore(_: object) -> None:
    """Nobody follows."""

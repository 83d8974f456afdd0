"""Dispatcher: takes searches in, orders them in a 5 ms window and sends their tickets to the limiters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import trio
from attrs import define, field, frozen

from actors.actor import Actor, Address, Reply
from actors.environment import Environment
from actors.search.callbacks import CallbackStream, OnComplete, OnJobDone
from actors.search.rate_limiter import Admit
from actors.search.search import OpenTickets, Search, Terms, Ticket
from actors.search.source_directory import SourceDirectory
from cormorant.rules.errors import ActorCrashed, ActorGone, MailboxFull
from cormorant.rules.search.events import SearchSubmitted
from cormorant.rules.search.outcomes import Outcome, OutcomeStatus, SearchQueueFull
from cormorant.rules.search.requests import Result, SearchRequest


@frozen(kw_only=True)
class Submit:
    """Command: run this search at every source it names. Answered with the `Search`, or `SearchQueueFull`."""

    request: SearchRequest
    sources: Sequence[str]
    cached: Mapping[str, Sequence[Result]]
    """Answers that are known already, by source."""
    terms: Terms
    submitted_at: datetime
    on_complete: OnComplete | None
    on_job_done: OnJobDone | None
    reply: Reply[Search]


@define(eq=False)
class TicketIntake:
    """Tickets that were taken in and are not sent to their limiter yet.

    It belongs to the address of the dispatcher, so that no caller waits for a ticket of a dispatcher that crashed.
    """

    sequence: int = 0
    searches: int = 0
    open: OpenTickets = field(factory=OpenTickets)
    waiting: dict[str, list[Ticket]] = field(factory=dict)
    """By source."""

    def end(self, status: OutcomeStatus, error: BaseException | None = None) -> None:
        """End them all."""
        groups, self.waiting = self.waiting, {}
        for tickets in groups.values():
            for ticket in tickets:
                ticket.end(status, error)


@define(eq=False, kw_only=True)
class Dispatcher(Actor[Submit]):
    """One loop without any await takes searches in, sorts their tickets and sends them."""

    environment: Environment = field(kw_only=False)
    directory: SourceDirectory
    intake: TicketIntake
    callbacks: Address[CallbackStream]

    async def begin(self) -> None:
        """End what a crash left behind as failed: its callers were told of the crash."""
        self.intake.end(OutcomeStatus.FAILED, ActorCrashed(self.address.name))

    async def handle(self, message: Submit) -> None:
        """Take a search in."""
        search_settings = self.environment.settings.search
        if self.intake.open.count + len(message.sources) > search_settings.queue_max:
            message.reply.refuse(SearchQueueFull(search_settings.queue_max))
            return
        search = self._open(message)
        message.reply.answer(search)
        priority = message.terms.priority.name.lower()
        self.environment.emit(SearchSubmitted(search_id=search.id, priority=priority, sources=len(message.sources)))
        if self.wake_at == math.inf and self.intake.waiting:
            # A fixed window, not a debounce: a caller that continues to submit must not keep the others waiting.
            self.wake_at = trio.current_time() + search_settings.window_s

    async def wake(self) -> None:
        """The window is over: send each source its tickets, the most urgent first, then in the order they came."""
        self.wake_at = math.inf
        waiting = self.intake.waiting
        while waiting:
            # They stay in the intake until they are sent: after a crash no caller waits for ever.
            source = next(iter(waiting))
            self._send(source, waiting[source])
            del waiting[source]

    def _send(self, source: str, waiting: list[Ticket]) -> None:
        tickets = [ticket for ticket in waiting if ticket.is_live]
        tickets.sort(key=lambda ticket: (ticket.terms.priority, ticket.sequence))
        if not tickets:
            return
        entry = self.directory.by_name.get(source)
        admit = Admit(tickets=tuple(tickets))
        if entry is None:
            admit.lost(ActorGone(source))
            return
        try:
            entry.address.tell_nowait(admit)
        except (ActorGone, MailboxFull) as error:
            admit.lost(error)
        else:
            for ticket in tickets:
                ticket.is_unread = True

    async def end(self) -> None:
        """End what was not sent."""
        self.intake.end(OutcomeStatus.SHUT_DOWN)

    def _open(self, message: Submit) -> Search:
        intake = self.intake
        intake.searches += 1
        search = Search(intake.searches, len(message.sources), self._followers_of(message))
        intake.open.count += len(message.sources)
        max_wait_s = message.terms.max_wait_s
        deadline = None if max_wait_s is None else message.submitted_at + timedelta(seconds=max_wait_s)
        search.tickets = [self._ticket(message, source, search, deadline) for source in message.sources]
        for ticket in search.tickets:
            if ticket.source in message.cached:
                _answer_from_cache(ticket, message.cached[ticket.source])
            else:
                intake.waiting.setdefault(ticket.source, []).append(ticket)
        return search

    def _followers_of(self, message: Submit) -> trio.MemorySendChannel[Outcome] | None:
        """Where the outcomes go for the callbacks of a search; None: it has none."""
        if message.on_complete is None and message.on_job_done is None:
            return None
        send, receive = trio.open_memory_channel[Outcome](len(message.sources) + 1)
        self.callbacks.tell_nowait(
            CallbackStream(
                search_id=self.intake.searches,
                outcomes=receive,
                on_complete=message.on_complete,
                on_job_done=message.on_job_done,
            )
        )
        return send

    def _ticket(self, message: Submit, source: str, search: Search, deadline: datetime | None) -> Ticket:
        self.intake.sequence += 1
        return Ticket(
            sequence=self.intake.sequence,
            source=source,
            request=message.request,
            search=search,
            terms=message.terms,
            submitted_at=message.submitted_at,
            deadline=deadline,
            open_tickets=self.intake.open,
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

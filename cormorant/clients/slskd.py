"""Client for searches through slskd: start a search, poll it to its end, fetch the results, remove the search."""

from __future__ import annotations

import math
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

import trio
from attrs import define, field, frozen

from cormorant.clients.http.json_api import error_text_of, json_body, read_json, segment
from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.clients.slskd_replies import error_of_search, flags_of, read_responses
from cormorant.rules.json_documents import Json, number_of, text_of
from cormorant.rules.ports import Ports
from cormorant.rules.search.outcomes import SourceError, SourceRefused, SourceUnavailable, Unreachable
from cormorant.rules.secrets import Secret, spellings
from cormorant.rules.watch.soulseek import PeerResponse

API: Final = "/api/v0"
TEXT_LENGTH_MAX: Final = 200
RESPONSES_MAX: Final = 250
FILES_MAX: Final = 10_000
USUAL_S: Final = 60.0
"""Longest time for a search whose caller has no time-out."""

_NOT_STARTED: Final = range(400, 500)
_LIMITS: Final = FetchLimits(timeout_s=10.0, body_max_bytes=50_000_000)
"""Those of one request."""


@frozen(kw_only=True)
class SlskdFound:
    """The responses of peers. `was_cut`: the search was cancelled while peers still answered, so there may be more."""

    responses: tuple[PeerResponse, ...]
    was_cut: bool = False


@define(eq=False)
class SlskdClient:
    """Searches through one slskd. Raises a `SourceError`."""

    _url: str
    _key: Secret
    _transport: Transport
    _environment: Ports

    async def search(self, text: str) -> SlskdFound:
        """Find what peers share that has all words of `text` in its path.

        The search fits into the time-out of the caller, which is the deadline of the cancel scopes around this call.
        """
        if not text.strip() or len(text) > TEXT_LENGTH_MAX:
            raise SourceRefused(f"a search needs 1 to {TEXT_LENGTH_MAX} characters; this has {len(text.strip())}")
        left_s = trio.current_effective_deadline() - trio.current_time()
        times = search_times(USUAL_S if left_s == math.inf else left_s)
        # Our id, so that a search whose start was not confirmed can be removed, too.
        run = _Search(self, str(UUID(int=self._environment.chance.getrandbits(128), version=4)), times)
        try:
            return await run.results(text)
        finally:
            # Without the shield a search that is cancelled would go on in slskd and stay there.
            with trio.move_on_after(times.tidy_s(after_s=run.age_s), shield=True):
                await run.tidy()

    async def call(self, method: str, path: str, content: bytes = b"") -> Answer:
        """Send one request and give its answer, whatever its status."""
        # Also without a body: slskd answers 415 to what does not say that it is JSON.
        headers = {"X-API-Key": self._key.reveal(), "Content-Type": "application/json", "Accept": "application/json"}
        return await self._transport.ask(
            method,
            f"{self._url.rstrip('/')}{API}{path}",
            body=content,
            headers=headers,
            secrets=[self._key],
            limits=_LIMITS,
        )

    async def read(self, answer: Answer, kind: type[dict[str, Any] | list[Any]]) -> Any:
        """The body, read in a thread. Raises what the status of the answer stands for."""
        refusal = error_of_search(answer.status, error_text_of(answer, spellings([self._key])))
        return await read_json(answer, self._environment.offload, kind, refusal)

    async def offers(self, shown: list[Any]) -> tuple[PeerResponse, ...]:
        """What peers offer, read in a thread."""
        return await self._environment.offload(read_responses, shown)


@define(eq=False)
class _Search:
    """One search, from its start until slskd has removed it."""

    client: SlskdClient
    id: str
    times: SearchTimes
    began_at: float = field(init=False, factory=trio.current_time)
    may_exist: bool = field(init=False, default=False)
    is_started: bool = field(init=False, default=False)
    has_run: bool = field(init=False, default=False)
    is_over: bool = field(init=False, default=False)
    state: str = field(init=False, default="")
    count: int = field(init=False, default=0)
    """Responses that slskd says it has received."""

    @property
    def path(self) -> str:
        """Where slskd has it."""
        return f"/searches/{segment(self.id)}"

    @property
    def age_s(self) -> float:
        """Seconds since the start."""
        return trio.current_time() - self.began_at

    async def results(self, text: str) -> SlskdFound:
        """Run the search to its end, or cut it, and fetch its results."""
        with trio.move_on_at(self.began_at + self.times.give_up_s):
            await self._start(text)
            with trio.move_on_at(self.began_at + self.times.cut_s):
                await self._end()
            if not self.is_over:
                await self._cut()
            was_cut = "Cancelled" in flags_of(self.state)
            if was_cut and not self.has_run:
                raise SourceUnavailable(
                    f"slskd kept the search in its queue for {self.age_s:.3g} s and did not begin it"
                )
            return SlskdFound(responses=await self._responses(), was_cut=was_cut)
        raise SourceUnavailable(self._why_late())

    async def _start(self, text: str) -> None:
        """Ask for the search. slskd starts one search at a time: while it starts another one, try again, ever later."""
        wait_s = self.times.poll_s
        answer = await self._post(text)
        while answer.status == HTTPStatus.TOO_MANY_REQUESTS and self.age_s + wait_s < self.times.cut_s:
            await trio.sleep(wait_s)
            wait_s *= 2
            answer = await self._post(text)
        started = await self.client.read(answer, dict)
        # An older slskd may choose an id of its own.
        self.id = text_of(started, "id") or self.id
        self.is_started = True

    async def _post(self, text: str) -> Answer:
        """Send the request. A search that was refused does not exist; one that was not answered may."""
        wanted = {
            "id": self.id,
            "searchText": text,
            "searchTimeout": self.times.quiet_ms,
            "responseLimit": RESPONSES_MAX,
            "fileLimit": FILES_MAX,
        }
        self.may_exist = True
        try:
            answer = await self.client.call("POST", "/searches", json_body(wanted))
        except Unreachable:
            self.may_exist = False
            raise
        self.may_exist = answer.status not in _NOT_STARTED
        return answer

    async def _cut(self) -> None:
        """Cancel the search. slskd keeps the responses that it has received."""
        # A slow or failed answer says nothing about the search: its state does.
        with trio.move_on_after(self.times.cancel_s), suppress(SourceError):
            await self.client.call("PUT", self.path)
        await self._end()

    async def _responses(self) -> tuple[PeerResponse, ...]:
        """Fetch the results. slskd shows that a search has ended a moment before it shows the responses."""
        while True:
            shown = await self.client.read(await self.client.call("GET", f"{self.path}/responses"), list)
            if shown or not self.count:
                return await self.client.offers(shown)
            await trio.sleep(self.times.poll_s)

    async def tidy(self) -> None:
        """Cancel the search if it still runs, and remove it. Failure is ignored: the results do not depend on it."""
        if not self.may_exist:
            return
        if not self.is_over:
            # Half of the time: the rest is for the removal. A search that is removed before it has ended comes back.
            with trio.move_on_after(self.times.tidy_s(after_s=self.age_s) / 2), suppress(SourceError):
                await self.client.call("PUT", self.path)
                await self._end()
        with suppress(SourceError):
            await self.client.call("DELETE", self.path)

    async def _end(self) -> None:
        """Poll until the search has ended."""
        while True:
            answer = await self.client.call("GET", self.path)
            if answer.status == HTTPStatus.NOT_FOUND:
                self.may_exist = False
                raise SourceUnavailable(
                    "slskd no longer knows the search; was it restarted, or the search removed there?"
                )
            self._note(await self.client.read(answer, dict))
            if self.is_over:
                return
            await trio.sleep(self.times.poll_s)

    def _note(self, search: Json) -> None:
        """Keep the state. Only "Completed" is an end: a search may be requested and queued before it runs."""
        self.state = text_of(search, "state")
        self.count = number_of(search, "responseCount") or 0
        flags = flags_of(self.state)
        self.is_over = search.get("isComplete") is True or "Completed" in flags
        self.has_run = self.has_run or "InProgress" in flags or self.count > 0
        if self.is_over and "Errored" in flags:
            raise SourceUnavailable(f"the search failed in slskd ({self.state[:40]}); its log has the reason")

    def _why_late(self) -> str:
        within = f"within {self.times.give_up_s:.3g} s"
        if not self.is_started:
            return f"slskd did not confirm {within} that it started the search"
        if not self.is_over:
            told = f"slskd was told to end the search after {self.times.cut_s:.3g} s and did not {within}"
            return f"{told}; responses lost: {self.count}"
        return f"slskd ended the search and did not hand over its responses {within}; responses lost: {self.count}"


QUIET_MS_MIN: Final = 5
"""slskd refuses a shorter silence. Its validation has no unit, and slskd uses the number as milliseconds."""

_QUIET_S_MAX: Final = 12.0
_QUIET_SHARE: Final = 1 / 3
_CUT_BEFORE_S: Final = 5.0
_CUT_SHARE: Final = 2 / 3
_GIVE_UP_SHARE: Final = 3 / 4
_POLL_S_MAX: Final = 0.5
_POLLS_MIN: Final = 60
_TIDY_S_MAX: Final = 3.0


@frozen(kw_only=True)
class SearchTimes:
    """The times of a search, in seconds after its start.

    slskd ends a search after a silence of `quiet_ms`, counted from the last response. A busy search is never silent: it
    is cancelled at `cut_s`, and its results so far are fetched. At `give_up_s`, before the time-out of the caller, the
    client stops waiting for them and raises an error with the reason.
    """

    timeout_s: float
    quiet_ms: int
    cut_s: float
    give_up_s: float
    poll_s: float

    @property
    def cancel_s(self) -> float:
        """The longest time for the answer to the cancellation. It leaves as much again for the results."""
        return (self.give_up_s - self.cut_s) / 2

    def tidy_s(self, *, after_s: float) -> float:
        """The longest time to remove the search, when that begins `after_s`.

        Before the time-out at most half of the time left: the caller still has to get the results. After the time-out the
        results are lost, and the search is removed all the same.
        """
        most_s = min(_TIDY_S_MAX, self.timeout_s / 3)
        left_s = self.timeout_s - after_s
        return min(most_s, left_s / 2) if left_s > 0 else most_s


def search_times(timeout_s: float) -> SearchTimes:
    """The times of a search whose caller waits for `timeout_s`.

    The silence is at most a third of the time-out. The search is cut 5 s before the time-out, or after two thirds of it
    where that is later: a short time-out would leave too little for the search otherwise.

    >>> for timeout_s in 300, 60, 30, 9, 1:
    ...     times = search_times(timeout_s)
    ...     print(timeout_s, times.quiet_ms, round(times.cut_s, 3), round(times.give_up_s, 3), round(times.poll_s, 3))
    300 12000 295.0 298.75 0.5
    60 12000 55.0 58.75 0.5
    30 10000 25.0 28.75 0.5
    9 3000 6.0 8.25 0.15
    1 333 0.667 0.917 0.017
    """
    timeout_s = max(0.0, timeout_s)
    cut_s = max(timeout_s - _CUT_BEFORE_S, timeout_s * _CUT_SHARE)
    return SearchTimes(
        timeout_s=timeout_s,
        # Rounded down, so that it is no more than a third.
        quiet_ms=max(QUIET_MS_MIN, int(min(_QUIET_S_MAX, timeout_s * _QUIET_SHARE) * 1000)),
        cut_s=cut_s,
        give_up_s=cut_s + (timeout_s - cut_s) * _GIVE_UP_SHARE,
        poll_s=min(_POLL_S_MAX, timeout_s / _POLLS_MIN),
    )

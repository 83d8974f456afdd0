"""How is Soulseek searched through slskd? Start a search, look until it has ended, take what was found, leave nothing behind."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import trio
from attrs import frozen

from cormorant.clients.json_replies import as_json, read_json, said_by, segment
from cormorant.clients.slskd_json import Json, read_responses, text_of
from cormorant.clients.transport import Answer, FetchLimits, Transport
from cormorant.rules.ports import Chance, Offload
from cormorant.rules.redaction import spellings
from cormorant.rules.secrets import Secret
from cormorant.rules.slskd_replies import error_of_search
from cormorant.rules.slskd_states import flags_of
from cormorant.rules.soulseek import Response
from cormorant.rules.source_errors import SourceError, SourceRefused, SourceUnavailable, Unreachable

API: Final = "/api/v0"
TEXT_LENGTH_MAX: Final = 200

_NOT_STARTED: Final = range(400, 500)
_NOT_FOUND: Final = 404


@frozen(kw_only=True)
class SlskdOptions:
    """How a search is asked for and how long it may take.

    `quiet_s` is slskd's own time-out: it counts from the last answer of a peer, so that a busy search goes on for long;
    `search_s` ends it, and what was found until then counts.
    """

    timeout_s: float = 10.0
    search_s: float = 45.0
    quiet_s: float = 12.0
    poll_s: float = 1.0
    settle_s: float = 3.0
    tidy_s: float = 3.0
    responses_max: int = 250
    files_max: int = 10_000
    body_max_bytes: int = 50_000_000


@frozen(kw_only=True)
class Found:
    """What peers offer. `was_cut`: the search was ended before slskd thought it had all."""

    responses: tuple[Response, ...]
    state: str
    was_cut: bool = False


class SlskdClient:
    """Searches through one slskd. Raises a `SourceError`."""

    def __init__(
        self,
        url: str,
        key: Secret,
        transport: Transport,
        *,
        offload: Offload,
        chance: Chance,
        options: SlskdOptions | None = None,
    ) -> None:
        self._url = f"{url.rstrip('/')}{API}"
        self._key = key
        self._secrets = spellings([key])
        self._transport = transport
        self._offload = offload
        self._chance = chance
        self._options = options or SlskdOptions()

    async def search(self, text: str) -> Found:
        """What peers have that has all words of `text` in its path."""
        if not text.strip() or len(text) > TEXT_LENGTH_MAX:
            raise SourceRefused(f"a search needs 1 to {TEXT_LENGTH_MAX} characters; this has {len(text.strip())}")
        # Ours, so that a search whose start was not confirmed can be ended, too.
        run = _Search(self, str(UUID(int=self._chance.getrandbits(128), version=4)), self._options)
        try:
            await run.start(text)
            state = await run.wait()
            return Found(responses=await run.responses(), state=state, was_cut=run.was_cut)
        finally:
            with trio.move_on_after(self._options.tidy_s, shield=True):
                await run.tidy()

    async def call(self, method: str, path: str, content: bytes = b"") -> Answer:
        """Send one request and give its answer, whatever its status."""
        limits = FetchLimits(timeout_s=self._options.timeout_s, body_max_bytes=self._options.body_max_bytes)
        # Also without a body: slskd answers 415 to what does not say that it is JSON.
        headers = {"X-API-Key": self._key.reveal(), "Content-Type": "application/json", "Accept": "application/json"}
        return await self._transport.ask(
            method, f"{self._url}{path}", body=content, headers=headers, secrets=[self._key], limits=limits
        )

    def refuse(self, answer: Answer) -> None:
        """Raise what the status of an answer stands for."""
        error = error_of_search(answer.status, said_by(answer, self._secrets))
        if error is not None:
            raise error

    async def read(self, answer: Answer, kind: type[dict[str, Any] | list[Any]]) -> Any:
        """The body, read in a thread."""
        return await read_json(answer, self._offload, kind)

    async def offers(self, answer: Answer) -> tuple[Response, ...]:
        """What peers offer, read in a thread."""
        return await self._offload(read_responses, await self.read(answer, list))


class _Search:
    """One search, from its start until nothing is left of it."""

    def __init__(self, client: SlskdClient, search_id: str, options: SlskdOptions) -> None:
        self.client = client
        self.options = options
        self.id = search_id
        self.path = f"/searches/{segment(search_id)}"
        self.may_exist = False
        self.is_over = False
        self.was_cut = False

    async def start(self, text: str) -> None:
        """Ask for it. What was refused does not exist; what was not answered may."""
        wanted = {
            "id": self.id,
            "searchText": text,
            "searchTimeout": round(self.options.quiet_s * 1000),
            "responseLimit": self.options.responses_max,
            "fileLimit": self.options.files_max,
        }
        self.may_exist = True
        try:
            answer = await self.client.call("POST", "/searches", as_json(wanted))
        except Unreachable:
            self.may_exist = False
            raise
        self.may_exist = answer.status not in _NOT_STARTED
        self.client.refuse(answer)
        started = await self.client.read(answer, dict)
        # An older slskd may choose an id of its own.
        self.id = text_of(started, "id") or self.id
        self.path = f"/searches/{segment(self.id)}"

    async def wait(self) -> str:
        """Look until it has ended, or end it; the state it ended in."""
        with trio.move_on_after(self.options.search_s):
            return await self._ended(self.options.poll_s)
        self.was_cut = True
        await self.client.call("PUT", self.path)
        with trio.move_on_after(self.options.settle_s):
            return await self._ended(min(self.options.poll_s, self.options.settle_s / 10))
        raise SourceUnavailable(f"slskd did not end the search after {self.options.search_s:g} s, and has told nothing")

    async def responses(self) -> tuple[Response, ...]:
        """What was found; it is there only when the search has ended."""
        answer = await self.client.call("GET", f"{self.path}/responses")
        self.client.refuse(answer)
        return await self.client.offers(answer)

    async def tidy(self) -> None:
        """End it if it runs, and remove it. Nobody waits for that for long, and nobody minds if it fails."""
        if not self.may_exist:
            return
        with suppress(SourceError):
            if not self.is_over:
                await self.client.call("PUT", self.path)
                # A search that is removed before it has ended writes itself down again.
                with trio.move_on_after(self.options.tidy_s / 2):
                    await self._ended(self.options.tidy_s / 20)
        with suppress(SourceError):
            await self.client.call("DELETE", self.path)

    async def _ended(self, poll_s: float) -> str:
        while True:
            answer = await self.client.call("GET", self.path)
            if answer.status == _NOT_FOUND:
                self.may_exist = False
                raise SourceUnavailable(
                    "slskd no longer knows the search; was it restarted, or the search removed there?"
                )
            self.client.refuse(answer)
            state = self._state(await self.client.read(answer, dict))
            if state is not None:
                return state
            await trio.sleep(poll_s)

    def _state(self, search: Json) -> str | None:
        """The state if it has ended. Only "Completed" is an end: a search may be requested and queued before it runs."""
        state = text_of(search, "state")
        flags = flags_of(state)
        if search.get("isComplete") is not True and "Completed" not in flags:
            return None
        self.is_over = True
        if "Errored" in flags:
            raise SourceUnavailable(f"the search failed in slskd ({state[:40]}); its log has the reason")
        return state

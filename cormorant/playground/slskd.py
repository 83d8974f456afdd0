"""A stand-in for slskd with peers of its own. Its searches and transfers take as long as those of slskd."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

import trio
from attrs import define, evolve, field, frozen

from cormorant.playground.http import StandInRequest, StandInResponse, as_json, remember
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse

_QUIET_MS: Final = 15_000
_QUIET_MS_MIN: Final = 5
_RESPONSES_MAX: Final = 250
_FILES_MAX: Final = 25_000
"""What holds for a search that does not say otherwise, and the least silence that slskd accepts."""
_NOT_FOUND: Final = StandInResponse(status=404)


@define(kw_only=True)
class PlayedSearch:
    """A search as slskd was asked for it."""

    text: str
    ready_at: float
    """The search may run from then on, if fewer than the maximum run."""
    quiet_s: float
    """slskd ends the search after this time without a response."""
    arrivals: Sequence[tuple[float, PeerResponse]]
    """The responses, each with its seconds after the search began to run, in order."""
    responses_max: int
    files_max: int
    cancelled_at: float | None = None
    end: str = ""
    """How the search ends, if not as its course says: Errored."""


@frozen(kw_only=True)
class Course:
    """When a search runs, which responses it receives at which time, and how it ends."""

    begins_at: float
    """Infinite for a search that was cancelled in the queue."""
    ends_at: float
    end: str
    came: tuple[tuple[float, PeerResponse], ...] = ()

    def received(self, now: float) -> list[PeerResponse]:
        """The responses received so far."""
        return [response for at, response in self.came if at <= now]


def courses(searches: Iterable[PlayedSearch], *, running_max: int, cancel_takes_s: float) -> list[Course]:
    """The course of each search, in the order in which they were asked for. The others wait while `running_max` run."""
    free_at = [-math.inf] * running_max
    planned = []
    for search in searches:
        course = _course(search, max(search.ready_at, free_at[0]))
        if search.cancelled_at is not None:
            course = _cancelled(course, search.cancelled_at, search.cancelled_at + cancel_takes_s)
        if course.begins_at < math.inf:
            heapq.heapreplace(free_at, course.ends_at)
        planned.append(evolve(course, end=search.end or course.end))
    return planned


def _course(search: PlayedSearch, begins_at: float) -> Course:
    came: list[tuple[float, PeerResponse]] = []
    files, last_at = 0, begins_at
    for after_s, response in search.arrivals:
        at = begins_at + after_s
        if at > last_at + search.quiet_s:
            break
        came.append((at, response))
        files, last_at = files + len(response.files), at
        is_full = len(came) >= search.responses_max
        if is_full or files >= search.files_max:
            end = "ResponseLimitReached" if is_full else "FileLimitReached"
            return Course(begins_at=begins_at, ends_at=at, end=end, came=tuple(came))
    return Course(begins_at=begins_at, ends_at=last_at + search.quiet_s, end="TimedOut", came=tuple(came))


def _cancelled(course: Course, cancelled_at: float, ends_at: float) -> Course:
    """A cancelled search keeps what it has received."""
    if cancelled_at <= course.begins_at:
        return Course(begins_at=math.inf, ends_at=ends_at, end="Cancelled")
    if ends_at >= course.ends_at:
        return course
    return evolve(course, ends_at=ends_at, end="Cancelled", came=tuple(one for one in course.came if one[0] <= ends_at))


def terms_of(text: str) -> tuple[list[str], list[str]]:
    """The words that must be in a path, and those that must not. slskd leaves out words of one letter."""
    words = text.lower().split()
    wanted = [word for word in words if len(word) > 1 and not word.startswith("-")]
    return wanted, [word[1:] for word in words if word.startswith("-") and len(word) > 1]


def peers_matching(peers: Iterable[PeerResponse], text: str) -> list[PeerResponse]:
    """The peers that share at least one file for this text."""
    wanted, excluded = terms_of(text)

    def has(file: PeerFile) -> bool:
        path = file.filename.lower()
        return all(word in path for word in wanted) and not any(word in path for word in excluded)

    return [peer for peer in peers if any(map(has, peer.files + peer.locked_files))]


@define(kw_only=True)
class PlayedTransfer:
    """A file that is fetched, or was."""

    id: str
    username: str
    filename: str
    size: int
    given_at: float
    batch_id: str = ""
    fate: str = "Succeeded"


@define(kw_only=True)
class SlskdStandIn:
    """Its state and its habits; the habits may be changed at any time."""

    name: str = "slskd"
    now_s: Callable[[], float] = trio.current_time
    peers: list[PeerResponse] = field(factory=list)
    key: str = "playground-key-of-slskd"
    is_connected: bool = True
    answers_every_s: float = 0.5
    """The first peer that has something answers a search after this time, each further one this time later."""
    answers_after_s: dict[str, float] = field(factory=dict)
    """Peers that answer a search after another time."""
    silence_max_s: float = math.inf
    """A search ends after at most this silence, whatever was asked for. slskd has no such limit; a playground does."""
    starting_takes_s: float = 0.1
    """While a search is being started, slskd refuses to start another one."""
    cancel_takes_s: float = 0.1
    writing_takes_s: float = 0.04
    """The responses of a search are there only this long after its end: slskd shows the end first."""
    running_max: int = 2
    """Further searches wait in the queue."""
    has_batches: bool = True
    says_without_batches: int = 400
    """What a slskd without batches answers to one: 400 or 500 because "batches" is no peer, 404 or 405 from a proxy."""
    lag_s: float = 5.0
    """A transfer is listed only so much later."""
    transfer_takes_s: float = 20.0
    offline: set[str] = field(factory=set)
    fates: dict[str, str] = field(factory=dict)
    """How transfers from a peer end, if not well: Rejected, TimedOut, Errored, Cancelled, Aborted."""
    refused: dict[str, str] = field(factory=dict)
    """Files that are not taken, and why."""
    batches: set[str] = field(factory=set)
    searches: dict[str, PlayedSearch] = field(factory=dict)
    transfers: list[PlayedTransfer] = field(factory=list)
    asked: list[StandInRequest] = field(factory=list)
    _busy_until: float = 0.0

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.headers.get("x-api-key") != self.key:
            return StandInResponse(status=401)
        if asked.method in {"POST", "PUT"} and asked.headers.get("content-type") != "application/json":
            return as_json({"title": "Unsupported Media Type", "status": 415}, status=415)
        return self._api(asked)

    def _api(self, asked: StandInRequest) -> StandInResponse:
        match asked.method, *asked.path.split("/", 5)[1:]:
            case "POST", "api", "v0", "searches":
                return self._start(asked.json())
            case method, "api", "v0", "searches", search_id, *rest if search_id in self.searches:
                return self._search(method, search_id, rest)
            case method, "api", "v0", "transfers", "downloads", *rest:
                return self._downloads(method, "".join(rest), asked.json())
            case _, "api", "v0", "application", "version":
                return as_json("0.24.1")
            case _, "api", "v0", "server":
                return as_json({"isConnected": self.is_connected})
            case _:
                return _NOT_FOUND

    def _start(self, wanted: dict[str, Any]) -> StandInResponse:
        now = self.now_s()
        quiet_ms = wanted.get("searchTimeout", _QUIET_MS)
        if quiet_ms < _QUIET_MS_MIN:
            return _problem(400, f"The field SearchTimeout must be between {_QUIET_MS_MIN} and {2**31 - 1}.")
        if now < self._busy_until:
            return _problem(
                429, "Only one concurrent operation is permitted. Wait until the previous request completes"
            )
        self._busy_until = now + self.starting_takes_s
        if not terms_of(wanted.get("searchText", ""))[0]:
            return _problem(400, "Search query must contain at least one non-exclusion term with length greater than 1")
        if not self.is_connected:
            return _problem(409, "The server connection must be connected and logged in to perform a search")
        if wanted["id"] in self.searches:
            return _problem(
                500, "An error occurred while saving the entity changes. See the inner exception for details."
            )
        self.searches[wanted["id"]] = PlayedSearch(
            text=wanted["searchText"],
            ready_at=self._busy_until,
            quiet_s=min(quiet_ms / 1000, self.silence_max_s),
            arrivals=self._arrivals(wanted["searchText"]),
            responses_max=wanted.get("responseLimit", _RESPONSES_MAX),
            files_max=wanted.get("fileLimit", _FILES_MAX),
        )
        return as_json(self._shown(wanted["id"]))

    def _arrivals(self, text: str) -> list[tuple[float, PeerResponse]]:
        usual = enumerate(peers_matching(self.peers, text), 1)
        delays = [(self.answers_after_s.get(peer.username, n * self.answers_every_s), peer) for n, peer in usual]
        return sorted(delays, key=lambda each: each[0])

    def _search(self, method: str, search_id: str, rest: list[str]) -> StandInResponse:
        if method == "DELETE":
            del self.searches[search_id]
            return StandInResponse(status=204)
        if method == "PUT":
            search = self.searches[search_id]
            search.cancelled_at = self.now_s() if search.cancelled_at is None else search.cancelled_at
            return StandInResponse()
        if rest == ["responses"]:
            course = self._course(search_id)
            is_written = self.now_s() >= course.ends_at + self.writing_takes_s
            return as_json([_response(peer) for peer in course.received(self.now_s())] if is_written else [])
        return as_json(self._shown(search_id))

    def _course(self, search_id: str) -> Course:
        planned = courses(self.searches.values(), running_max=self.running_max, cancel_takes_s=self.cancel_takes_s)
        return dict(zip(self.searches, planned, strict=True))[search_id]

    def _shown(self, search_id: str) -> dict[str, Any]:
        now, search, course = self.now_s(), self.searches[search_id], self._course(search_id)
        is_over = now >= course.ends_at
        state = "Requested" if now < search.ready_at else "Queued" if now < course.begins_at else "InProgress"
        received = course.received(now)
        shown = {
            "id": search_id,
            "searchText": search.text,
            "state": f"Completed, {course.end}" if is_over else state,
            "isComplete": is_over,
            "responseCount": len(received),
            "fileCount": sum(len(peer.files) for peer in received),
            "lockedFileCount": sum(len(peer.locked_files) for peer in received),
            "startedAt": _time(search.ready_at - self.starting_takes_s),
            "token": 1,
            "responses": [],
        }
        is_written = now >= course.ends_at + self.writing_takes_s
        return shown | ({"endedAt": _time(course.ends_at)} if is_written else {})

    def _downloads(self, method: str, rest: str, value: Any) -> StandInResponse:
        if rest.startswith("batches") and self.has_batches:
            return self._batch(value) if method == "POST" else self._batch_of(rest.removeprefix("batches/"))
        if method == "POST":
            return self._enqueue_singly(rest, value)
        username, _, transfer_id = rest.rpartition("/")
        if username and _is_uuid(transfer_id):
            return self._cancel(transfer_id) if method == "DELETE" else _NOT_FOUND
        return StandInResponse(status=400) if username == "batches" else self._of_peer(rest)

    def _batch(self, wanted: dict[str, Any]) -> StandInResponse:
        username, batch_id = wanted["username"], wanted["id"]
        if len({file["filename"] for file in wanted["files"]}) < len(wanted["files"]):
            return _problem(400, "Two or more files in the request are repeated")
        # As it really is: the peer is looked for first, so that a known batch of one who has left gives 404.
        if username in self.offline:
            return _problem(404, f"User {username} appears to be offline")
        if batch_id in self.batches:
            return _problem(409, f"A batch with ID {batch_id} already exists")
        self.batches.add(batch_id)
        failures = self._take(username, wanted["files"], batch_id)
        status = 201 if not failures else 200 if len(failures) == len(wanted["files"]) else 207
        batch = {"id": batch_id, "username": username, "transfers": self._listed(lambda one: one.batch_id == batch_id)}
        return as_json({"batch": batch, "failures": failures}, status=status)

    def _batch_of(self, batch_id: str) -> StandInResponse:
        if not _is_uuid(batch_id):
            return _problem(400, f"The specified id {batch_id} is not a valid GUID/UUID")
        if batch_id not in self.batches:
            return _NOT_FOUND
        return as_json({"id": batch_id, "transfers": self._listed(lambda one: one.batch_id == batch_id)})

    def _enqueue_singly(self, username: str, wanted: Any) -> StandInResponse:
        if not isinstance(wanted, list):
            return self._without_batches()
        if username in self.offline:
            return _problem(500, f"User {username} appears to be offline")
        failures = self._take(username, wanted, "")
        failed = {failure["filename"] for failure in failures}
        names = {file["filename"] for file in wanted} - failed
        # Value tuples: that there are failures can be seen, and not which.
        shown = {"enqueued": [{"filename": name} for name in sorted(names)], "failed": [{} for _ in failures]}
        return as_json(shown, status=201)

    def _without_batches(self) -> StandInResponse:
        status = self.says_without_batches
        problem = {"title": "One or more validation errors occurred.", "status": 400, "errors": {"$": ["…"]}}
        said: dict[int, Any] = {400: problem, 500: "Value cannot be null. (Parameter 'source')"}
        return as_json(said[status], status=status) if status in said else StandInResponse(status=status)

    def _take(self, username: str, files: list[dict[str, Any]], batch_id: str) -> list[dict[str, str]]:
        failures = []
        for file in files:
            name = file["filename"]
            same = (one for one in self.transfers if (one.username, one.filename) == (username, name))
            if any(not self._state(one).startswith("Completed") for one in same):
                failures.append({"filename": name, "message": "Skipped: Already in progress"})
            elif name in self.refused:
                failures.append({"filename": name, "message": self.refused[name]})
            else:
                number = UUID(int=len(self.transfers) + 1, version=4)
                self.transfers.append(
                    PlayedTransfer(
                        id=str(number),
                        username=username,
                        filename=name,
                        size=file["size"],
                        given_at=self.now_s(),
                        batch_id=batch_id,
                        fate=self.fates.get(username, "Succeeded"),
                    )
                )
        return failures

    def _of_peer(self, username: str) -> StandInResponse:
        files = self._listed(lambda one: not username or one.username == username)
        if username and not files:
            return _NOT_FOUND
        names = dict.fromkeys(file["username"] for file in files)
        users = [{"username": name, "directories": _folders(name, files)} for name in names]
        return as_json(users[0] if username else users)

    def _cancel(self, transfer_id: str) -> StandInResponse:
        for transfer in self.transfers:
            if transfer.id == transfer_id:
                transfer.fate, transfer.given_at = "Cancelled", self.now_s() - self.transfer_takes_s - self.lag_s
                return StandInResponse(status=204)
        return _NOT_FOUND

    def _listed(self, is_meant: Callable[[PlayedTransfer], bool]) -> list[dict[str, Any]]:
        now = self.now_s()
        return [self._transfer(one) for one in self.transfers if is_meant(one) and now >= one.given_at + self.lag_s]

    def _state(self, transfer: PlayedTransfer) -> str:
        part = self._part(transfer)
        if part >= 1:
            return f"Completed, {transfer.fate}"
        return "Queued, Remotely" if part <= 0.25 else "InProgress"  # noqa: PLR2004 - a quarter of the time in the queue

    def _part(self, transfer: PlayedTransfer) -> float:
        gone = self.now_s() - transfer.given_at - self.lag_s
        return min(1.0, max(0.0, gone / self.transfer_takes_s))

    def _transfer(self, transfer: PlayedTransfer) -> dict[str, Any]:
        part, state = self._part(transfer), self._state(transfer)
        shown = {
            "id": transfer.id,
            "batchId": transfer.batch_id or None,
            "username": transfer.username,
            "direction": "Download",
            "filename": transfer.filename,
            "size": transfer.size,
            "state": state,
            "requestedAt": _time(transfer.given_at),
            "bytesTransferred": round(transfer.size * part),
            "placeInQueue": 3 if state.startswith("Queued") else None,
            "exception": "Transfer rejected: File not shared." if state.endswith("Rejected") else None,
        }
        return {name: value for name, value in shown.items() if value is not None}


def _folders(username: str, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    folders: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        if file["username"] == username:
            folders.setdefault(file["filename"].rpartition("\\")[0], []).append(file)
    return [{"directory": name, "fileCount": len(held), "files": held} for name, held in folders.items()]


def _response(peer: PeerResponse) -> dict[str, Any]:
    return {
        "username": peer.username,
        "token": 1,
        "hasFreeUploadSlot": peer.has_free_slot,
        "uploadSpeed": peer.speed_bytes_s,
        "queueLength": peer.queue_length,
        "fileCount": len(peer.files),
        "files": [_file(file) for file in peer.files],
        "lockedFileCount": len(peer.locked_files),
        "lockedFiles": [_file(file) for file in peer.locked_files],
    }


def _file(file: PeerFile) -> dict[str, Any]:
    shown = {
        "filename": file.filename,
        "size": file.size_bytes,
        "extension": "",
        "code": 1,
        "bitRate": file.bit_rate,
        "length": file.length_s,
        "isLocked": False,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _time(seconds: float) -> str:
    """Any time that sorts as it passes."""
    return f"2026-01-01T{int(seconds) // 3600 % 24:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:09.6f}Z"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _problem(status: int, words: str) -> StandInResponse:
    """An error as slskd words it: a string in JSON."""
    return as_json(words, status=status)

"""Does the server hold up the rest? 200 streams and 300 requests a second, beside searches and jobs.

How late the loop of the service is, whether its memory grows, and how long an app waits for a stored page of 100 finds, beside
how long the site itself takes that the page came from.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

# Run as a file, Python would look here first and take `bench/storage.py` for the package `storage`.
sys.path[0] = str(Path(__file__).parent.parent)

from bench._report import Goal, Options, Row, finish, read_options  # noqa: E402 - see above
from bench.torznab import document  # noqa: E402 - see above

STREAMS = 200
PER_S = 300
WORKERS = 30
KEY, CLIENT_KEY = "the-key-of-the-bench-api", "the-key-of-the-bench-app"
WARM_UP = 1 / 3
BASE_S = 4.0
"""So long nobody asks, so that it is seen what the rest takes."""
LATE_MS_MAX = 100.0
GROWTH_MB_MAX = 20.0
FEED = f"/gate/red/api?t=search&apikey={CLIENT_KEY}"
PATHS = (FEED, "/health", "/api/v1/sources", "/api/v1/jobs?limit=20", "/api/v1/status", "/api/v1/scheduler/status")
CAPS = b'<caps><limits max="100" default="100"/><searching><search available="yes" supportedParams="q"/></searching></caps>'


class Client:
    """A connection that asks one thing after the other, as cheaply as can be: it shares the machine with what it measures."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._stream: trio.SocketStream | None = None
        self._buffer = b""

    async def get(self, path: str, *, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of an answer."""
        return await self.ask(written(path, method=method, body=body))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The same for one that is written already."""
        if self._stream is None:
            self._stream = await trio.open_tcp_stream(*self._address)
        await self._stream.send_all(request)
        while (ends := self._buffer.find(b"\r\n\r\n")) < 0:
            self._buffer += await self._more(self._stream)
        head, ends = self._buffer[:ends].lower(), ends + 4
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        parts, missing = [self._buffer[ends : ends + length]], ends + length - len(self._buffer)
        self._buffer = self._buffer[ends + length :]
        while missing > 0:
            parts.append(await self._more(self._stream))
            missing -= len(parts[-1])
        if b"connection: close" in head:  # after a thousand requests it is our turn to come anew
            await self._stream.aclose()
            self._stream = None
        return int(head[9:12]), b"".join(parts)

    async def listen(self, path: str) -> None:
        """Read a stream until it ends."""
        async with await trio.open_tcp_stream(*self._address) as stream:
            await stream.send_all(written(path))
            while await stream.receive_some(65536):
                pass

    async def _more(self, stream: trio.SocketStream) -> bytes:
        data = bytes(await stream.receive_some(262_144))
        if not data:
            raise ConnectionError("the server has hung up")
        return data


def written(path: str, *, method: str = "GET", body: bytes = b"") -> bytes:
    """A request as it is sent."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nX-Api-Key: {KEY}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


@define
class Load:
    """What is asked, and what was seen."""

    address: tuple[str, int]
    took_ms: dict[str, list[float]] = field(factory=dict)
    statuses: Counter[int] = field(factory=Counter)
    streams: int = 0
    dialled: int = 0
    """How often one that listens had to come."""
    asked_from: float = 0.0
    asked_until: float = 0.0
    used_s: float = 0.0
    """Of the processor, by those who ask."""

    async def ask(self, begins_after_s: float) -> None:
        """One worker: its part of the requests, each at its time."""
        client, number = Client(self.address), 0
        requests = [(path, written(path)) for path in PATHS]
        began = trio.current_time() + begins_after_s
        while True:
            await trio.sleep_until(began + number * WORKERS / PER_S)
            path, request = requests[number % len(requests)]
            asked_at = trio.current_time()
            status, _ = await client.ask(request)
            self.took_ms.setdefault(path, []).append((trio.current_time() - asked_at) * 1000)
            self.statuses[status] += 1
            number += 1

    async def listen(self, path: str) -> None:
        """One that listens, and comes again when a stream ends."""
        while True:
            self.dialled += 1
            self.streams += 1
            try:
                await Client(self.address).listen(path)
            finally:
                self.streams -= 1
            await trio.sleep(0.5)


async def upstream(stream: trio.SocketStream) -> None:
    """A site that answers everything with the same page at once."""
    with suppress(trio.BrokenResourceError):
        await answer_all(stream)


async def answer_all(stream: trio.SocketStream) -> None:
    """Answer until the other side ends."""
    page, buffer = document(), b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = bytes(await stream.receive_some(65536))
            if not data:
                return
            buffer += data
        head, _, buffer = buffer.partition(b"\r\n\r\n")
        body = CAPS if b"t=caps" in head.split(b"\r\n")[0] else page
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        await stream.send_all(answer + body)


async def measure(*, lasts_s: float) -> tuple[Load, dict[str, Any], list[float]]:
    """The load, what the service says of itself, and how long the upstream takes."""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, upstream, 0)
        port = listeners[0].socket.getsockname()[1]
        with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
            chosen = {
                "folder": folder,
                "upstream": f"http://127.0.0.1:{port}/api",
                "key": KEY,
                "client_key": CLIENT_KEY,
            }
            words = [sys.executable, "-m", "bench.ours.serving", json.dumps(chosen)]
            root = Path(__file__).parent.parent
            process = await trio.lowlevel.open_process(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
            assert process.stdout is not None
            assert process.stdin is not None
            said = Lines(process.stdout)
            host, _, listening = (
                json.loads(await said.next())["address"].strip("/").removeprefix("http://").rpartition(":")
            )
            load = Load((host, int(listening)))
            upstream_ms = await press(load, port, lasts_s=lasts_s)
            await process.stdin.aclose()
            told = json.loads(await said.next())
            await process.wait()
        nursery.cancel_scope.cancel()
    return load, told, upstream_ms


class Lines:
    """What a process says, line by line."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._buffer = b""

    async def next(self) -> bytes:
        """The next line."""
        with trio.fail_after(120):
            while b"\n" not in self._buffer:
                data = await self._stream.receive_some()
                if not data:
                    raise ConnectionError("the service has ended; what it said is above")
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


async def press(load: Load, upstream_port: int, *, lasts_s: float) -> list[float]:
    """Ask and listen for a while, and ask the upstream itself meanwhile."""
    upstream_ms: list[float] = []
    streams_max = 0
    paths = await stream_paths(Client(load.address))
    site = Client(("127.0.0.1", upstream_port))
    async with trio.open_nursery() as nursery:
        for number in range(STREAMS):
            nursery.start_soon(load.listen, paths[number % len(paths)])
        await trio.sleep(BASE_S)
        load.asked_from, used_s = time.time(), time.process_time()
        for number in range(WORKERS):
            nursery.start_soon(load.ask, number / PER_S)
        with trio.move_on_after(lasts_s):
            while True:
                await trio.sleep(0.25)
                streams_max = max(streams_max, load.streams)
                asked_at = trio.current_time()
                await site.get("/api?t=search&q=some")
                upstream_ms.append((trio.current_time() - asked_at) * 1000)
        load.asked_until, load.used_s = time.time(), time.process_time() - used_s
        nursery.cancel_scope.cancel()
    print(
        f"{streams_max} streams at once, begun {load.dialled} times, answers by status: {dict(load.statuses)}",
        flush=True,
    )
    return upstream_ms


async def stream_paths(client: Client) -> list[str]:
    """Streams that stay open: searches at a source that is paused."""
    await client.get("/api/v1/sources/blue/pause", method="POST")
    # Without a limit: one that may wait for an hour ends at once where nobody knows when the source opens.
    body = json.dumps({"query": "waits", "sources": ["blue"]}).encode()
    numbers = [json.loads((await client.get("/api/v1/searches", method="POST", body=body))[1])["id"] for _ in range(10)]
    return [f"/api/v1/searches/{number}/stream" for number in numbers]


def main(options: Options) -> int:
    """Press, then judge."""
    lasts_s = 15.0 if options.quick else 60.0
    load, told, upstream_ms = trio.run(_measured, lasts_s)
    late_ms = told["late_ms"][int(len(told["late_ms"]) * WARM_UP) :]
    asked = sum(load.statuses.values())
    base, busy = shares(told["used_s"], load)
    rss_mb = told["rss_mb"]
    settled = rss_mb[int(len(rss_mb) * WARM_UP) :]
    late = statistics.quantiles(late_ms, n=1000)[998]
    third = max(1, len(settled) // 3)
    growth_mb = statistics.median(settled[-third:]) - statistics.median(settled[:third])
    refused = sum(count for status, count in load.statuses.items() if status != 200)
    rows = [
        Row("how late the loop is", "ms", late_ms),
        Row("steps of the loop of 1 ms or more", "ms of processor", told["steps_ms"] or [0.0]),
        Row("memory of the service", "MB", settled),
        Row("processor for searches, jobs and streams alone", "%", [base * 100]),
        Row("processor for these and the requests", "%", [busy * 100]),
        Row("processor for each request", "us", [(busy - base) * lasts_s / asked * 1e6]),
        Row("the same of those who ask", "us", [load.used_s / asked * 1e6]),
        Row("processes that wanted the processor", "on average of a minute", [os.getloadavg()[0]]),
        Row("a stored page of 100 finds, for an app", "ms", load.took_ms[FEED]),
        Row("the same page from the site itself", "ms", upstream_ms),
        *[Row(f"GET {path}", "ms", took_ms) for path, took_ms in load.took_ms.items() if path != FEED],
    ]
    goals = [
        # The latest in a thousand: what a shared machine does to one tick in a minute says nothing about us.
        Goal("web.tick_late_ms", late, "<=", LATE_MS_MAX),
        Goal("web.longest_step_ms", max(told["steps_ms"], default=0.0), "<=", LATE_MS_MAX),
        Goal("web.memory_growth_mb", growth_mb, "<=", GROWTH_MB_MAX),
        Goal("web.requests_per_s", asked / lasts_s, ">=", PER_S * 0.9),
        Goal("web.refused", refused, "<=", 0.0),
        Goal("web.streams_lost", load.dialled - STREAMS, "<=", 0.0),
    ]
    return finish(options, rows, goals)


def shares(used_s: list[tuple[float, float]], load: Load) -> tuple[float, float]:
    """How much of one processor the service took before anybody asked, and while they did."""
    before = [each for each in used_s if load.asked_from - BASE_S <= each[0] <= load.asked_from]
    during = [each for each in used_s if load.asked_from <= each[0] <= load.asked_until]
    return _share(before), _share(during)


def _share(samples: list[tuple[float, float]]) -> float:
    (from_s, had_s), (until_s, has_s) = samples[0], samples[-1]
    return (has_s - had_s) / (until_s - from_s)


async def _measured(lasts_s: float) -> tuple[Load, dict[str, Any], list[float]]:
    return await measure(lasts_s=lasts_s)


if __name__ == "__main__":
    sys.exit(main(read_options(__doc__)))

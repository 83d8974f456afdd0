"""A phone to be told: a real HTTP server on loopback, which Apprise reaches by json://."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

from tests.bounds import WAIT_S


@define
class Phone:
    """What it was told; `answers` are given one after the other, then 200. To a path with `refused` in it always 500."""

    port: int = 0
    told: list[dict[str, Any]] = field(factory=list)
    answers: list[int] = field(factory=list)
    refused: str = "never"

    @property
    def address(self) -> str:
        return f"json://me:hunter2hunter2@127.0.0.1:{self.port}/hook-secret"


@contextmanager
def ringing() -> Iterator[Phone]:
    """A phone that is on."""
    phone = Phone()

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = phone.answers.pop(0) if phone.answers else 200
            status = 500 if phone.refused in self.path else status
            if status == 200:
                phone.told.append(content)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        phone.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield phone
        finally:
            server.shutdown()
            thread.join(WAIT_S)

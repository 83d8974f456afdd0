"""The socket of the HTTP server, and recognition of another Cormorant at its address."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

import trio

from cormorant.rules.addresses import ListenAddress
from cormorant.rules.errors import CannotListen
from cormorant.rules.json_documents import parse_json

__all__ = ["SERVICE", "bound", "is_cormorant"]

SERVICE: Final = "cormorant"
"""How `/health` names the program."""

ANSWER_S: Final = 2.0
_ANSWER_BYTES: Final = 8_000
_BACKLOG: Final = 1024


def bound(address: ListenAddress) -> socket.socket:
    """A socket that listens at this address, or `CannotListen`."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.settimeout(0)
        listening.listen(_BACKLOG)  # two may bind with SO_REUSEADDR; only one may listen
    except OSError as error:
        listening.close()
        why = os.strerror(error.errno or 0).lower()
        raise CannotListen(address.shown, why, is_in_use=error.errno == errno.EADDRINUSE) from error
    return listening


def is_cormorant(address: ListenAddress, url_base: str) -> bool:
    """Whether a Cormorant answers at this address within 2 s. Blocks; not for use inside of a Trio program."""
    return trio.run(_is_cormorant, address, url_base)


async def _is_cormorant(address: ListenAddress, url_base: str) -> bool:
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - asked, not bound
    # HTTP/1.0: the answer is not chunked, and ends with the connection.
    question = f"GET {url_base.rstrip('/')}/health HTTP/1.0\r\nHost: {address.shown}\r\n\r\n".encode()
    answer = b""
    try:
        with trio.fail_after(ANSWER_S):
            async with await trio.open_tcp_stream(near, address.port) as stream:
                await stream.send_all(question)
                while (piece := await stream.receive_some(_ANSWER_BYTES)) and len(answer) < _ANSWER_BYTES:
                    answer += piece
        said = parse_json(answer.partition(b"\r\n\r\n")[2])
    except (OSError, trio.BrokenResourceError, trio.TooSlowError, ValueError):
        return False
    return isinstance(said, dict) and said.get("service") == SERVICE

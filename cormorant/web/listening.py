"""The socket of the HTTP server, and recognition of another Cormorant at its address."""

from __future__ import annotations

import http.client
import os
import socket
from contextlib import closing
from typing import Final

from cormorant.rules.errors import CannotListen
from cormorant.rules.listen_addresses import ListenAddress
from cormorant.rules.nesting import parse_json

__all__ = ["SERVICE", "bound", "is_cormorant"]

SERVICE: Final = "cormorant"
"""How `/health` names the program."""

_BACKLOG: Final = 1024
_ANSWER_S: Final = 2.0
_ANSWER_BYTES: Final = 1_000


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
        raise CannotListen(address.shown, os.strerror(error.errno or 0).lower()) from error
    return listening


def is_cormorant(address: ListenAddress, url_base: str) -> bool:
    """Whether a Cormorant answers at this address. Blocks for some seconds at most."""
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - asked, not bound
    try:
        with closing(http.client.HTTPConnection(near, address.port, timeout=_ANSWER_S)) as connection:
            connection.request("GET", f"{url_base.rstrip('/')}/health")
            said = parse_json(connection.getresponse().read(_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return isinstance(said, dict) and said.get("service") == SERVICE

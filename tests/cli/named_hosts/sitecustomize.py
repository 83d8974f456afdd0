"""Loaded by Python at the start of a program under test: host names lead to stand-ins, and to nothing else.

`NAMED_HOSTS` is a JSON object of host names and addresses.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

_HOSTS: dict[str, str] = json.loads(os.environ.get("NAMED_HOSTS", "{}"))
_real = socket.getaddrinfo


def _getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    if name is not None and name not in _HOSTS and not name[0].isdigit() and name != "localhost":
        raise socket.gaierror(socket.EAI_NONAME, f"no stand-in is called {name}")
    return _real(_HOSTS.get(name, host), *args, **kwargs)


if _HOSTS:  # not where pytest only looks for doctests
    socket.getaddrinfo = _getaddrinfo

"""Where does the server listen, and who can reach it there?"""

from __future__ import annotations

import re
from ipaddress import ip_address

from attrs import frozen

__all__ = ["ListenAddress", "parse_listen_address", "parse_url_base"]

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}|localhost)):([0-9]{1,5})")
_PORT_MAX = 65_535
_BASE = re.compile(r"(?:/[A-Za-z0-9._~-]{1,40}){0,8}/?")


@frozen
class ListenAddress:
    """An address of this machine and a port. Port 0: whichever is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self.host).is_loopback

    @property
    def shown(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """The address that a text means, or a ValueError.

    >>> parse_listen_address("localhost:7979").shown, parse_listen_address("[::]:80").is_loopback
    ('127.0.0.1:7979', False)
    >>> parse_listen_address("7979")
    Traceback (most recent call last):
    ValueError: it is not an address to listen on; write an IP address and a port, such as "127.0.0.1:7979"
    """
    problem = 'it is not an address to listen on; write an IP address and a port, such as "127.0.0.1:7979"'
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > _PORT_MAX:
        raise ValueError(problem)
    host = found[1] or ("127.0.0.1" if found[2] == "localhost" else found[2])
    try:
        ip_address(host)
    except ValueError:
        raise ValueError(problem) from None
    return ListenAddress(host, int(found[3]))


def parse_url_base(text: str) -> str:
    """The path before all of ours, or a ValueError.

    >>> parse_url_base("/"), parse_url_base("/tools/cormorant/")
    ('/', '/tools/cormorant')
    """
    if not text.startswith("/") or not _BASE.fullmatch(text):
        raise ValueError('it is not the beginning of a path; write one like "/" or "/cormorant"')
    return text.rstrip("/") or "/"

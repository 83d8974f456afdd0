"""What can be set for the HTTP server and for the apps that search through it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from cormorant.rules.conflicts import Conflict
from cormorant.rules.fields import choice, duration, flag, listen, secret, share, url_base
from cormorant.rules.listen_addresses import ListenAddress, parse_listen_address
from cormorant.rules.priorities import Priority
from cormorant.rules.secrets import Secret

__all__ = ["ClientSettings", "WebSettings", "web_conflicts"]

HOLD_S_MAX: Final = 80.0
"""Sonarr, Radarr and Lidarr give up after 100 s, and the request itself takes its time, too."""


@frozen(kw_only=True)
class WebSettings:
    """The HTTP server: other apps search through it, people and programs look and steer."""

    enabled: bool = flag(True, "Whether there is a server at all.")  # noqa: FBT003  # a default
    listen: str = listen("127.0.0.1:7979", "IP address and port. Other machines reach it only with web.key set.")
    url_base: str = url_base("/", "Path before all others, for a proxy that serves several programs.")
    key: Secret = secret(  # noqa: RUF009  # an attrs field is made, not a value
        "Key of the API. Empty: one is made at the first start and kept in the data folder, in keys/web.key.",
    )

    session_s: float = duration(
        14 * 86_400.0,
        "How long a browser stays signed in to the page after the key was typed. A new key signs all of them out.",
        low_s=60.0,
        high_s=366 * 86_400.0,
    )

    @property
    def address(self) -> ListenAddress:
        """Where it listens."""
        return parse_listen_address(self.listen)


@frozen(kw_only=True)
class ClientSettings:
    """An app that searches through the gate, known by its key."""

    priority: str = choice(
        "completion",
        "How urgent its searches are; asking for what is new has a class of its own.",
        choices=("interactive", "completion", "background"),
    )
    hold_s: float = duration(
        60.0,
        "How long a search waits for its turn before the app is told when to come back.",
        low_s=0.0,
        high_s=HOLD_S_MAX,
    )
    share: float = share(
        1.0, "Largest part of what a source allows in an hour, a day or a month that it may use; at least one request."
    )
    key: Secret = secret(  # noqa: RUF009  # an attrs field is made, not a value
        "Its key. Empty: one is made at the first start and kept in the data folder, in keys/client-NAME.key.",
    )

    @property
    def rank(self) -> Priority:
        """The class of its searches."""
        return Priority[self.priority.upper()]


def web_conflicts(web: WebSettings, clients: Mapping[str, ClientSettings]) -> Iterator[Conflict]:
    """What does not go together."""
    if web.enabled and not web.key and not web.address.is_loopback:
        yield Conflict(
            ("web.listen", "web.key"),
            f"other machines can reach {web.address.shown} and web.key is not set; set it, "
            'such as { env = "CORMORANT_KEY" } or { file = "data/keys/web.key" }, or listen on 127.0.0.1',
        )
    seen: dict[Secret, str] = {web.key: "web.key"} if web.key else {}
    for name, client in clients.items():
        key = f"clients.{name}.key"
        first = seen.setdefault(client.key, key) if client.key else key
        if first != key:
            yield Conflict((key, first), f"it is the same as {first}, so that nobody could tell who asks; take another")

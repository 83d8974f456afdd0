"""What can be set for the HTTP server and for the apps that search through it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from cormorant.rules.listen_addresses import ListenAddress, parse_listen_address
from cormorant.rules.networks import Network, networks
from cormorant.rules.search.priorities import Priority
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.conflicts import Conflict
from cormorant.rules.settings.fields import choice, duration, flag, listen, number, secret, share, size, url_base

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
    trusted_proxies: tuple[Network, ...] = networks(  # an attrs field is made, not a value
        "Proxies whose X-Forwarded-For, -Proto and -Host are believed.",
    )
    metrics_open: bool = flag(False, "Whether /metrics needs no key.")  # noqa: FBT003  # a default
    connections_max: int = number(
        1_000, "Most connections at once; for one more the oldest that asks nothing makes room.", low=10, high=100_000
    )
    connections_per_client_max: int = number(
        500, "The same for one client address; proxies that are trusted may have all.", low=5, high=100_000
    )
    requests_per_second: int = number(
        500, "How fast one client address may ask, twice as many at once; /health is free.", low=1, high=100_000
    )
    wrong_keys_per_minute: int = number(
        20, "After so many wrong keys the keys of a client address are not looked at for a minute.", low=1, high=100_000
    )
    head_timeout_s: float = duration(10.0, "How long the head of a request may take.", low_s=0.1, high_s=600.0)
    body_timeout_s: float = duration(20.0, "How long the body of a request may take.", low_s=0.1, high_s=600.0)
    idle_timeout_s: float = duration(60.0, "How long a connection may ask nothing.", low_s=0.1, high_s=3600.0)
    body_max_bytes: int = size(1_000_000, "Largest body of a request.", low_bytes=10_000, high_bytes=100_000_000)

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

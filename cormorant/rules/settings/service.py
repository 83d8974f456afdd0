"""Settings of the server, client apps, trusted proxies, notifications and playground."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Final

from attrs import frozen

from cormorant.rules.addresses import ListenAddress, parse_listen_address
from cormorant.rules.notices import NoticeKind, QuietHours, format_quiet_hours, parse_quiet_hours
from cormorant.rules.search.priorities import Priority
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import (
    Conflict,
    Kind,
    choice,
    duration,
    flag,
    listen,
    number,
    secret,
    setting_of,
    share,
    size,
    split_words,
    url_base,
    words,
    written_list,
)
from cormorant.rules.settings.keys import suggestion
from cormorant.rules.units import as_written
from cormorant.rules.web_requests import Network

_NETWORKS_MAX: Final = 100


def _parse_networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple) or len(value) > _NETWORKS_MAX:
        raise ValueError(f'{as_written(value)} is not a list of networks, such as ["127.0.0.1", "172.16.0.0/12"]')
    return tuple(_parse_network(each) for each in value)


def _parse_network(value: object) -> Network:
    try:
        return ip_network(value if isinstance(value, str) else "")
    except ValueError:
        shown = as_written(value)
        raise ValueError(f'{shown} is not a network; write one like "172.16.0.0/12" or an IP address') from None


NETWORKS: Final = Kind(name="list of networks", parse=_parse_networks, write=written_list, from_environment=split_words)
"""Written as a list; in the environment with commas."""

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
    trusted_proxies: tuple[Network, ...] = setting_of(
        NETWORKS, (), "Proxies whose X-Forwarded-For, -Proto and -Host are believed."
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


ADDRESSES_MAX: Final = 10
_LENGTH_MAX: Final = 1_000


def _parse_addresses(value: object) -> Secret:
    # Invariant: no message here holds the value, for it has keys in it.
    given = value.split() if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or len(given) > ADDRESSES_MAX:
        raise ValueError(
            f"it is not one Apprise address or a list of at most {ADDRESSES_MAX}; write one, several with spaces "
            'between them, a list, { env = "NAME" } or { file = "PATH" }'
        )
    for index, each in enumerate(given, 1):
        if not isinstance(each, str) or not each.isprintable() or not 0 < len(each) <= _LENGTH_MAX or " " in each:
            raise ValueError(
                f"address {index} is not one word of at most {_LENGTH_MAX} characters; write a space as %20"
            )
    return Secret(" ".join(given))


APPRISE: Final = Kind(
    name="Apprise addresses, a secret", parse=_parse_addresses, write=lambda secret: as_written(str(secret))
)
_QUIET: Final = Kind(name="hours of the day with their zone", parse=parse_quiet_hours, write=format_quiet_hours)


@frozen(kw_only=True)
class NotifySettings:
    """Notifications to a phone, a chat or a mailbox, by Apprise. Without an address nobody is told."""

    apprise: Secret = setting_of(  # noqa: RUF009 - an attrs field is made, not a value
        APPRISE,
        Secret(""),
        "Where they go: one or several Apprise addresses, such as ntfy://my-topic or tgram://token/chat.",
    )
    on: tuple[str, ...] = words(f"Of what: {', '.join(NoticeKind)}.", default=tuple(kind.value for kind in NoticeKind))
    quiet: QuietHours | None = setting_of(  # noqa: RUF009 - as above
        _QUIET,
        None,
        'When nobody is told, such as "22:00-07:00 Europe/Berlin"; afterwards all of it is told together.',
    )
    min_interval_s: float = duration(
        60.0,
        "Between two notifications of one kind; what comes meanwhile is told together.",
        low_s=1.0,
        high_s=86_400.0,
    )
    disk_free_bytes: int = size(
        10**9, "Free space of the data folder below which is told. 0: never.", low_bytes=0, high_bytes=10**15
    )


def notify_conflicts(notify: NotifySettings) -> Iterator[Conflict]:
    """What is named and does not exist."""
    for name in notify.on:
        if name not in set(NoticeKind):
            known = [kind.value for kind in NoticeKind]
            what = f"{as_written(name)} is nothing that can be told{suggestion(name, known)}"
            yield Conflict(("notify.on",), f"{what}; allowed: {', '.join(known)}")


@frozen(kw_only=True)
class PlaygroundSettings:
    """Invented sites on this machine, to try everything without an account and without a network."""

    enabled: bool = flag(
        False,  # noqa: FBT003  # a default
        "Whether the invented sites are there, with a database of their own in the folder playground of the data folder.",
    )
    listen: str = listen("127.0.0.1:7980", "IP address of this machine and port where they are.")


def playground_conflicts(playground: PlaygroundSettings, *, has_database: bool) -> Iterator[Conflict]:
    """What does not go together."""
    if not playground.enabled:
        return
    if has_database:
        yield Conflict(
            ("playground.enabled", "storage.url"),
            "the playground has a database of its own, and storage.url names another; "
            "take out storage.url, or write enabled = false under [playground]",
        )
    if not parse_listen_address(playground.listen).is_loopback:
        yield Conflict(
            ("playground.listen", "playground.enabled"),
            f"other machines could reach {playground.listen}; listen on 127.0.0.1",
        )

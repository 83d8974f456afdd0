"""What can be set for the playground?"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cormorant.rules.listen_addresses import parse_listen_address
from cormorant.rules.settings.conflicts import Conflict
from cormorant.rules.settings.fields import flag, listen

__all__ = ["PlaygroundSettings", "playground_conflicts"]


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

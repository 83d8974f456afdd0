"""Which key does an app get? That of a client of the settings; where none is set, the one that is kept in the data folder."""

from __future__ import annotations

from pathlib import Path

from cormorant.cli.words import NotDone, shown_path
from cormorant.rules.errors import KeyUnusable
from cormorant.rules.ports import ignore
from cormorant.rules.secrets import Secret
from cormorant.rules.settings import Settings
from cormorant.web.keys import kept_key

__all__ = ["client_key"]


def client_key(settings: Settings, config: str, name: str, *, may_make: bool = True) -> Secret:
    """The key of a client; made when it is not there yet, exactly as the server would, or empty if it may not be made.

    Clients stand in the settings file. Should they one day be kept elsewhere too, this is the one place that has to look there.
    """
    client = settings.clients.get(name)
    if client is None:
        known = f" (there are {', '.join(settings.clients)}: --client names one)" if settings.clients else ""
        raise NotDone(
            f"there is no client {name} yet, whose key the app could get{known}; write [clients.{name}] into "
            f"{shown_path(config)}, with nothing below it if you like, restart the service, and run this again"
        )
    if client.key or not may_make:
        return client.key
    try:
        return kept_key(Path(settings.data) / "keys" / f"client-{name}.key", of=f"the client {name}", emit=ignore)
    except KeyUnusable as error:
        raise NotDone(str(error)) from None

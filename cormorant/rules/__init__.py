"""Pure: the vocabulary (events, errors, settings) and every decision. No trio, no SQL, no clock, no chance, no files."""

from cormorant.rules.errors import (
    ActorCrashed,
    ActorGone,
    CommitUnknown,
    CormorantError,
    MailboxFull,
    RestartsExhausted,
    ServiceFailed,
    ServiceStopped,
    SettingsError,
    StartFailed,
    StorageUnavailable,
)
from cormorant.rules.events import Event

__all__ = [
    "ActorCrashed",
    "ActorGone",
    "CommitUnknown",
    "CormorantError",
    "Event",
    "MailboxFull",
    "RestartsExhausted",
    "ServiceFailed",
    "ServiceStopped",
    "SettingsError",
    "StartFailed",
    "StorageUnavailable",
]

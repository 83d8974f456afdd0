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
from cormorant.rules.jobs.verdicts import Cancel, Fail, Retry, Snooze
from cormorant.rules.ports import Clock
from cormorant.rules.search.outcomes import CredentialsRefused, SourceLimited, SourceRefused, SourceUnavailable
from cormorant.rules.search.priorities import Priority

__all__ = [
    "ActorCrashed",
    "ActorGone",
    "Cancel",
    "Clock",
    "CommitUnknown",
    "CormorantError",
    "CredentialsRefused",
    "Event",
    "Fail",
    "MailboxFull",
    "Priority",
    "RestartsExhausted",
    "Retry",
    "ServiceFailed",
    "ServiceStopped",
    "SettingsError",
    "Snooze",
    "SourceLimited",
    "SourceRefused",
    "SourceUnavailable",
    "StartFailed",
    "StorageUnavailable",
]

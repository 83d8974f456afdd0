"""CormorantError and the shared errors, with exit code and HTTP status; NotFound, AlreadyExists, SetInFile."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from cormorant.rules.secrets import Secret, redact_keys, redact_secrets


class CormorantError(Exception):
    """Any error that Cormorant raises by name."""

    http_status: ClassVar[int] = 500
    """How the API answers it. 500: nobody expects it there, and it is logged."""
    exit_code: ClassVar[int] = 2
    """How a command ends with it. 1: it could not be done. 2: the input, the settings or the database are wrong."""
    retry_after_s: float | None = None
    """After how many seconds asking again may work, where that is known."""


class NotFound(CormorantError):
    """There is nothing of this name or number."""

    http_status = 404
    exit_code = 1

    def __init__(self, kind: str, name: object, remedy: str) -> None:
        super().__init__(f"there is no {kind} {name!r}; {remedy}")


class ConflictError(CormorantError):
    """Something cannot be done as things are now."""

    http_status = 409
    exit_code = 1


class AlreadyExists(ConflictError):
    """Something of this name is there already."""

    def __init__(self, kind: str, name: str, remedy: str = "choose another name, or remove it first") -> None:
        article = "an" if kind[0] in "aeiou" else "a"
        super().__init__(f"there is {article} {kind} {name!r} already; {remedy}")


class SetInFile(ConflictError):
    """It is set in the settings file, and is changed there."""

    def __init__(self, kind: str, name: str, section: str) -> None:
        super().__init__(f"the {kind} {name!r} is one of the settings file; take [{section}.{name}] out of it")


class ActorError(CormorantError):
    """An actor could not take or answer a message."""

    http_status = 503

    def __init__(self, actor: str, message: str) -> None:
        super().__init__(message)
        self.actor = actor


class ActorCrashed(ActorError):
    """The actor crashed, or was restarted, with this question in hand. It may have been half done; asking again may work."""

    def __init__(self, actor: str) -> None:
        super().__init__(actor, f"{actor} crashed before it answered; it is being restarted, ask again")


class ActorGone(ActorError):
    """The actor has ended for good. Asking again will not help."""

    def __init__(self, actor: str) -> None:
        super().__init__(actor, f"{actor} has ended and takes no more messages")


class AskTimedOut(ActorError):
    """The actor did not answer within the asker's time. A question it had not read yet was withdrawn."""

    def __init__(self, actor: str, timeout_s: float) -> None:
        super().__init__(actor, f"{actor} did not answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class MailboxFull(ActorError):
    """The mailbox has no room now. Wait with `tell`, or send less."""

    def __init__(self, actor: str, capacity: int) -> None:
        super().__init__(actor, f"the mailbox of {actor} is full ({capacity} messages)")
        self.capacity = capacity


class UnknownMessage(ActorError):
    """The actor does not take messages of this class. Nothing was done."""

    def __init__(self, actor: str, message: str) -> None:
        super().__init__(actor, f"{actor} takes no message of class {message}")
        self.message = message


class NotAnswered(ActorError):
    """The actor handled the question and gave no answer: a mistake in its code."""

    http_status = 500

    def __init__(self, actor: str, message: str) -> None:
        super().__init__(actor, f"{actor} handled {message} and gave no answer; report this")
        self.message = message


class WaitForbidden(ActorError):
    """An actor tried to wait for one that may wait for it: the two could stop for ever."""

    def __init__(self, actor: str, target: str) -> None:
        super().__init__(
            actor,
            f"{actor} may not wait for {target}: waiting goes only towards what was started earlier; "
            "use tell_nowait, or let the other side ask",
        )
        self.target = target


class SupervisionError(CormorantError):
    """A supervisor could not keep its children running."""

    def __init__(self, child: str, message: str) -> None:
        super().__init__(message)
        self.child = child


class StartFailed(SupervisionError):
    """A child did not come up the first time. Its cause is `__cause__`."""

    def __init__(self, child: str, why: str) -> None:
        super().__init__(child, f"{child} did not start: {why}")


class RestartsExhausted(SupervisionError):
    """A child crashed more often than its supervisor allows. The last crash is `__cause__`."""

    def __init__(self, child: str, *, intensity: int, period_s: float) -> None:
        super().__init__(child, f"{child} crashed more than {intensity} times within {period_s:g} s of running")
        self.intensity = intensity
        self.period_s = period_s


class StorageError(CormorantError):
    """The database could not do what was asked."""


class StorageUnavailable(StorageError):
    """The call surely changed nothing: the database was away, busy or full until the deadline. Asking again may work."""

    http_status = 503


class StatementTooSlow(StorageUnavailable):
    """A call was ended because it ran longer than its time-out. It changed nothing; ask for less at once."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"a call ran longer than {limit_s:g} s and was ended: ask for less at once, or allow more time"
        )
        self.limit_s = limit_s


class TransactionMisused(StorageError):
    """A storage function did to its transaction what only the gateway may do. A mistake in that function."""


class TextRefused(StorageError):
    """A text holds what not every database can store. Clean it where it comes in."""

    http_status = 400


class CommitUnknown(StorageError):
    """The connection was lost at COMMIT: the call may have happened. Look before repeating it."""

    http_status = 503
    exit_code = 1


class StorageMisconfigured(StorageError):
    """The database cannot be used as it is configured. Waiting will not help; the message names the remedy."""


class DatabaseNeedsNewerCode(StorageMisconfigured):
    """The database was migrated by a newer Cormorant that this one cannot work beside."""

    def __init__(self, *, needs: int, have: int) -> None:
        super().__init__(
            f"the database needs code of schema version {needs}, this Cormorant has {have}: "
            "upgrade Cormorant, or restore the backup that was made before the migration"
        )
        self.needs = needs
        self.have = have


class DatabasePreRelease(StorageMisconfigured):
    """The database was made before the initial schema. It is not changed."""

    def __init__(self) -> None:
        super().__init__(
            "the database was made by a pre-release version of Cormorant and is not changed: set data to a new folder, or "
            "storage.url to an empty database"
        )


class DatabaseUnfinished(StorageMisconfigured):
    """A copy into the database was begun and never finished: nothing is in it."""

    def __init__(self) -> None:
        super().__init__(
            "a copy into it was begun and not finished, and nothing of it was kept: run `cormorant migrate` again with the "
            "settings of the old database, or use that one"
        )


class MigrationFailed(StorageMisconfigured):
    """A migration did not go through. The database is as it was before."""

    def __init__(self, *, version: int, name: str, why: str) -> None:
        super().__init__(f"migration {version} ({name}) failed and changed nothing: {why}")
        self.version = version


class JobError(CormorantError):
    """A job could not be taken in, or changed, as asked."""

    http_status = 409


class IllegalChange(JobError):
    """The job is in a state in which this cannot be done to it."""

    def __init__(self, *, verb: str, state: str) -> None:
        super().__init__(f"a job that is {state} cannot be changed by {verb}")
        self.verb = verb
        self.state = state


class KeyTaken(JobError):
    """A job cannot live again because another one with its key lives."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} cannot be revived: another job of its kind and key is waiting or running")
        self.job_id = job_id


class PayloadRefused(JobError):
    """What was to be enqueued cannot be kept as JSON, is too large, or holds a NUL character."""


class UnknownLabel(JobError):
    """No priority has that name."""

    def __init__(self, label: str, *, known: Sequence[str]) -> None:
        super().__init__(f"there is no priority {label!r}; use one of {', '.join(known)}")
        self.label = label


class QueueFull(JobError):
    """There is no room now. Come back later, or send less."""

    def __init__(self, capacity: int) -> None:
        super().__init__(f"the queue is full ({capacity} items); try again later")
        self.capacity = capacity


class QueueShutDown(JobError):
    """The queue takes nothing more in because the service is stopping."""

    def __init__(self) -> None:
        super().__init__("the queue is shut down and takes nothing more")


class JobTimedOut(JobError):
    """A handler did not finish in the time of its kind."""

    def __init__(self, kind: str, timeout_s: float) -> None:
        super().__init__(f"the handler of {kind} did not finish within {timeout_s:g} s")
        self.timeout_s = timeout_s


class HandlerMisbehaved(JobError):
    """A handler is not what a handler must be. Asking again will not help."""


class LeaseLost(JobError):
    """The job is no longer ours: it was cancelled, or given to another process. Nothing was changed."""

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"job {job_id} is no longer ours: it was cancelled or given to another process, and nothing was written"
        )
        self.job_id = job_id


class ServiceError(CormorantError):
    """The service cannot serve."""


class ServiceFailed(ServiceError):
    """The tree could not be kept running and has stopped. The reason is `__cause__`."""


class ServiceStopped(ServiceError):
    """The service has stopped and takes no more calls."""

    http_status = 503


class SettingsError(CormorantError):
    """Something in the settings is wrong. All that is wrong is listed, each with its key, value and remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class CannotListen(CormorantError):
    """The HTTP server could not take its address."""

    def __init__(self, address: str, why: str, *, is_in_use: bool) -> None:
        remedy = "end what uses it, or set" if is_in_use else "set"
        super().__init__(
            f"web.listen: cannot listen on {address}: {why}; {remedy} web.listen to another address "
            "(web.enabled = false: no server)"
        )
        self.address = address
        self.why = why
        self.is_in_use = is_in_use


class KeyUnusable(CormorantError):
    """The file of a key cannot be read or made."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"the key in {file} cannot be used: {why}; mend or remove the file, or set the key in the settings"
        )
        self.file = file


class PlaygroundClosed(CormorantError):
    """The playground cannot be opened at the address that it is to have."""


# The beginning and the end of a traceback tell the most: a long one is cut in the middle.
TRACE_HEAD_MAX: Final = 2_000
TRACE_TAIL_MAX: Final = 6_000


def split_crash(error: BaseException) -> tuple[Exception | None, BaseException | None]:
    """The part of an error that is a crash, and the part that must go on up: cancellation, Ctrl-C.

    What raises while it is cancelled leaves a group of both, which `except Exception` would miss.

    >>> split_crash(ValueError("x"))
    (ValueError('x'), None)
    >>> split_crash(BaseExceptionGroup("both", [KeyboardInterrupt(), ValueError("x")]))
    (ExceptionGroup('both', [ValueError('x')]), BaseExceptionGroup('both', [KeyboardInterrupt()]))
    """
    if isinstance(error, BaseExceptionGroup):
        return error.split(Exception)
    return (error, None) if isinstance(error, Exception) else (None, error)


def split_off(
    error: BaseException, kinds: tuple[type[BaseException], ...]
) -> tuple[BaseException | None, BaseException | None]:
    """The part of an error that is of some kinds, and the part that is not.

    >>> split_off(SystemExit(3), (KeyboardInterrupt,))
    (None, SystemExit(3))
    """
    return split_where(error, lambda each: isinstance(each, kinds))


def split_where(
    error: BaseException, is_meant: Callable[[BaseException], bool]
) -> tuple[BaseException | None, BaseException | None]:
    """The part of an error that is meant, and the rest. A group is split by its members.

    >>> split_where(ExceptionGroup("two", [KeyError("x"), ValueError("y")]), lambda each: isinstance(each, KeyError))
    (ExceptionGroup('two', [KeyError('x')]), ExceptionGroup('two', [ValueError('y')]))
    """
    if isinstance(error, BaseExceptionGroup):
        return error.split(lambda each: not isinstance(each, BaseExceptionGroup) and is_meant(each))
    return (error, None) if is_meant(error) else (None, error)


def describe(error: BaseException | None) -> str:
    """What an error says; a group says what its parts say, for its own words name only the nursery.

    >>> describe(ExceptionGroup("Exceptions from Trio nursery", [ExceptionGroup("g", [ValueError("x"), KeyError("y")])]))
    "x; 'y'"
    """
    return "None" if error is None else "; ".join(map(str, leaves_of(error)))


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group and in the groups in it; an error that is no group alone."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


def trace_of(error: BaseException, secrets: Iterable[Secret] = ()) -> str:
    """The traceback of an error and its causes, at most 8,000 characters, without secrets and keys in links."""
    # Hidden before it is cut: the cut could leave half a secret.
    text = redact_keys(redact_secrets("".join(traceback.format_exception(error)).rstrip(), secrets))
    if len(text) <= TRACE_HEAD_MAX + TRACE_TAIL_MAX:
        return text
    return f"{text[:TRACE_HEAD_MAX]}\n…\n{text[-TRACE_TAIL_MAX:]}"

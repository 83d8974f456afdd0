"""Parts of an error: what is a crash and what passes; its text and its traceback, without secrets."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Final

from cormorant.rules.redaction import hide_keys
from cormorant.rules.secrets import Secret, hide_secrets

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


def in_words(error: BaseException | None) -> str:
    """What an error says; a group says what its parts say, for its own words name only the nursery.

    >>> in_words(ExceptionGroup("Exceptions from Trio nursery", [ExceptionGroup("g", [ValueError("x"), KeyError("y")])]))
    "x; 'y'"
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(in_words(each) for each in error.exceptions)
    return str(error)


def trace_of(error: BaseException, secrets: Iterable[Secret] = ()) -> str:
    """The traceback of an error and its causes, at most 8,000 characters, without secrets and keys in links."""
    # Hidden before it is cut: the cut could leave half a secret.
    text = hide_keys(hide_secrets("".join(traceback.format_exception(error)).rstrip(), secrets))
    if len(text) <= TRACE_HEAD_MAX + TRACE_TAIL_MAX:
        return text
    return f"{text[:TRACE_HEAD_MAX]}\n…\n{text[-TRACE_TAIL_MAX:]}"

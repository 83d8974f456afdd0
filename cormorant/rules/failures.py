"""Which part of an error is a crash, and which is not ours to keep?"""

from __future__ import annotations


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
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


def in_words(error: BaseException | None) -> str:
    """What an error says; a group says what its parts say, for its own words name only the nursery.

    >>> in_words(ExceptionGroup("Exceptions from Trio nursery", [ExceptionGroup("g", [ValueError("x"), KeyError("y")])]))
    "x; 'y'"
    """
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(in_words(each) for each in error.exceptions)
    return str(error)

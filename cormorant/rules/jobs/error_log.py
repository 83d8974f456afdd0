"""The last errors kept of a job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from cormorant.rules.errors import leaves_of
from cormorant.rules.secrets import redact_passwords

KEPT = 5
TEXT_MAX = 2_000


def describe_error(error: BaseException) -> str:
    """An error in one line: its type and what it says. Of a group, all of them.

    >>> describe_error(ExceptionGroup("two", [ValueError("a"), KeyError("b")]))
    "ValueError: a; KeyError: 'b'"
    """
    return "; ".join(f"{type(leaf).__name__}: {clean_text(_words_of(leaf))}" for leaf in leaves_of(error))


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - foreign code: an error that cannot be printed is still only an error
        return f"(its text could not be had: {type(worse).__name__})"


def clean_text(text: str) -> str:
    """A text that every database can keep and every reader may see: no NUL, no half characters, no passwords in URLs."""
    plain = text.replace("\0", "\\0").encode("utf-8", "replace").decode()
    return redact_passwords(plain)[:TEXT_MAX]


def remember_error(before: str | None, error: BaseException, *, job_id: int, attempt: int, at: datetime) -> str:
    """The kept errors of a job with one more, the newest last, as JSON."""
    kept: list[dict[str, Any]] = json.loads(before) if before else []
    entry = {
        "id": job_id,
        "attempt": attempt,
        "type": type(error).__name__,
        "error": clean_text(describe_error(error)),
        "at": at.isoformat(),
    }
    return json.dumps([*kept, entry][-KEPT:])

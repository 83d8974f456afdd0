"""What do services say that answer in JSON? Their words for an error, and the answer as what it must be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx2

from cormorant.clients.http.transport import Answer, shown_origin
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Offload
from cormorant.rules.search.outcomes import SourceUnavailable
from cormorant.rules.secrets import Secret, told

_STATED_BYTES_MAX: Final = 10_000


def segment(text: str) -> str:
    """A part of a path, encoded so that nothing in it divides the path or leads out of it.

    >>> segment("a b/c"), segment(".."), segment("ö%")
    ('a%20b%2Fc', '%2E%2E', '%C3%B6%25')
    """
    return quote(text, safe="", errors="replace").replace(".", "%2E")


def as_json(value: Any) -> bytes:
    """The body of a request. What is None is left out at the top."""
    kept = {name: part for name, part in value.items() if part is not None} if isinstance(value, dict) else value
    return json.dumps(kept).encode()


def said_by(answer: Answer, secrets: Sequence[Secret] = ()) -> str:
    """What a service says went wrong, for a message: a JSON string, a field that is called so, or plain text."""
    said = _stated(answer)
    if isinstance(said, dict):
        inner = said.get("error")
        named = said.get("error_description") or inner or said.get("title")
        said = inner.get("message") if isinstance(inner, dict) else named
    return told(said, secrets) if isinstance(said, str) else ""


def reason_of(answer: Answer) -> str:
    """The word by which a service names its error, if it does: `{"error": {"reason": …}}` or `{"error": …}`."""
    said = _stated(answer)
    inner = said.get("error") if isinstance(said, dict) else None
    reason = inner.get("reason") if isinstance(inner, dict) else inner
    return reason if isinstance(reason, str) else ""


def _stated(answer: Answer) -> Any:
    try:
        return parse_json(answer.body[:_STATED_BYTES_MAX])
    except ValueError:
        return answer.body[:_STATED_BYTES_MAX].decode("utf-8", "replace")


async def read_json(answer: Answer, offload: Offload, kind: type[dict[str, Any] | list[Any]]) -> Any:
    """The answer as what it must be, read in a thread. Raises `SourceUnavailable` for everything else."""
    try:
        found = await offload(parse_json, answer.body)
    except ValueError:
        raise SourceUnavailable(f"{_where(answer)} answered HTTP {answer.status} with what is no JSON") from None
    if not isinstance(found, kind):
        raise SourceUnavailable(f"{_where(answer)} answered with another kind of JSON than it should")
    return found


def _where(answer: Answer) -> str:
    return shown_origin(httpx2.URL(answer.url))

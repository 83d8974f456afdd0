"""How is a service asked that answers in JSON? One request, one answer: what changes something there is never redirected."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast
from urllib.parse import quote

import httpcore2
import httpx2
import trio
from attrs import frozen

from cormorant.clients.bodies import BodyTooLarge, BodyUnreadable, read_body, refuse_length
from cormorant.clients.hushing import hushed
from cormorant.clients.transport import (
    FOREIGN,
    USER_AGENT,
    Answer,
    FetchLimits,
    Transport,
    own_headers,
    shown_origin,
    words_of,
)
from cormorant.rules.ports import Offload
from cormorant.rules.redaction import spellings, told
from cormorant.rules.secrets import Secret
from cormorant.rules.source_errors import SourceRefused, SourceUnavailable

CLOSING_S: Final = 1.0
_STATED_BYTES_MAX: Final = 10_000
_NOT_SENT: Final = (httpcore2.ConnectError, httpcore2.ConnectTimeout)
_REDIRECTS: Final = {301, 302, 303, 307, 308}


class Unreachable(SourceUnavailable):
    """There was no connection: what was asked has surely not arrived."""


@frozen(kw_only=True)
class Call:
    """One request. `url` is whole, its parts percent-encoded; `secrets` are what must not be seen of it."""

    method: str
    url: str
    headers: Mapping[str, str]
    limits: FetchLimits
    content: bytes = b""
    secrets: Sequence[Secret] = ()


async def ask(transport: Transport, call: Call) -> Answer:
    """Send it and read the answer, whatever its status. Raises a `SourceError`."""
    asked_at = trio.current_time()
    url = _address(call.url)
    common = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip, deflate"}
    headers = common | {"Connection": "close"} | own_headers(url, call.headers)
    with trio.move_on_after(call.limits.timeout_s), hushed():
        try:
            answer = await transport.send(url, headers, method=call.method, content=call.content)
            return await _read(answer, call, asked_at)
        except FOREIGN as error:
            _translate(error, url, call)
    raise SourceUnavailable(f"{shown_origin(url)} did not answer in full within {call.limits.timeout_s:g} s")


def _address(text: str) -> httpx2.URL:
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError, ValueError):
        # Not as its cause: the text of the error holds the address, and the address may hold a password.
        raise SourceRefused("what was given is no address; write http://host:port or https://host") from None


async def _read(answer: httpcore2.Response, call: Call, asked_at: float) -> Answer:
    try:
        headers = httpx2.Headers(answer.headers)
        if answer.status in _REDIRECTS:
            raise SourceRefused(
                f"{shown_origin(httpx2.URL(call.url))} redirects (HTTP {answer.status}); "
                "write the address that it leads to into the settings"
            )
        body = await _body(answer, headers, call)
    finally:
        with trio.move_on_after(CLOSING_S, shield=True):
            await answer.aclose()
    took_s = trio.current_time() - asked_at
    return Answer(status=answer.status, headers=headers, body=body, url=call.url, took_s=took_s)


async def _body(answer: httpcore2.Response, headers: httpx2.Headers, call: Call) -> bytes:
    where, most = shown_origin(httpx2.URL(call.url)), call.limits.body_max_bytes
    try:
        refuse_length(headers.get("Content-Length", ""), bytes_max=most)
        stream = cast("AsyncIterable[bytes]", answer.stream)
        return await read_body(stream, encoding=headers.get("Content-Encoding", ""), bytes_max=most)
    except BodyTooLarge as error:
        raise SourceUnavailable(f"the answer of {where} has more than {most:,} bytes") from error
    except BodyUnreadable as error:
        raise SourceUnavailable(f"the answer of {where} cannot be read: {error}") from error


def _translate(error: Exception, url: httpx2.URL, call: Call) -> NoReturn:
    said = words_of(error)
    shown = told(said, spellings(call.secrets))
    # A foreign error that holds a secret is not shown as the cause either.
    cause = error if shown == " ".join(said.split()) else None
    kind = Unreachable if isinstance(error, _NOT_SENT) else SourceUnavailable
    raise kind(f"{shown_origin(url)} cannot be reached or does not speak HTTP: {shown}") from cause


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
        return json.loads(answer.body[:_STATED_BYTES_MAX])
    except (ValueError, RecursionError):
        return answer.body[:_STATED_BYTES_MAX].decode("utf-8", "replace")


async def read_json(answer: Answer, offload: Offload, kind: type[dict[str, Any] | list[Any]]) -> Any:
    """The answer as what it must be, read in a thread. Raises `SourceUnavailable` for everything else."""
    try:
        found = await offload(json.loads, answer.body)
    except (ValueError, RecursionError):
        raise SourceUnavailable(f"{_where(answer)} answered HTTP {answer.status} with what is no JSON") from None
    if not isinstance(found, kind):
        raise SourceUnavailable(f"{_where(answer)} answered with another kind of JSON than it should")
    return found


def _where(answer: Answer) -> str:
    return shown_origin(httpx2.URL(answer.url))

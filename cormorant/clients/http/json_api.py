"""JSON behind a key, and errors in JSON answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from attrs import frozen

from cormorant.clients.http.transport import Answer, FetchLimits, Transport
from cormorant.rules.json_documents import parse_json
from cormorant.rules.ports import Offload
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)
from cormorant.rules.secrets import Secret, shortened

_LIMITS: Final = FetchLimits(timeout_s=30.0, body_max_bytes=20_000_000)
_PATIENT: Final = FetchLimits(timeout_s=120.0)
"""An app that tries out an indexer before it keeps it takes as long as the indexer."""
_CREDENTIALS: Final = {401, 403}


@frozen(kw_only=True)
class JsonApi:
    """One app. `app` is what people call it, `url` its address as they write it."""

    app: str
    url: str
    key: Secret
    transport: Transport
    offload: Offload

    async def get(self, path: str) -> Any:
        """What is there. Raises a `SourceError`."""
        answer = await self.transport.get(
            self._address(path), headers=self._headers(), secrets=[self.key], limits=_LIMITS
        )
        return await self._understood(answer)

    async def change(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for a change. Raises a `SourceError`; a `SourceRefused` if it does not like the body."""
        answer = await self.transport.ask(
            method,
            self._address(path),
            body=json_body(body),
            headers=self._headers() | {"Content-Type": "application/json"},
            secrets=[self.key],
            limits=_PATIENT,
        )
        return await self._understood(answer)

    def _address(self, path: str) -> str:
        return f"{self.url.rstrip('/')}{path}"

    def _headers(self) -> dict[str, str]:
        return {"X-Api-Key": self.key.reveal(), "Accept": "application/json"}

    async def _understood(self, answer: Answer) -> Any:
        if answer.status in _CREDENTIALS:
            raise CredentialsRefused(f"it does not accept this key; look in {self.app} under Settings, General")
        if answer.is_page or answer.status == HTTPStatus.NOT_FOUND:
            where = "with a web page" if answer.is_page else "that there is no such thing"
            raise SourceRefused(
                f"what is there answers {where}, so it is not the API of {self.app}; check the address: "
                f"the port, and the URL base if {self.app} has one, such as http://host:port/{self.app.lower()}"
            )
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise SourceLimited("it wants to be asked less")
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise SourceUnavailable(f"it is in trouble itself (HTTP {answer.status}); look at its log")
        return self._read(answer, await self._parsed(answer))

    async def _parsed(self, answer: Answer) -> Any:
        if not answer.body.strip():
            return None
        try:
            return await self.offload(parse_json, answer.body)
        except ValueError:
            raise SourceRefused(f"what is there does not answer in JSON, so it is not {self.app}") from None

    def _read(self, answer: Answer, said: Any) -> Any:
        if answer.is_good:
            return said
        failures = [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []
        words = "; ".join(dict.fromkeys(str(each.get("errorMessage", "")) for each in failures))
        if isinstance(said, dict):
            words = str(said.get("message") or said.get("error") or "")
        raise SourceRefused(shortened(words, [self.key], length_max=300) or f"HTTP {answer.status}")


_STATED_BYTES_MAX: Final = 10_000


def segment(text: str) -> str:
    """A part of a path, encoded so that nothing in it divides the path or leads out of it.

    >>> segment("a b/c"), segment(".."), segment("ö%")
    ('a%20b%2Fc', '%2E%2E', '%C3%B6%25')
    """
    return quote(text, safe="", errors="replace").replace(".", "%2E")


def json_body(value: Any) -> bytes:
    """The body of a request; empty for None."""
    return b"" if value is None else json.dumps(value).encode()


def error_text_of(answer: Answer, secrets: Sequence[Secret] = ()) -> str:
    """What a service says went wrong, for a message: a JSON string, a field that is called so, or plain text."""
    said = _stated(answer)
    if isinstance(said, dict):
        inner = said.get("error")
        named = said.get("error_description") or inner or said.get("title")
        said = inner.get("message") if isinstance(inner, dict) else named
    return shortened(said, secrets) if isinstance(said, str) else ""


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


async def read_json(
    answer: Answer, offload: Offload, kind: type[dict[str, Any] | list[Any]], refusal: SourceError | None
) -> Any:
    """The answer as what it must be, read in a thread. Raises `SourceUnavailable` for everything else.

    `refusal` is what its status stands for, and is raised before anything is read.
    """
    if refusal is not None:
        raise refusal
    try:
        found = await offload(parse_json, answer.body)
    except ValueError:
        raise SourceUnavailable(f"{answer.origin} answered HTTP {answer.status} with what is no JSON") from None
    if not isinstance(found, kind):
        raise SourceUnavailable(f"{answer.origin} answered with another kind of JSON than it should")
    return found

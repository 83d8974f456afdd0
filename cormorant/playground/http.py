"""What a stand-in is asked, what it answers, and the form of both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email import message_from_bytes
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlencode

from attrs import evolve, field, frozen

ASKED_MAX: Final = 1_000
"""Requests that a stand-in remembers."""
JSON: Final = "application/json; charset=utf-8"


@frozen
class FormData:
    """The fields by name, and the files: their name, and their bytes."""

    fields: Mapping[str, str] = field(factory=dict)
    files: Mapping[str, tuple[str, bytes]] = field(factory=dict)


@frozen(kw_only=True)
class StandInRequest:
    """A request: `path` is what follows the name of the site, `base` is the address of the site itself."""

    method: str = "GET"
    path: str = "/"
    params: Mapping[str, str] = field(factory=dict)
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    base: str = ""

    @property
    def line(self) -> str:
        """Method, path and parameters, as in `GET /api?t=caps`."""
        return f"{self.method} {self.path}" + (f"?{urlencode(self.params)}" if self.params else "")

    def json(self) -> Any:
        """What the body says; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def form(self) -> FormData:
        """What the body says as a form; nothing when it is none."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/x-www-form-urlencoded"):
            return FormData(dict(parse_qsl(self.body.decode("utf-8", "replace"), keep_blank_values=True)))
        return _multipart(kind, self.body) if kind.startswith("multipart/form-data") else FormData()


def _multipart(kind: str, body: bytes) -> FormData:
    message = message_from_bytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + body)
    fields: dict[str, str] = {}
    files: dict[str, tuple[str, bytes]] = {}
    for part in message.walk():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            continue
        file_name = part.get_filename()
        if file_name is None:
            fields[name] = content.decode("utf-8", "replace")
        else:
            files[name] = (file_name, content)
    return FormData(fields, files)


@frozen(kw_only=True)
class StandInResponse:
    """An answer."""

    status: int = 200
    kind: str = "text/plain; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)


class StandInSite(Protocol):
    """A stand-in: it has a name, and an answer to everything."""

    @property
    def name(self) -> str:
        """What its address begins with."""
        ...

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says to a request."""
        ...


def remember(asked: list[StandInRequest], newest: StandInRequest) -> None:
    """Keep the newest requests, without their bodies."""
    asked.append(evolve(newest, body=b""))
    del asked[:-ASKED_MAX]


def as_text(text: str, *, status: int = 200) -> StandInResponse:
    """An answer in plain text."""
    return StandInResponse(status=status, body=text.encode())


def as_json(
    value: Any, *, status: int = 200, kind: str = JSON, headers: Mapping[str, str] | None = None
) -> StandInResponse:
    """An answer in JSON."""
    return StandInResponse(status=status, kind=kind, body=json.dumps(value).encode(), headers=headers or {})


def as_xml(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> StandInResponse:
    """An answer in XML."""
    declared = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'
    return StandInResponse(
        status=status, kind="application/rss+xml; charset=utf-8", body=declared.encode(), headers=headers or {}
    )


def as_html(text: str, *, status: int = 200) -> StandInResponse:
    """A page for people."""
    page = f"<!doctype html><html><body><p>{text}</p></body></html>"
    return StandInResponse(status=status, kind="text/html; charset=utf-8", body=page.encode())

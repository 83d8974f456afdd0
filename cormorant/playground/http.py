"""A small HTTP server for all stand-ins on one port."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from email import message_from_bytes
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio
from attrs import evolve, field, frozen

BODY_BYTES_MAX: Final = 1_000_000
PARAMS_MAX: Final = 100
CONNECTION_S: Final = 120.0
"""What is asked and answered within this time is; whoever is slower is hung up on."""
_PIECE_BYTES: Final = 65_536
_DIGITS_MAX: Final = 9


@frozen(kw_only=True)
class StandInRequest:
    """A request: `path` is what follows the name of the site, `base` is the address of the site itself."""

    method: str = "GET"
    path: str = "/"
    params: Mapping[str, str] = field(factory=dict)
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes = b""
    base: str = ""

    def json(self) -> Any:
        """What the body says; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


@frozen(kw_only=True)
class StandInResponse:
    """An answer."""

    status: int = 200
    kind: str = "text/plain; charset=utf-8"
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)


def whole(text: str | None) -> int | None:
    """The number that a text is; None for what is none, or has more than nine digits.

    >>> whole("25"), whole("-1"), whole("9" * 5000), whole(None)
    (25, None, None, None)
    """
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if text and is_number else None


class StandInSite(Protocol):
    """A stand-in: it has a name, and an answer to everything."""

    @property
    def name(self) -> str:
        """What its address begins with."""
        ...

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says to a request."""
        ...


def as_json(value: Any, *, status: int = 200) -> StandInResponse:
    """An answer in JSON."""
    return StandInResponse(status=status, kind="application/json; charset=utf-8", body=json.dumps(value).encode())


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


async def talk(stream: trio.SocketStream, sites: Mapping[str, StandInSite], address: str) -> None:
    """Answer the one request of a connection, and close it."""
    try:
        with trio.move_on_after(CONNECTION_S):
            await _talk(stream, sites, address)
    except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
        pass  # whoever asked has gone, or asked in a way that has no answer
    finally:
        with trio.move_on_after(1.0, shield=True):
            await stream.aclose()


async def _talk(stream: trio.SocketStream, sites: Mapping[str, StandInSite], address: str) -> None:
    connection = h11.Connection(h11.SERVER)
    try:
        asked = await _read(stream, connection)
        reply = None if asked is None else await _answer(asked, sites, address)
        if reply is not None and asked is not None and asked.method == "HEAD":
            reply = evolve(reply, body=b"")
    except h11.RemoteProtocolError as error:
        reply = StandInResponse(status=error.error_status_hint, body=b"that is no request\n")
    if reply is not None:
        await _send(stream, connection, reply)


async def _answer(asked: StandInRequest, sites: Mapping[str, StandInSite], address: str) -> StandInResponse:
    name, _, rest = asked.path.removeprefix("/").partition("/")
    if name not in sites:
        return as_html(f"This is the playground. There are: {', '.join(sites) or 'no sites'}.", status=404)
    return await sites[name].answer(evolve(asked, path=f"/{rest}", base=f"{address}/{name}"))


async def _read(stream: trio.SocketStream, connection: h11.Connection) -> StandInRequest | None:
    """The request; None when the other side went away before it was whole."""
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_PIECE_BYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_BYTES_MAX:
                raise h11.RemoteProtocolError("the body is too long", error_status_hint=413)
        elif isinstance(event, h11.EndOfMessage):
            return None if head is None else _asked(head, bytes(body))
        else:
            return None


def _asked(head: h11.Request, body: bytes) -> StandInRequest:
    try:
        target = urlsplit(head.target.decode("latin-1"))
        params = parse_qsl(target.query, keep_blank_values=True, max_num_fields=PARAMS_MAX)
    except ValueError:
        raise h11.RemoteProtocolError("the address makes no sense", error_status_hint=400) from None
    headers: Sequence[tuple[bytes, bytes]] = list(head.headers)
    return StandInRequest(
        method=head.method.decode("ascii"),
        path=unquote(target.path),
        params=dict(params),
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers},
        body=body,
    )


async def _send(stream: trio.SocketStream, connection: h11.Connection, reply: StandInResponse) -> None:
    headers = {
        "Content-Type": reply.kind,
        "Content-Length": str(len(reply.body)),
        "Connection": "close",
        **reply.headers,
    }
    head = h11.Response(status_code=reply.status, headers=list(headers.items()))
    parts = [connection.send(head), connection.send(h11.Data(data=reply.body)), connection.send(h11.EndOfMessage())]
    await stream.send_all(b"".join(part for part in parts if part))


Handler = Callable[[str, str, Mapping[str, str], Mapping[str, str], bytes], tuple[int, Mapping[str, str], bytes]]
"""Answers a request: method, path, query, headers in lower case and body; with status, headers and body."""


@frozen
class FormData:
    """The fields by name, and the files: their name, and their bytes."""

    fields: Mapping[str, str] = field(factory=dict)
    files: Mapping[str, tuple[str, bytes]] = field(factory=dict)


def read_form(headers: Mapping[str, str], body: bytes) -> FormData:
    """What a form says; nothing when it is none."""
    kind = headers.get("content-type", "")
    if kind.startswith("application/x-www-form-urlencoded"):
        return FormData(dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)))
    if not kind.startswith("multipart/form-data"):
        return FormData()
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

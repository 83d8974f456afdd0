"""What was sent in a form? Fields and files of both ways in which a page sends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email import message_from_bytes
from urllib.parse import parse_qsl

from attrs import field, frozen

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

"""Is this really an NZB? It is read to its end, in bounded memory: one that is cut off would download half a file."""

from __future__ import annotations

import io

from lxml import etree

from cormorant.clients.http.xml_documents import refuse_entities
from cormorant.clients.torznab_replies import local_name

_NAME_MAX = 500


class NotAnNzb(Exception):
    """The bytes are no NZB, and why."""


def read_nzb(body: bytes) -> str:
    """The name that an NZB gives itself, or nothing. Raises `NotAnNzb` unless it is one with a segment to fetch."""
    refuse_entities(body)
    segments, name, root = 0, "", ""
    try:
        for event, element in etree.iterparse(
            io.BytesIO(body.lstrip()),
            events=("start", "end"),
            resolve_entities=False,
            no_network=True,
            huge_tree=False,
            load_dtd=False,
        ):
            kind = local_name(element)
            if event == "start":
                root = root or kind
                if root != "nzb":
                    raise NotAnNzb(f"it is a <{root[:40]}>")
                continue
            segments += kind == "segment" and bool(element.text)
            if kind == "meta" and (element.get("type") or "").lower() in {"name", "title"}:
                name = name or (element.text or "").strip()
            if kind == "file":
                element.clear()
    except etree.XMLSyntaxError as error:
        raise NotAnNzb("it is cut off, or no XML") from error
    if not segments:
        raise NotAnNzb("it names nothing to fetch")
    return name[:_NAME_MAX]

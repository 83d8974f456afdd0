"""Which indexers does Jackett have? It lists them on the Torznab route, where its key is enough; each is asked through Jackett itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lxml import etree

from cormorant.clients.http.transport import Transport
from cormorant.clients.torznab_replies import StatedError, local_name, read_reply
from cormorant.rules.app_indexers import OfferedIndexer
from cormorant.rules.ports import Offload
from cormorant.rules.search.outcomes import CredentialsRefused, SourceRefused, SourceUnavailable
from cormorant.rules.secrets import Secret

__all__ = ["APP", "jackett_indexers"]

APP: Final = "Jackett"
_LIST: Final = "/api/v2.0/indexers/all/results/torznab/api"
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ACCOUNT: Final = range(100, 200)
_ERRORS: Final = 400
_TITLE_MAX: Final = 100


async def jackett_indexers(url: str, key: Secret, transport: Transport, *, offload: Offload) -> list[OfferedIndexer]:
    """Its configured indexers. Raises a `SourceError`."""
    base = url.rstrip("/")
    params = [("t", "indexers"), ("configured", "true"), ("apikey", key.reveal())]
    answer = await transport.get(f"{base}{_LIST}", params=params, secrets=[key])
    is_page = "html" in answer.headers.get("Content-Type", "").lower()
    if is_page or answer.status >= _ERRORS:
        what = "a web page" if is_page else f"HTTP {answer.status}"
        raise SourceRefused(
            f"what is there answers with {what}, so it is not the API of {APP}; check the address: "
            f"the port, and the base path if {APP} has one, such as http://host:9117/jackett"
        )
    try:
        said = await offload(read_reply, answer.body)
    except SourceUnavailable:
        raise SourceRefused(f"what is there does not answer as {APP} does; check the address") from None
    if isinstance(said, StatedError):
        if said.code in _ACCOUNT:
            raise CredentialsRefused(f"it does not accept this key; look at the top of {APP}'s page")
        raise SourceRefused(f"it refuses to list its indexers (code {said.code})")
    return list(_offered(base, said))


def _offered(base: str, root: etree._Element) -> Iterator[OfferedIndexer]:
    for each in root.iter():
        name = each.get("id") or ""
        if local_name(each) != "indexer" or not _ID.fullmatch(name):
            continue
        facts = {local_name(part): (part.text or "").strip() for part in each}
        yield OfferedIndexer(
            title=(facts.get("title") or name)[:_TITLE_MAX],
            url=f"{base}/api/v2.0/indexers/{name}/results/torznab/api",
            kind="torznab",
            is_private=facts.get("type") != "public",
            is_enabled=each.get("configured", "true").lower() == "true",
        )

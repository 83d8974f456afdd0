"""What does a link of a feed lead to? Nobody wrote it down: it leads to no private address, and to a torrent, an NZB or a magnet."""

from __future__ import annotations

from functools import partial
from typing import Final

import httpx2

from cormorant.clients.feed_replies import error_of_feed
from cormorant.clients.files import Download, download_from_magnet, parse_download
from cormorant.clients.http.retry_after import retry_after_s
from cormorant.clients.http.transport import FetchLimits, Transport, shown_origin
from cormorant.rules.ports import Clock, Offload
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.secrets import keys_in, told

LIMITS: Final = FetchLimits(timeout_s=60.0, body_max_bytes=20_000_000)


async def fetch_link(
    link: str, transport: Transport, *, offload: Offload, clock: Clock, limits: FetchLimits = LIMITS
) -> Download:
    """Fetch it, and make sure what it is. Raises a `SourceError`."""
    if link.startswith("magnet:"):
        return download_from_magnet(link)
    secrets = keys_in(link, in_path=False)
    answer = await transport.get(link, secrets=secrets, limits=limits)
    if answer.magnet is not None:
        return download_from_magnet(answer.magnet)
    where = shown_origin(httpx2.URL(answer.url))
    wait_s = retry_after_s(answer.headers.get("Retry-After"), now=clock.now())
    error = error_of_feed(answer.status, asked=f"the download at {where}", retry_after_s=wait_s)
    if error is not None:
        raise error
    found = await offload(partial(parse_download, answer.body))
    if isinstance(found, Download):
        return found
    raise SourceRefused(f"{where} gave an error instead of a download: {told(found.description, secrets)}")

"""Packing a find: what its target is asked by later is in the parcel."""

from __future__ import annotations

from typing import Any

import pytest

from actors.watch.handover_tracker import facts_of
from cormorant.rules.search.requests import Result
from cormorant.services.watch.parcel_fetcher import ParcelFetcher
from storage.watch.wants import Candidate
from tests.environments import environment_of
from tests.storage.job_store import NOW
from tests.storage.watch_store import new_want

V1, V2 = "ab" * 20, "cd" * 32


@pytest.mark.parametrize(
    ("names", "infohash"),
    [(f"xt=urn:btih:{V1}&xt=urn:btmh:1220{V2}", V1), (f"xt=urn:btmh:1220{V2}", V2), ("dn=none", None)],
)
async def test_the_infohash_of_a_magnet_is_kept_in_whichever_version_it_is(names: str, infohash: str | None) -> None:
    nobody: Any = None  # a magnet asks nobody
    result = Result(title="New", guid="1", link=f"magnet:?{names}", protocol="torrent")
    candidate = Candidate(want_id=1, ref="s/1", source="s", result=result, position=0, found_at=NOW)

    parcel = await ParcelFetcher(environment_of(), searches=nobody)(new_want(), candidate, "key")

    assert facts_of(parcel)["infohash"] == infohash

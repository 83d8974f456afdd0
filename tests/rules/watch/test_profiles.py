"""What profiles make of finds: nothing that an indexer states can make them fail."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cormorant.rules.search.requests import Protocol, Result
from cormorant.rules.watch.profiles import Profile, judge

NOW = datetime(2026, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize("rank", ["first", "nan", ""])
def test_an_indexer_cannot_state_the_rank_that_only_peers_have(rank: str) -> None:
    find = Result(title="A", guid="1", link="", protocol="torrent", seeders=3, attributes={"rank": (rank,)})

    assert judge(Profile(), find, now=NOW).rank == (3.0, 0.0)


@pytest.mark.parametrize(("protocol", "rank"), [("soulseek", (7.0, 0.0)), ("torrent", (3.0, 0.0))])
def test_what_peers_offer_stands_by_its_rank(protocol: Protocol, rank: tuple[float, ...]) -> None:
    find = Result(title="A", guid="1", link="", protocol=protocol, seeders=3, attributes={"rank": ("7",)})

    assert judge(Profile(), find, now=NOW).rank == rank

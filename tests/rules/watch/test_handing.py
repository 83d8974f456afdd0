"""Parcels: a key that every target can keep, and nothing shown that must not be."""

from __future__ import annotations

import pytest

from cormorant.rules.watch.handovers import Parcel, ParcelKind


@pytest.mark.parametrize("key", ["", "-a", "A", "a b", "a/b", "ä", "a" * 65, "a\n"])
def test_a_key_that_not_every_target_can_keep_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="the key of a parcel has 1 to 64"):
        Parcel(key=key, title="x", kind=ParcelKind.URL)


def test_a_parcel_shows_neither_its_body_nor_the_keys_of_its_link() -> None:
    parcel = Parcel(
        key="a" * 64,
        title="x",
        kind=ParcelKind.NZB,
        body=b"hunter2",
        link="https://me:hunter2@x.org/get?apikey=hunter2",
    )

    assert "hunter2" not in repr(parcel)
    assert "<7 bytes>" in repr(parcel)

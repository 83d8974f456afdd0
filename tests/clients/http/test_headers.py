"""Dates and magnets of results: read fast, and as the standard library reads them."""

from __future__ import annotations

from base64 import b32encode
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.clients.http.headers import read_date
from cormorant.rules.watch.handovers import infohash_of_magnet, read_infohash

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001 - the zone is drawn apart
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(MOMENTS, ZONES)
def test_a_date_is_read_as_it_was_written(moment: datetime, zone: timezone) -> None:
    written = moment.replace(microsecond=0, tzinfo=zone)

    assert read_date(format_datetime(written)) == written
    assert read_date(written.isoformat()) == written


@given(st.text(max_size=70))
def test_any_text_is_a_date_in_utc_or_none(text: str) -> None:
    found = read_date(text)

    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "Thu, 02 Jul 2015 08:18:29 GMT",
        "2 Jul 2015 08:18:29 +0000",
        "2015-07-02 08:18:29",
        "2015-07-02T08:18:29Z",
        "1435825109",
    ],
)
def test_the_forms_that_indexers_use(text: str) -> None:
    assert read_date(text) == datetime(2015, 7, 2, 8, 18, 29, tzinfo=UTC)


@given(st.binary(min_size=20, max_size=20))
def test_an_infohash_is_known_in_every_spelling(digest: bytes) -> None:

    base32 = b32encode(digest).decode()

    assert read_infohash(digest.hex().upper()) == digest.hex()
    assert infohash_of_magnet(f"magnet:?xt=urn:btih:{base32}&dn=x") == digest.hex()


@given(st.text(max_size=80))
def test_any_text_is_an_infohash_or_none(text: str) -> None:
    assert read_infohash(text) is None or len(read_infohash(text) or "") in {40, 64}
    assert infohash_of_magnet(f"magnet:?{text}") is None or "btih" in text

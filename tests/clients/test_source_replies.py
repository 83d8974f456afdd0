"""What replies mean: the code before the status, the status before the words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.clients.torznab_replies import IndexerReply, error_of
from cormorant.rules.search.outcomes import (
    CredentialsRefused,
    SourceError,
    SourceLimited,
    SourceRefused,
    SourceUnavailable,
)

STATUSES = st.integers(100, 599)
WORDS = st.text(max_size=40)


@given(status=STATUSES, code=st.integers(100, 199), words=WORDS)
def test_an_account_error_stops_the_source_whatever_else_is_said(status: int, code: int, words: str) -> None:
    assert isinstance(error_of(IndexerReply(status=status, code=code, words=words)), CredentialsRefused)


@given(status=STATUSES, code=st.sampled_from([429, 500, 501]), wait_s=st.floats(0, 1000))
def test_a_limit_keeps_its_wait(status: int, code: int, wait_s: float) -> None:
    error = error_of(IndexerReply(status=status, code=code, retry_after_s=wait_s))

    assert isinstance(error, SourceLimited)
    assert error.retry_after_s == wait_s


@given(STATUSES)
def test_a_status_alone_means_no_error_only_when_it_is_a_success(status: int) -> None:
    assert (error_of(IndexerReply(status=status)) is None) == (200 <= status <= 299)


@given(status=STATUSES, code=st.one_of(st.none(), st.integers(0, 1000)), words=WORDS)
def test_every_reply_means_one_thing(status: int, code: int | None, words: str) -> None:
    error = error_of(IndexerReply(status=status, code=code, words=words))

    assert error is None or type(error) in {CredentialsRefused, SourceLimited, SourceRefused, SourceUnavailable}
    assert error is None or str(status) in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, SourceUnavailable),
        (400, SourceRefused),
        (401, CredentialsRefused),
        (403, CredentialsRefused),
        (404, SourceRefused),
        (408, SourceUnavailable),
        (410, SourceRefused),
        (425, SourceUnavailable),
        (429, SourceLimited),
        (500, SourceUnavailable),
        (503, SourceUnavailable),
    ],
)
def test_what_a_status_means(status: int, kind: type[SourceError]) -> None:
    assert type(error_of(IndexerReply(status=status))) is kind


def test_an_error_knows_its_source_when_it_is_told() -> None:
    error = SourceUnavailable("away", source="prowlarr", retry_after_s=5)

    assert (error.source, error.retry_after_s, str(error)) == ("prowlarr", 5, "away")

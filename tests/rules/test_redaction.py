"""Links without their keys: no secret survives, in whatever spelling it stands."""

from __future__ import annotations

import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.secrets import Secret, redact_keys, redact_link, shortened, spellings

# Longer than three characters, and without the star that stands for what is hidden.
SECRETS = st.text(string.ascii_letters + string.digits + "+/=-_.~!$&%# 'äß", min_size=4, max_size=40).filter(
    lambda text: text == " ".join(text.split())
)
AROUND = st.text(max_size=30)
WAYS = st.sampled_from([str, quote, quote_plus, lambda text: quote(text, safe="")])


@given(secret=SECRETS, before=AROUND, after=AROUND, way=WAYS)
def test_a_secret_never_survives(secret: str, before: str, after: str, way: object) -> None:
    assert callable(way)
    spelt = way(secret)

    shown = shortened(f"{before}{spelt}{after}", spellings([Secret(secret)]), length_max=10_000)

    assert spelt not in shown
    assert secret not in shown


@given(
    secret=st.text(string.ascii_letters + string.digits, min_size=1),
    name=st.sampled_from(["apikey", "passkey", "r", "Token"]),
)
def test_a_link_shows_no_value_and_a_guid_no_key(secret: str, name: str) -> None:
    link = f"https://x.org/dl?id=17&{name}=@{secret}@"

    assert f"@{secret}@" not in redact_link(link)
    assert redact_keys(link) == f"https://x.org/dl?id=17&{name}=***"


@given(st.text(max_size=200))
def test_any_text_can_be_told_in_one_line(text: str) -> None:
    assert len(shortened(text).splitlines()) <= 1
    assert len(shortened(text)) <= 201


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("http://prowlarr:9696/1/download?apikey=a&link=b", "http://prowlarr:9696/1/download?apikey=***&link=***"),
        ("https://me:pass@x.org/a", "https://***@x.org/a"),
        (
            "https://x.org/download.php/123/0123456789abcdef01234567/a.torrent",
            "https://x.org/download.php/123/***/a.torrent",
        ),
        ("magnet:?xt=urn:btih:abc&tr=http://t.org/secret/announce", "magnet:…"),
        ("", ""),
    ],
)
def test_what_is_shown_of_a_link(link: str, shown: str) -> None:
    assert redact_link(link) == shown


@pytest.mark.parametrize("text", ["?r=", "://", "&apikey=x", "/" + "a1" * 40])
def test_a_long_text_takes_no_time(text: str) -> None:
    long = text * 5_000

    assert redact_keys(long)
    assert redact_link(long)

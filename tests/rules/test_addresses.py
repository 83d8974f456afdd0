"""Addresses of databases: read as SQLAlchemy reads them, shown without what must not be seen."""

from __future__ import annotations

import string
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import make_url

from cormorant.rules.addresses import (
    address_problem,
    passwords_in,
    read_address,
    shown_address,
    sqlite_address,
    sqlite_file,
)
from cormorant.rules.secrets import redact_secrets

ODD_ADDRESSES = {
    "a slash": "postgresql://me:hun/ter2@db:5432/birds",
    "an encoded slash": "postgresql://me:hun%2Fter2@db:5432/birds",
    "a space": "postgresql://me:hun ter2@db:5432/birds",
    "a question mark": "postgresql://me:hun?ter2@db:5432/birds",
    "a colon": "postgresql://me:hun:ter2@db:5432/birds",
    "a hash": "postgresql://me:hun#ter2@db:5432/birds",
    "a percent sign": "postgresql://me:hun%ter2@db:5432/birds",
    "an at sign": "postgresql://me:hun@ter2@db:5432/birds",
    "an at sign and a slash": "postgresql://me:hun@ter2/x@db:5432/birds",
    "a slash in the user": "postgresql://m/e:hunter2@db:5432/birds",
    "one slash too few": "postgresql:/me:hunter2@db:5432/birds",
    "no slashes": "postgresql:me:hunter2@db:5432/birds",
    "no host": "postgresql://me:hunter2/birds",
    "a number for a port": "postgresql://me:20261116/birds",
    "a password for a key": "postgresql://me@db/birds?sslpassword=hunter2",
    "a misspelt name": "postgresql://me@db/birds?pasword=hunter2",
    "a name alone": "postgresql://me@db/birds?hunter2",
    "nothing but the password": "hunter2",
}
PARTS_OF_PASSWORDS = ("hun", "ter2", "20261116")


@given(st.text(st.characters(exclude_categories=())).filter(lambda path: path not in {"", ":memory:"}))
def test_whatever_the_path_of_a_file_is_made_of_its_address_leads_there(path: str) -> None:
    address = sqlite_address(path)

    assert sqlite_file(address) == path
    assert make_url(address).database == path


@given(st.text(string.ascii_lowercase + "0123456789:/@?&=%[]+ #.", max_size=40))
@example("?@:")
@example("[0]0")
def test_an_address_is_read_as_sqlalchemy_reads_it_or_not_at_all(rest: str) -> None:
    text = f"postgresql://{rest}"
    mine, theirs = read_address(text), None
    if mine is not None:
        theirs = make_url(text)

    assert (
        mine is None
        or theirs is None
        or (
            unquote(mine.user),
            unquote(mine.password.reveal()),
            mine.host,
            int(mine.port or 0),
            unquote(mine.database),
        )
        == (theirs.username or "", theirs.password or "", theirs.host or "", theirs.port or 0, theirs.database or "")
    )


@pytest.mark.parametrize("address", ODD_ADDRESSES.values(), ids=ODD_ADDRESSES)
def test_nothing_of_an_odd_password_is_shown(address: str) -> None:
    shown = f"{shown_address(address)} {address_problem(address)}"

    assert not [part for part in PARTS_OF_PASSWORDS if part in shown]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:hun/ter2@db:5432/birds", "postgresql://me:***@db:5432/birds"),
        ("postgresql+psycopg://:hunter2@[::1]/birds", "postgresql+psycopg://:***@[::1]/birds"),
        ("postgresql:///birds?host=/run/pg&password=x", "postgresql:///birds?host=/run/pg&***"),
        ("postgresql://me@db", "postgresql://me@db"),
        ("sqlite:///nest@home.db", "sqlite:///nest@home.db"),
        ("sqlite://", "sqlite://"),
    ],
)
def test_all_that_is_no_secret_is_shown(address: str, shown: str) -> None:
    assert shown_address(address) == shown


@pytest.mark.parametrize(
    "address", ["hunter2", "postgresql:/me@db/x", "postgresql://me:hunter2/x", "postgresql://db:65536/x", "://x"]
)
def test_what_is_no_address_gets_the_forms_of_one(address: str) -> None:
    assert address_problem(address) == (
        "it is not the address of a database; write sqlite:///folder/file.db or postgresql://user@host/name"
    )


@pytest.mark.parametrize(
    "address", ["sqlite:///x.db", "sqlite://", "sqlite:////srv/a@b", "postgresql://db:65535/x", "mysql://me:a/b@db/x"]
)
def test_what_can_be_read_is_no_problem(address: str) -> None:
    assert address_problem(address) is None


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///:memory:", "sqlite://folder/x.db", "sqlite:///x.db?mode=ro", "postgresql:///x"]
)
def test_what_names_no_single_file_names_none(address: str) -> None:
    assert sqlite_file(address) is None


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://me:hun%2Fter2@db/x", "no entry for hun/ter2 nor for hun%2Fter2"),
        ("postgresql://me:hun/ter2@db/x", "no entry for hun/ter2 nor for hun%2Fter2"),
        ("postgresql://me:hun ter2@db/x", "no entry for hun ter2 nor for hun%20ter2"),
        ("postgresql://me@db/x?sslpassword=hun+ter2", "no entry for hun ter2 nor for hun+ter2"),
        ("postgresql://me:hun@ter2@db/x", 'cannot find the host "ter2@db", hun@ter2'),
        ("postgresql:/me:hunter2@db/x", "no entry for hunter2"),
    ],
)
def test_a_password_is_known_in_every_way_it_may_show_up_alone(address: str, said: str) -> None:
    redact = redact_secrets(said, passwords_in(address))

    assert "ter2" not in redact
    assert "***" in redact

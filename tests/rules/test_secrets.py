"""Secrets: they do not show, however they are printed."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest
from attrs import frozen

from cormorant.rules.secrets import Secret, redact_passwords, redact_secrets


@frozen
class Holder:
    """Something that is printed as a whole."""

    key: Secret


def test_a_secret_shows_only_when_it_is_asked_to() -> None:
    secret = Secret("hunter2")

    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>9}", "%s" % secret, str([secret]), str(Holder(secret))]  # noqa: UP031 - one of the ways

    assert not [text for text in shown if "hunter2" in text]
    assert all("***" in text for text in shown)
    assert secret.reveal() == "hunter2"


def test_an_empty_secret_is_false_and_shows_that_it_is_empty() -> None:
    assert not Secret("")
    assert (str(Secret("")), repr(Secret(""))) == ("", "''")


def test_secrets_are_equal_by_what_they_hold_and_survive_copies() -> None:
    secret = Secret("hunter2")

    assert secret == Secret("hunter2") == copy.deepcopy(secret) == pickle.loads(pickle.dumps(secret))  # noqa: S301 - our own bytes
    assert secret not in {Secret("other"), "hunter2"}
    assert len({secret, Secret("hunter2")}) == 1


def test_the_log_of_the_standard_library_does_not_show_it_either(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").error("key %s of %r", Secret("hunter2"), Holder(Secret("hunter2")))

    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("postgresql://me:hunter2@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql+psycopg://me:hun@ter2@db/x", "postgresql+psycopg://me:***@db/x"),
        ("redis://:hunter2@db", "redis://:***@db"),
        ("dsn user=me password=hunter2 host=db", "dsn user=me password=*** host=db"),
        ("https://x.org/api?t=search&apikey=hunter2&q=a", "https://x.org/api?t=search&apikey=***&q=a"),
        ("connect('PASSWORD=hunter2')", "connect('PASSWORD=***')"),
        ("nothing: to hide @ 10:30 here", "nothing: to hide @ 10:30 here"),
        ("http://host:8080/path@x", "http://host:8080/path@x"),
        ("cannot reach postgresql://me:hun/ter2@db/x now", "cannot reach postgresql://me:***@db/x now"),
        ("postgresql:/me:hunter2@db/x", "postgresql:/me:***@db/x"),
        ("postgresql://db/x?sslpassword=hunter2&sslmode=require", "postgresql://db/x?sslpassword=***&sslmode=require"),
        ("host=db password='hun ter\\'2' user=me", "host=db password=*** user=me"),
        ('passkey="hun ter2" access_token=hunter2', "passkey=*** access_token=***"),
        ("max_tokens=5", "max_tokens=5"),
    ],
)
def test_what_looks_like_a_password_is_hidden_and_the_rest_is_left(text: str, hidden: str) -> None:
    assert redact_passwords(text) == hidden


def test_a_secret_that_holds_another_is_hidden_whole() -> None:
    assert redact_secrets("key hunter22", [Secret("hunter2"), Secret("hunter22")]) == "key ***"


@pytest.mark.parametrize("text", ["://a:", "password", "token='", ":/"])
def test_a_long_text_takes_no_time(text: str) -> None:
    long = text * 20_000

    assert len(redact_passwords(long)) <= len(long)


def test_known_secrets_are_hidden_wherever_they_stand_but_not_single_letters() -> None:
    assert redact_secrets("a xhunter2y b", [Secret("hunter2"), Secret("a"), Secret("")]) == "a x***y b"

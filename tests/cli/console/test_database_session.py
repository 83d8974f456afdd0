"""How a command ends: one exit code and one line for each kind of error."""

from __future__ import annotations

import pytest

from cormorant.cli.console.command_line import CommandFailed, CommandInterrupted, UsageRefused
from cormorant.cli.console.database_session import refusals
from cormorant.rules.errors import CommitUnknown, NotFound
from cormorant.rules.search.requests import BadRequest
from cormorant.settings import Settings


@pytest.mark.parametrize(
    ("error", "refusal", "said"),
    [
        (NotFound("job", 7, "look"), CommandFailed, "there is no job 7; look"),
        (BadRequest("query", "it is empty"), UsageRefused, "query: it is empty"),
        (CommitUnknown(), CommandFailed, "; look at it"),
        (KeyboardInterrupt(), CommandInterrupted, "some may have been told"),
        (BaseExceptionGroup("of a nursery", [KeyboardInterrupt()]), CommandInterrupted, "some may have been told"),
    ],
    ids=["not found", "bad input", "in doubt", "interrupted", "interrupted in a nursery"],
)
def test_each_error_ends_a_command_with_its_exit_code(
    error: BaseException, refusal: type[UsageRefused], said: str
) -> None:
    with (
        pytest.raises(UsageRefused) as caught,
        refusals(Settings(), in_doubt="look at it", interrupted="some may have been told"),
    ):
        raise error

    assert type(caught.value) is refusal
    assert said in caught.value.message


def test_a_crash_beside_an_interrupt_is_not_hidden() -> None:
    both = BaseExceptionGroup("of a nursery", [KeyboardInterrupt(), ValueError("a mistake")])

    with pytest.raises(BaseExceptionGroup), refusals(Settings()):
        raise both


def test_an_error_without_a_name_is_a_crash() -> None:
    with pytest.raises(ValueError, match="a mistake"), refusals(Settings()):
        raise ValueError("a mistake")

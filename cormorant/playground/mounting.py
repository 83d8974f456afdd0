"""How does a stand-in that only answers get a place in the playground? Behind its name, as the sites have theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from attrs import frozen

from cormorant.playground.http import StandInRequest, StandInResponse

__all__ = ["MountedStandIn"]

ASKED_MAX: Final = 1_000
"""Requests that are remembered, the newest."""
_KIND: Final = "content-type"


class StandIn(Protocol):
    """Answers requests, and remembers what it was asked."""

    asked: list[Any]

    def handle(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body."""
        ...


@frozen
class MountedStandIn:
    """A stand-in under a name."""

    name: str
    stand_in: StandIn

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says. A stranger may send anything: what it cannot read is a bad request, and ends nothing else."""
        headers = {**asked.headers, "host": asked.base.partition("://")[2]}  # links of its own lead back here
        try:
            status, given, body = self.stand_in.handle(asked.method, asked.path, asked.params, headers, asked.body)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return StandInResponse(status=400, body=b"that makes no sense to a stand-in\n")
        finally:
            del self.stand_in.asked[:-ASKED_MAX]
        kinds = [value for name, value in given.items() if name.lower() == _KIND]
        rest = {name: value for name, value in given.items() if name.lower() != _KIND}
        return StandInResponse(
            status=status, kind=kinds[0] if kinds else "text/plain; charset=utf-8", body=body, headers=rest
        )

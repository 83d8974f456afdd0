"""The API keeps its own description: whatever is sent, every answer is one that the OpenAPI document names."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import hypothesis
import pytest
import schemathesis
import trio
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from cormorant.rules.events import WebConnectionCrashed, WebRequestCrashed
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.watch.feeds import FetchedFeed, Subscription
from cormorant.testing import ScriptedSource
from tests.bounds import WAIT_S
from tests.web.web_place import KEY, WebPlace, web_place

pytestmark = pytest.mark.slow("hundreds of requests over real sockets")

EXAMPLES = 100 if os.environ.get("SOAK") else 4
# Artists, profiles, targets, sources and candidates that are named must be there, which no schema can say: a 400 names the one that is not.
NAMES_WHAT_MUST_EXIST = {
    "POST /api/v1/watchlist",
    "DELETE /api/v1/watchlist/{watch}",
    "POST /api/v1/watchlist/{watch}/check",
    "POST /api/v1/watchlist/{watch}/pause",
    "POST /api/v1/watchlist/{watch}/resume",
    "POST /api/v1/saved-searches",
    "POST /api/v1/wants/{want_id}/hand-over",
    "POST /api/v1/prices",
    "POST /api/v1/subscriptions",
    "GET /api/v1/subscriptions/{watch}",
    "DELETE /api/v1/subscriptions/{watch}",
    "POST /api/v1/subscriptions/{watch}/check",
    "POST /api/v1/subscriptions/{watch}/pause",
    "POST /api/v1/subscriptions/{watch}/resume",
    "POST /api/v1/subscriptions/{watch}/reschedule",
}


async def _empty_feed(_subscription: Subscription) -> FetchedFeed:
    await trio.lowlevel.checkpoint()
    return FetchedFeed()


class Background:
    """A service in a thread of its own, for those who ask without trio."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._serve,), daemon=True)
        self.place: WebPlace
        self._token: trio.lowlevel.TrioToken
        self._end: trio.Event

    async def _serve(self) -> None:
        self._token, self._end = trio.lowlevel.current_trio_token(), trio.Event()
        web = WebSettings(
            listen="127.0.0.1:0", key=Secret(KEY), requests_per_second=100_000, wrong_keys_per_minute=100_000
        )
        with web_place(self._data, red=ScriptedSource(*[["a", "b"]] * 50)) as self.place:
            async with self.place.service(web=web, given={"feed": _empty_feed}) as service:
                await service.enqueue("sync", {"n": 1})
                await service.enqueue("sync", {"n": 2})
                self._is_up.set()
                await self._end.wait()

    def __enter__(self) -> WebPlace:
        self._thread.start()
        assert self._is_up.wait(WAIT_S)
        return self.place

    def __exit__(self, *exc_info: object) -> None:
        self._token.run_sync_soon(self._end.set)
        self._thread.join(WAIT_S)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebPlace]:
    with Background(tmp_path_factory.mktemp("web")) as place:
        yield place


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_one_that_the_document_names(place: WebPlace, mode: GenerationMode) -> None:
    answer = httpx2.get(f"{place.address}/api/v1/openapi.json", headers={"X-Api-Key": KEY}, timeout=WAIT_S)
    document = schemathesis.openapi.from_dict(answer.json(), config=SchemathesisConfig())
    found = [each.ok() for each in document.get_all_operations() if isinstance(each, Ok)]
    operations = [each for each in found if not each.path.endswith("/events")]  # that one never ends

    failed = [problem for operation in operations if (problem := _problem_of(operation, place, mode))]

    assert len(operations) >= 25
    assert not failed, "\n\n".join(failed)


def _problem_of(operation: Any, place: WebPlace, mode: GenerationMode) -> str | None:
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def check(case: Any) -> None:
        left_out = [positive_data_acceptance] if operation.label in NAMES_WHAT_MUST_EXIST else []
        case.call_and_validate(
            base_url=place.address, headers={"X-Api-Key": KEY}, timeout=WAIT_S, excluded_checks=left_out
        )

    try:
        check()
    except Unsatisfiable:  # nothing that could be wrong is in it
        return None
    except BaseExceptionGroup as group:
        return f"{operation.label}: {'; '.join(map(str, group.exceptions))}"
    return None


def test_nothing_crashed_meanwhile(place: WebPlace) -> None:
    assert place.events.of(WebRequestCrashed) == []
    assert place.events.of(WebConnectionCrashed) == []


WRONG = {
    "a field of another type": ("POST", "/searches", {"query": 5}, "query"),
    "a list of another type": ("POST", "/searches", {"categories": ["x"]}, "categories[0]"),
    "a field that there is not": ("POST", "/searches", {"words": "x"}, "words"),
    "a kind that there is not": ("POST", "/searches", {"kind": "game"}, "kind"),
    "a wait that is too long": ("POST", "/searches", {"wait_s": 1e9}, "wait_s"),
    "a page of nothing": ("GET", "/jobs?limit=0", None, "limit"),
    "a state that there is not": ("GET", "/jobs?state=lost", None, "state"),
    "a priority that there is not": ("GET", "/sources?priority=high", None, "priority"),
}


@pytest.mark.parametrize(("method", "path", "body", "field"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_field_is_answered_with_its_name(
    place: WebPlace, method: str, path: str, body: object, field: str
) -> None:
    answer = httpx2.request(
        method, f"{place.address}/api/v1{path}", json=body, headers={"X-Api-Key": KEY}, timeout=WAIT_S
    )

    problem = answer.json()
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert [told for told in [problem["detail"], *problem["errors"]] if told.startswith(f"{field}:")]


def test_a_body_that_is_no_json_is_told_so(place: WebPlace) -> None:
    answer = httpx2.post(
        f"{place.address}/api/v1/searches",
        content=b"{",
        headers={"X-Api-Key": KEY, "Content-Type": "application/json"},
        timeout=WAIT_S,
    )

    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")

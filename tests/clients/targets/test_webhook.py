"""Telling a webhook: once for each key, signed, and never shown."""

from __future__ import annotations

import base64
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cormorant.clients.targets.webhook import Webhook
from cormorant.playground.http import StandInRequest, StandInResponse, as_text
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    ParcelKind,
    ParcelState,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import START, SimulatedClock, in_line
from tests.clients.mounted import Mounted, mounted
from tests.clients.parcel_samples import HTML, MAGNET, TITLES, TORRENT, parcel
from tests.environments import environment_of
from tests.stand_ins.webhook import StrictWebhook

HOOK = "/hooks/hunter2hunter2"


@asynccontextmanager
async def playing(key: str = "", **habits: Any) -> AsyncIterator[tuple[Webhook, StrictWebhook]]:
    stand_in = StrictWebhook(**habits)
    async with mounted(stand_in.answer) as server:
        yield client_of(server, key), stand_in


def client_of(server: Mounted, key: str = "") -> Webhook:
    settings = TargetSettings(url=f"{server.url}{HOOK}", key=Secret(key))
    return Webhook(settings, server.transport, environment_of(offload=in_line, clock=SimulatedClock()))


async def test_a_parcel_is_told_with_all_that_is_in_it() -> None:
    async with playing() as (client, stand_in):
        torrent = await client.submit(parcel(folder_parts={"artist": "Björk"}))
        await client.submit(parcel(ParcelKind.MAGNET, key="other"))

    told = stand_in.taken["want-7-1"]
    assert torrent.standing is ParcelState.DONE
    assert base64.b64decode(told.pop("body_base64")) == TORRENT
    assert told == {
        "version": 1,
        "key": "want-7-1",
        "title": "A title",
        "kind": "torrent",
        "link": None,
        "infohash": None,
        "parts": {"artist": "Björk"},
    }
    assert stand_in.taken["other"]["link"] == MAGNET


@pytest.mark.parametrize("tells", [True, False])
async def test_repeated_it_has_the_same_key_and_counts_as_given(*, tells: bool) -> None:
    async with playing(tells_repetitions=tells) as (client, stand_in):
        receipts = [await client.submit(parcel()) for _ in range(2)]

    assert [receipt.standing for receipt in receipts] == [ParcelState.DONE] * 2
    assert [each.headers["idempotency-key"] for each in stand_in.asked] == ["want-7-1"] * 2
    assert len(stand_in.taken) == 1


async def test_it_is_signed_with_the_time_and_a_wrong_signature_is_refused() -> None:
    async with playing("hunter2", secret="hunter2") as (client, stand_in):  # noqa: S106 - of a stand-in
        await client.submit(parcel())
        stand_in.secret = "another"  # noqa: S105 - of a stand-in, again
        with pytest.raises(TargetMisconfigured, match="the signature is wrong"):
            await client.submit(parcel())

    signed_at_s = stand_in.asked[0].headers["x-cormorant-signature"].removeprefix("t=").partition(",")[0]
    assert int(signed_at_s) >= int(START.timestamp())


@pytest.mark.parametrize("cut", ["after", "before"])
async def test_a_lost_answer_leaves_doubt_that_no_look_can_end(cut: Any) -> None:
    stand_in = StrictWebhook()
    async with mounted(stand_in.answer) as server:
        server.cuts[HOOK] = cut
        client = client_of(server)
        with pytest.raises(TargetInDoubt):
            await client.submit(parcel())
        receipt = await client.status(parcel(), None)

    assert (client.can_be_asked, receipt.standing) == (False, ParcelState.UNKNOWN)
    assert len(stand_in.taken) == (cut == "after")


@pytest.mark.parametrize(
    ("status", "error", "wait_s"),
    [
        (400, TargetRefused, None),
        (404, TargetMisconfigured, None),
        (429, TargetUnavailable, 9.0),
        (503, TargetUnavailable, 9.0),
        (500, TargetInDoubt, 9.0),
    ],
)
async def test_its_status_says_what_follows(status: int, error: type[TargetError], wait_s: float | None) -> None:
    async with playing(status=status) as (client, _):
        with pytest.raises(error) as caught:
            await client.submit(parcel())

    assert (type(caught.value), caught.value.retry_after_s) == (error, wait_s)


@pytest.mark.parametrize("title", [*TITLES.values(), "half \ud800"], ids=[*TITLES, "surrogate"])
async def test_any_title_can_be_told(title: str) -> None:
    async with playing() as (client, stand_in):
        await client.submit(parcel(title=title))

    assert stand_in.taken["want-7-1"]["title"] == title.replace("\ud800", "?")


async def test_what_is_no_torrent_is_never_told() -> None:
    async with playing() as (client, stand_in):
        with pytest.raises(TargetRefused, match="should be a torrent is none"):
            await client.submit(parcel(body=HTML))

    assert stand_in.asked == []


async def test_neither_address_nor_secret_are_shown() -> None:
    async def parrot(asked: StandInRequest) -> StandInResponse:
        return as_text(f"{asked.path} signing-hunter2", status=400)

    async with mounted(parrot) as server:
        client = client_of(server, "signing-hunter2")
        with pytest.raises(TargetRefused) as refused:
            await client.submit(parcel())
        server.cuts[HOOK] = "before"
        with pytest.raises(TargetInDoubt) as lost:
            await client.submit(parcel())

    for error in (refused.value, lost.value):
        assert "hunter2" not in "".join(traceback.format_exception(error))

"""Handing files of a peer to slskd: with batches and without, in doubt, and nothing twice."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from cormorant.clients.http.transport import Transport
from cormorant.clients.slskd_replies import BUSY_S
from cormorant.clients.targets.slskd import SlskdTarget, batch_id_of
from cormorant.clients.targets.target import Target
from cormorant.playground.http import StandInRequest, StandInResponse, as_json
from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)
from cormorant.testing import SimulatedClock, in_line
from tests.bounds import WAIT_S
from tests.clients.mounted import Mounted, mounted
from tests.clients.raw_server import page, raw_server
from tests.environments import environment_of

KEY = "playground-key-of-slskd"
DOWNLOADS = "/api/v0/transfers/downloads"
BATCHES = f"{DOWNLOADS}/batches"
FILES = (("@@x\\Music\\01.flac", 100), ("@@x\\Music\\02.flac", 200))
PEER = "a peer/with 100% ünï"


def parcel(**fields: Any) -> Parcel:
    usual: dict[str, Any] = {
        "key": "want-7-1",
        "title": "Album",
        "kind": ParcelKind.FILES,
        "username": PEER,
        "files": FILES,
    }
    return Parcel(**usual | fields)


@asynccontextmanager
async def playing(**habits: Any) -> AsyncIterator[tuple[SlskdTarget, SlskdStandIn, Mounted]]:
    stand_in = SlskdStandIn(now_s=lambda: 0.0, **{"lag_s": 0.0, **habits})
    async with mounted(stand_in.answer) as server:
        yield target_at(server.url, server.transport), stand_in, server


def target_at(url: str, transport: Transport, key: str = KEY) -> SlskdTarget:
    settings = TargetSettings(url=url, key=Secret(key), timeout_s=WAIT_S)
    target = SlskdTarget(settings, transport, environment_of(offload=in_line, clock=SimulatedClock()))
    target.SETTLE_S = 0.0
    return target


@pytest.fixture(params=[True, False], ids=["batches", "no batches"])
def has_batches(request: pytest.FixtureRequest) -> Any:
    return request.param


def at(slskd: SlskdStandIn, seconds: float) -> None:
    slskd.now_s = lambda: seconds


async def test_files_show_up_late_and_are_followed_to_their_end(has_batches: Any) -> None:
    async with playing(has_batches=has_batches, lag_s=5.0, transfer_takes_s=20.0) as (target, slskd, _):
        receipts = [await target.submit(parcel())]
        for seconds in (1, 6, 16, 26):
            at(slskd, seconds)
            receipts.append(await target.status(parcel(), receipts[0]))

    assert [receipt.standing for receipt in receipts] == [
        ParcelState.PRESENT,
        ParcelState.ABSENT,
        ParcelState.PRESENT,
        ParcelState.RUNNING,
        ParcelState.DONE,
    ]
    assert {receipt.target_id for receipt in receipts} == {batch_id_of("want-7-1")}
    assert receipts[2].reason == "0 of 2 files are done, place 3 in the queue of the peer"
    assert [(one.username, one.filename, one.size) for one in slskd.transfers] == [(PEER, *file) for file in FILES]


async def test_given_twice_it_is_fetched_once(has_batches: Any) -> None:
    async with playing(has_batches=has_batches) as (target, slskd, _):
        await target.submit(parcel())
        again = await target.submit(parcel())
        at(slskd, 100)
        done = await target.submit(parcel())

    assert len(slskd.transfers) == 2
    assert (again.standing, done.standing) == (ParcelState.PRESENT, ParcelState.DONE)
    assert done.reason == "it was already there"


async def test_a_lost_answer_leaves_a_doubt_that_a_look_settles(has_batches: Any) -> None:
    async with playing(has_batches=has_batches) as (target, slskd, server):
        await target.submit(parcel(key="another", username="else"))
        path = BATCHES if has_batches else f"{DOWNLOADS}/{PEER}"

        async def cut_the_next(asked: StandInRequest) -> StandInResponse:
            # The older call looks before it gives: only its second request is cut.
            server.cuts[f"{DOWNLOADS}/{PEER}"] = "after"
            return await slskd.answer(asked)

        server.answer = cut_the_next
        server.cuts |= {path: "after"} if has_batches else {}
        with pytest.raises(TargetInDoubt, match="may have arrived"):
            await target.submit(parcel())
        server.answer = slskd.answer
        server.cuts.clear()
        seen = await target.status(parcel(), None)
        again = await target.submit(parcel())

    assert (seen.standing, again.standing) == (ParcelState.PRESENT, ParcelState.PRESENT)
    assert len(slskd.transfers) == 4


async def test_files_that_are_already_fetched_by_another_batch_are_no_error() -> None:
    async with playing() as (target, slskd, _):
        await target.submit(parcel())
        other = await target.submit(parcel(key="want-7-2"))

    assert (other.standing, other.reason) == (ParcelState.PRESENT, "it was already there")
    assert len(slskd.transfers) == 2


async def test_some_files_that_are_not_taken_are_told() -> None:
    async with playing(refused={FILES[0][0]: "Bad file"}) as (target, _, _):
        receipt = await target.submit(parcel())

    assert receipt.standing is ParcelState.PRESENT
    assert receipt.reason == "1 of 2 files were not taken: Bad file"


async def test_a_file_that_is_named_twice_is_sent_once(has_batches: Any) -> None:
    async with playing(has_batches=has_batches) as (target, slskd, _):
        await target.submit(parcel(files=(*FILES, FILES[0])))

    assert [one.filename for one in slskd.transfers] == [name for name, _ in FILES]


async def test_if_no_file_is_taken_it_is_refused(has_batches: Any) -> None:
    refused = {name: "Bad file" for name, _ in FILES}
    async with playing(has_batches=has_batches, refused=refused) as (target, slskd, _):
        with pytest.raises(TargetRefused, match="took none of the files"):
            await target.submit(parcel())

    assert slskd.transfers == []


async def test_a_peer_who_is_offline_is_named(has_batches: Any) -> None:
    async with playing(has_batches=has_batches, offline={PEER}) as (target, _, _):
        with pytest.raises(TargetRefused, match="is offline .*take another candidate"):
            await target.submit(parcel())


async def test_a_batch_is_found_again_when_its_peer_has_left() -> None:
    async with playing() as (target, slskd, _):
        given = await target.submit(parcel())
        slskd.offline.add(PEER)
        seen = await target.status(parcel(), given)

    assert seen.standing is ParcelState.PRESENT


async def test_a_known_batch_without_files_is_not_given_again() -> None:
    async with playing() as (target, slskd, _):
        slskd.batches.add(batch_id_of("want-7-1"))
        receipt = await target.submit(parcel())

    assert receipt.standing is ParcelState.PRESENT
    assert "lists none of its files" in (receipt.reason or "")
    assert slskd.transfers == []


@pytest.mark.parametrize("status", [400, 404, 405, 500])
async def test_a_slskd_without_batches_is_found_out_once(status: int) -> None:
    async with playing(has_batches=False, says_without_batches=status) as (target, slskd, _):
        await target.submit(parcel())
        await target.submit(parcel(key="want-8-1", username="second"))

    assert len(slskd.transfers) == 4
    assert [each.line for each in slskd.asked].count(f"POST {BATCHES}") == 1


async def test_an_error_of_a_slskd_with_batches_is_not_taken_for_an_old_one() -> None:
    async with playing() as (target, slskd, server):

        async def broken(asked: StandInRequest) -> StandInResponse:
            answer = await slskd.answer(asked)
            return as_json("database is locked", status=500) if asked.method == "POST" else answer

        server.answer = broken
        with pytest.raises(TargetInDoubt, match="database is locked"):
            await target.submit(parcel())

    assert len(slskd.transfers) == 2


@pytest.mark.parametrize("fate", ["Rejected", "TimedOut", "Errored", "Cancelled", "Aborted"])
async def test_completed_is_no_success(fate: str) -> None:
    async with playing(fates={PEER: fate}) as (target, slskd, _):
        given = await target.submit(parcel())
        at(slskd, 100)
        seen = await target.status(parcel(), given)

    assert seen.standing is ParcelState.FAILED
    assert (seen.reason or "").startswith("0 of 2 files are done, 2 failed: ")
    assert ("File not shared" if fate == "Rejected" else fate) in (seen.reason or "")


async def test_a_moment_is_asked_for_when_it_takes_other_files() -> None:
    async with raw_server({"*": page('"Only one"', status="429 Too Many")}) as server:
        transport = Transport(written=[server.url])
        with pytest.raises(TargetUnavailable) as caught:
            await target_at(server.url, transport).submit(parcel())

    assert caught.value.retry_after_s == BUSY_S


async def test_the_name_of_a_peer_stays_one_part_of_the_path() -> None:
    async with raw_server({"*": page(status="404 Not Found")}) as server:
        transport = Transport(written=[server.url])
        await target_at(f"{server.url}/base", transport).status(parcel(), None)
        await target_at(server.url, transport).status(parcel(username=".."), None)

    assert server.asked[0].target == ("/base/api/v0/transfers/downloads/a%20peer%2Fwith%20100%25%20%C3%BCn%C3%AF")
    assert server.asked[2].target == "/api/v0/transfers/downloads/%2E%2E"
    assert {asked.headers["content-type"] for asked in server.asked} == {"application/json"}


async def test_a_wrong_key_asks_for_a_person_and_is_not_shown() -> None:
    async with playing() as (_, slskd, server):
        target = target_at(server.url, server.transport, key="wrong-key-of-mine")
        with pytest.raises(TargetMisconfigured) as caught:
            await target.submit(parcel())

    assert "wrong-key-of-mine" not in "".join(traceback.format_exception(caught.value))
    assert slskd.transfers == []


@pytest.mark.parametrize(
    "wrong",
    [{"username": ""}, {"files": ()}, {"kind": ParcelKind.MAGNET, "link": "magnet:?xt=urn:btih:x"}],
    ids=["nobody", "nothing", "a magnet"],
)
async def test_what_is_no_parcel_of_files_is_not_sent(wrong: dict[str, Any]) -> None:
    async with playing() as (target, slskd, _):
        with pytest.raises(TargetRefused):
            await target.submit(parcel(**wrong))

    assert slskd.asked == []


async def test_it_is_a_target_and_says_which_version_answers() -> None:
    async with playing() as (target, slskd, _):
        as_target: Target = target
        assert await as_target.test() == "slskd 0.24.1, connected to Soulseek"
        slskd.is_connected = False
        assert "not connected" in await as_target.test()


async def test_a_peer_that_is_cancelled_while_given_is_asked_about_later() -> None:
    async with playing() as (target, slskd, server):
        server.cuts[BATCHES] = "silent"
        with trio.CancelScope() as scope:
            server.on_silence = scope.cancel
            await target.submit(parcel())
        server.cuts.clear()
        again = await target.submit(parcel())

    assert scope.cancelled_caught
    assert again.standing is ParcelState.PRESENT
    assert len(slskd.transfers) == 2

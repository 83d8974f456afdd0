"""Handing over to SABnzbd: failures that answer 200, names that must be recognised, in doubt."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from cormorant.clients.targets.sabnzbd import Sabnzbd
from cormorant.playground.http import StandInRequest, StandInResponse
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import (
    ParcelKind,
    ParcelState,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
)
from cormorant.testing import SimulatedClock, in_line
from tests.clients.mounted import Mounted, mounted
from tests.clients.parcel_samples import HTML, TITLES
from tests.clients.parcel_samples import parcel as any_parcel
from tests.environments import environment_of
from tests.stand_ins.sabnzbd import OddSabnzbd

KEY = "hunter2hunter2hunter2"
LINK = "https://indexer.example/get?id=1&apikey=theirs"


def parcel(**fields: Any) -> Any:
    return any_parcel(ParcelKind.NZB, **fields)


@asynccontextmanager
async def playing(
    key: str = KEY, timeout_s: float = 30.0, **habits: Any
) -> AsyncIterator[tuple[Sabnzbd, OddSabnzbd, Mounted]]:
    stand_in = OddSabnzbd(key=KEY, **habits)
    async with mounted(stand_in.answer) as server:
        yield client_of(server, key, category="music", timeout_s=timeout_s), stand_in, server


def client_of(server: Mounted, key: str = KEY, **options: Any) -> Sabnzbd:
    settings = TargetSettings(url=server.url, key=Secret(key), **options)
    return Sabnzbd(settings, server.transport, environment_of(offload=in_line, clock=SimulatedClock()))


async def test_what_is_given_is_followed_from_the_queue_to_the_history() -> None:
    async with playing() as (client, stand_in, _):
        given = await client.submit(parcel())
        [job] = stand_in.jobs
        seen = []
        for status, is_done in [("Queued", False), ("Downloading", False), ("Extracting", True), ("Completed", True)]:
            job.status, job.is_in_history = status, is_done
            seen.append((await client.status(parcel(), given)).standing.value)

    assert (given.target_id, given.standing) == (job.nzo_id, ParcelState.PRESENT)
    assert seen == ["present", "running", "running", "done"]
    assert job.fields["cat"] == "music"


async def test_a_link_is_fetched_by_sabnzbd_and_may_fail_later() -> None:
    async with playing() as (client, stand_in, _):
        given = await client.submit(parcel(body=None, link=LINK))
        [job] = stand_in.jobs
        grabbing = await client.status(parcel(), given)
        job.status, job.is_in_history, job.fail_message = "Failed", True, "URL Fetching failed; " + KEY
        failed = await client.status(parcel(), given)

    assert job.fields["name"] == LINK
    assert (grabbing.standing, failed.standing) == (ParcelState.RUNNING, ParcelState.FAILED)
    assert failed.reason == "URL Fetching failed; ***"


@pytest.mark.parametrize("habits", [{"replaces_spaces": True}, {"can_search": False}], ids=str)
async def test_a_job_is_recognised_by_our_key_whatever_else_is_there(habits: Any) -> None:
    async with playing(**habits) as (client, stand_in, _):
        for key in ("want-7-11", "want-7-1", "want-7"):
            await client.submit(parcel(key=key))
        receipt = await client.status(parcel(key="want-7-1"), None)

    assert receipt.target_id == stand_in.jobs[1].nzo_id


async def test_a_job_is_found_in_the_archive_and_under_another_name() -> None:
    async with playing() as (client, stand_in, _):
        given = await client.submit(parcel())
        [job] = stand_in.jobs
        job.name, job.status, job.is_in_history, job.is_archived = "renamed", "Completed", True, True

        assert (await client.status(parcel(), given)).standing is ParcelState.DONE
        assert (await client.status(parcel(), None)).standing is ParcelState.ABSENT


@pytest.mark.parametrize("title", [*TITLES.values(), "a {{secret}} /x password=y"], ids=[*TITLES, "passwords"])
async def test_any_title_gives_a_name_with_our_key(title: str) -> None:
    async with playing() as (client, stand_in, _):
        await client.submit(parcel(title=title))
        [job] = stand_in.jobs

        assert job.name.endswith(" (want-7-1)")
        assert len(job.name.encode()) <= 240
        assert not set(job.name) & set("/\\{}=")


async def test_a_rejected_nzb_is_refused_although_it_answers_200() -> None:
    async with playing(refuses=True) as (client, _, _):
        with pytest.raises(TargetRefused, match="has had this NZB before, or cannot read it"):
            await client.submit(parcel())


async def test_a_duplicate_that_is_ours_counts_as_given() -> None:
    async with playing() as (client, stand_in, _):
        await client.submit(parcel())
        stand_in.refuses = True
        again = await client.submit(parcel())

    assert (again.standing, again.reason, len(stand_in.jobs)) == (ParcelState.PRESENT, "it was already there", 1)


@pytest.mark.parametrize(
    ("error", "kind"),
    [("expects one parameter", TargetRefused), ("API Key Incorrect", TargetMisconfigured)],
)
async def test_a_stated_error_with_http_200_is_one(error: str, kind: type[TargetError]) -> None:
    async with playing(error=error) as (client, _, _):
        with pytest.raises(TargetRefused, match=error) as caught:
            await client.submit(parcel())

    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("key", "habits", "remedy"),
    [
        ("wrong", {}, "check the key"),
        ("wrong", {"says_why": False}, "without a word"),
        ("", {}, "set its API key"),
        (KEY, {"knows_host": False}, "host_whitelist"),
    ],
)
async def test_a_403_tells_what_to_do(key: str, habits: Any, remedy: str) -> None:
    async with playing(key, **habits) as (client, _, _):
        with pytest.raises(TargetMisconfigured, match=remedy):
            await client.test()
        with pytest.raises(TargetMisconfigured, match=remedy):
            await client.submit(parcel())


async def test_the_test_tells_the_version() -> None:
    async with playing() as (client, _, _):
        assert await client.test() == "SABnzbd 4.3.3"


@pytest.mark.parametrize(
    ("cut", "standing"),
    [("after", ParcelState.PRESENT), ("silent", ParcelState.PRESENT), ("before", ParcelState.ABSENT)],
)
async def test_in_doubt_the_look_tells_whether_it_arrived(
    mock_clock: MockClock, cut: Any, standing: ParcelState
) -> None:
    async with playing(timeout_s=10) as (client, _, server):
        server.cuts["/api"] = cut
        server.on_silence = partial(mock_clock.jump, 10)
        with pytest.raises(TargetInDoubt):
            await client.submit(parcel())
        server.cuts.clear()

        assert (await client.status(parcel(), None)).standing is standing


async def test_a_job_that_shows_up_late_is_absent_until_then() -> None:
    time_s = 0.0
    async with playing(lag_s=5.0, now_s=lambda: time_s) as (client, _, _):
        given = await client.submit(parcel())
        early = await client.status(parcel(), given)
        time_s = 5.0
        late = await client.status(parcel(), given)

    assert (early.standing, late.standing) == (ParcelState.ABSENT, ParcelState.PRESENT)


async def test_what_is_no_nzb_is_never_given() -> None:
    async with playing() as (client, stand_in, _):
        for body in (HTML, b"", b"<nzb/>", b'<!DOCTYPE x [<!ENTITY a "b">]><nzb>&a;</nzb>'):
            with pytest.raises(TargetRefused, match="should be a nzb is none"):
                await client.submit(parcel(body=body))

    assert stand_in.asked == []


async def test_the_key_is_never_shown_and_stands_in_no_address() -> None:
    addresses: list[str] = []

    async def parrot(asked: StandInRequest) -> StandInResponse:
        addresses.append(asked.line)
        return StandInResponse(status=400, body=asked.body)

    async with mounted(parrot) as server:
        client = client_of(server)
        for call in (client.submit(parcel()), client.status(parcel(), None)):
            with pytest.raises(TargetRefused) as caught:
                await call
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))

    assert len(addresses) == 2
    assert "hunter2" not in str(addresses)

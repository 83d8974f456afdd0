"""Settings change while things are on their way: nothing is sent that nobody wants sent, and nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import ParcelState, TargetError, TargetInDoubt, TargetUnavailable
from cormorant.scripted import ScriptedTarget
from supervisors import Service
from tests.conformance.watchlist.test_decisions import SWEPT_S, Silent, lose_jobs, the_want, with_release
from tests.conformance.watchlist.watching import WatchPlace, watch, watch_place

AWAY = TargetUnavailable("it is away", retry_after_s=30.0)
DOUBT = TargetInDoubt("the connection broke")
pytestmark = pytest.mark.slow("many minutes of whole services")


async def two_hours_later(place: WatchPlace) -> None:
    """In the first one it is noticed that nobody asks a target, after the second it counts as gone."""
    for _ in range(2):
        place.clock.jump(3_600.0)
        await trio.sleep(400)


async def give_in_vain(place: WatchPlace, **settings: Any) -> None:
    """In live mode something is given to a target, without success."""
    with_release(place, "A1 - New")
    async with place.service(**settings) as service:
        await watch(service, "a1")
        await trio.sleep(65)


async def told(service: Service) -> tuple[str, str]:
    want = await the_want(service)
    return want.state.value, want.reason


@pytest.mark.parametrize("trouble", [AWAY, DOUBT])
async def test_what_is_still_to_be_sent_is_only_shown_after_a_change_to_observe_mode_and_goes_by_hand(
    clock: MockClock, trouble: TargetError
) -> None:
    with watch_place("qbittorrent") as place:
        target = place.targets["qbittorrent"]
        target.script = [trouble]
        await give_in_vain(place)

        async with place.service(mode="observe") as service:
            await trio.sleep(SWEPT_S)

            assert len(target.given) == 1
            assert await told(service) == ("chosen", "observe mode: would be handed to qbittorrent")
            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("failed", "observe mode: it was not sent again")
            target.script = [AWAY]
            await service.wants.hand_over((await the_want(service)).id)
            await trio.sleep(200)
            assert len(target.given) == 3
            assert len(target.has) == 1
            assert (await the_want(service)).state.value == "done"


async def test_what_may_have_arrived_at_a_target_that_cannot_be_asked_is_held_after_a_change_to_observe_mode(
    clock: MockClock,
) -> None:
    with watch_place() as place:
        hook = place.targets["hook"] = ScriptedTarget(can_be_asked=False, after=[DOUBT])
        said = {"hook": TargetSettings(kind="webhook", url="http://target.test", in_doubt="resend")}
        await give_in_vain(place, targets=said)

        async with place.service(mode="observe", targets=said) as service:
            await trio.sleep(SWEPT_S)

            assert len(hook.given) == 1
            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("held", "observe mode: it is not sent again")
            await service.wants.settle(download.id, has_arrived=False)
            await trio.sleep(5)
            assert len(hook.given) == 2


async def test_what_may_be_at_a_target_that_cannot_say_is_held_after_a_change_to_observe_mode(clock: MockClock) -> None:
    with watch_place() as place:
        silent = place.targets["qbittorrent"] = Silent(after=[DOUBT])
        said = {"qbittorrent": TargetSettings(url="http://target.test", in_doubt="resend")}
        await give_in_vain(place, targets=said)

        async with place.service(mode="observe", targets=said) as service:
            await trio.sleep(100)

            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("held", "observe mode: it is not sent again")
            assert len(silent.given) == 1


async def test_a_find_whose_job_is_lost_is_not_handed_over_in_observe_mode(clock: MockClock) -> None:
    with watch_place("qbittorrent") as place:
        with_release(place, "A1 - New")
        async with place.service() as service:
            await service.jobs.pause_kind("handover")
            await watch(service, "a1")
            await trio.sleep(65)
            await lose_jobs(service, place)
            await service.jobs.resume_kind("handover")

        async with place.service(mode="observe") as service:
            await trio.sleep(SWEPT_S)

            assert place.targets["qbittorrent"].given == []
            assert await told(service) == ("chosen", "observe mode: would be handed to qbittorrent")


@pytest.mark.parametrize(("trouble", "state"), [(None, "handed over"), (DOUBT, "in doubt")])
async def test_what_a_target_may_have_that_is_no_longer_configured_is_given_up_and_can_be_had_elsewhere(
    clock: MockClock, trouble: TargetError | None, state: str
) -> None:
    with watch_place("old") as place:
        old = place.targets["old"]
        old.standing, old.shows_after_s = ParcelState.PRESENT, 100_000.0 if trouble else 0.0
        old.script = [trouble] if trouble else []
        await give_in_vain(place)
        place.targets = {"new": ScriptedTarget()}

        async with place.service() as service:
            await trio.sleep(600)
            assert (await the_want(service)).state.value == state  # another process may know it
            await two_hours_later(place)

            want = await the_want(service)
            assert want.state.value == "gave up"
            assert want.reason == (
                "target old is no longer configured, and whether it has it is not known; write [targets.old] again, "
                f"or look there and hand it to another: cormorant wants retry {want.id}"
            )
            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("failed", "target old is no longer configured")
            await service.wants.retry(want.id)
            await trio.sleep(10)
            assert (await the_want(service)).targets == ("new",)
            assert len(place.targets["new"].given) == 1


async def test_what_waited_for_a_target_that_is_no_longer_configured_goes_to_the_next_one(clock: MockClock) -> None:
    with watch_place("old", "new") as place:
        place.targets["old"].script = [AWAY] * 1_000
        await give_in_vain(place)
        del place.targets["old"]

        async with place.service() as service:
            await two_hours_later(place)

            assert len(place.targets["new"].given) == 1
            assert (await the_want(service)).state.value == "done"


async def test_what_waited_for_the_only_target_says_that_it_is_no_longer_configured(clock: MockClock) -> None:
    with watch_place("old") as place:
        place.targets["old"].script = [AWAY] * 1_000
        await give_in_vain(place)
        place.targets = {"new": ScriptedTarget()}

        async with place.service() as service:
            await two_hours_later(place)
            want = await the_want(service)
            assert want.state.value == "chosen"
            assert want.reason == (
                "fits; target old is no longer configured: write [targets.old] again, or let another have it: "
                f"cormorant wants hand-over {want.id}"
            )
            await service.wants.hand_over(want.id)
            await trio.sleep(10)

            assert len(place.targets["new"].given) == 1


async def test_a_target_that_comes_back_in_time_is_gone_on_with(clock: MockClock) -> None:
    with watch_place("old") as place:
        old = place.targets["old"]
        old.script = [AWAY]
        await give_in_vain(place)
        place.targets = {}
        async with place.service():
            await trio.sleep(1_000)
        place.targets = {"old": old}

        async with place.service() as service:
            await trio.sleep(700)

            assert (await the_want(service)).state.value == "done"
        assert len(old.given) == 2


@pytest.mark.parametrize("trouble", [None, DOUBT, AWAY])
async def test_a_target_that_is_missed_after_hours_in_which_nothing_ran_has_its_hour_too(
    clock: MockClock, trouble: TargetError | None
) -> None:
    with watch_place("old") as place:
        old = place.targets["old"]
        old.standing, old.script = ParcelState.PRESENT, [trouble] if trouble else []
        await give_in_vain(place)
        async with place.service() as service:
            before = await the_want(service)
        place.targets = {}
        place.clock.jump(8 * 3_600.0)
        async with place.service() as service:
            await trio.sleep(700)

            assert await the_want(service) == before
            [download] = await service.wants.downloads()
            assert download.reason == "target old is no longer configured"
        place.targets = {"old": old}
        async with place.service() as service:
            await trio.sleep(700)

            [download] = await service.wants.downloads()
            assert (download.state.value, download.reason) == ("handed over", "present")

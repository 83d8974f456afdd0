"""The town of the playground leads what artists release to where it is wanted, over real sockets."""

from __future__ import annotations

import random
import socket

import pytest
import trio

from cormorant.cli.playing import Playing
from cormorant.playground.town import with_playground
from cormorant.rules.playground_settings import PlaygroundSettings
from cormorant.rules.wants import Want, WantState
from cormorant.rules.watch_events import SavedSearchChecked, WantChanged
from cormorant.testing import Recorder, in_line, memory_gateway, settings
from supervisors import Service, open_service

WAIT_S = 40.0


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


async def done(service: Service, count: int) -> list[Want]:
    while len(found := await service.watches.wants(state=WantState.DONE)) < count:
        await trio.sleep(0.1)
    return found


@pytest.mark.slow("a want takes its time: searches, a grab, a download")
def test_what_is_released_is_found_on_both_kinds_of_source_and_arrives() -> None:
    recorder = Recorder()
    chosen = with_playground(settings(playground=PlaygroundSettings(enabled=True, listen=free_address())))

    async def until_done() -> dict[int, tuple[set[str], str]]:
        with memory_gateway() as gateway, trio.fail_after(WAIT_S):
            service = open_service(
                chosen, chance=random.Random(1), offload=in_line, gateway=gateway, listeners=[recorder]
            )
            told = trio.Event()
            async with Playing(service) as playing, service, trio.open_nursery() as nursery:
                nursery.start_soon(playing.serve_until, told)
                found = await done(service, 3)
                views = [await service.watches.want(each.id) for each in found]
                told.set()
            return {
                view.want.id: ({each.source for each in view.candidates}, view.handovers[0].target) for view in views
            }

    ended = trio.run(until_done)

    assert sorted(ended.values(), key=lambda each: each[1]) == [
        ({"attic", "slskd"}, "qbittorrent"),
        ({"barn"}, "sabnzbd"),
        ({"slskd"}, "slskd"),
    ]
    reasons = [event.reason for event in recorder.of(WantChanged) if event.state == "chosen"]
    assert any(reason.startswith("3 of 5 fit, first ") and "for 24.?bit" in reason for reason in reasons)
    assert recorder.of(SavedSearchChecked)[0].wanted == 1

"""A killed `cormorant run` loses no schedule: the real program, killed in the middle of a check and started again."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.program import Program
from tests.cli.source_place import SourcePlace
from tests.waiting import wait_until

pytestmark = pytest.mark.slow("starts the program twice, which loads everything")

SETTINGS = """
[feeds.written]
url = "{written}"
every = "2h"

[subscriptions]
domain_request_delay = "0s"

[jobs]
sweep = "1h"
"""


def listed(place: SourcePlace) -> dict[str, Any]:
    return {
        each["name"]: each for each in json.loads(place.run("subscriptions", "list", "--json").out)["subscriptions"]
    }


def test_after_a_kill_every_feed_has_its_time_and_only_what_is_due_or_asked_for_is_checked(
    each_place: SourcePlace,
) -> None:
    place, feeds = each_place, each_place.indexer
    (place.folder / "config.toml").write_text(SETTINGS.format(written=feeds.url("written")))
    feeds.slow_s["slow"] = 1000.0
    for name, when in (("cron", ("--cron", "0 9 * * MON", "--zone", "Europe/Berlin")), ("later", ("--every", "6h"))):
        assert place.run("subscriptions", "add", name, feeds.url(name), *when).code == 0
    with Program("-m", "cormorant", "run", cwd=place.folder, CORMORANT_STORAGE__URL=place.url) as program:
        for _ in range(3):
            program.line_with("event=subscription.checked")
        before = listed(place)
        assert place.run("subscriptions", "add", "slow", feeds.url("slow")).code == 0
        wait_until(lambda: feeds.times_asked("slow") == 1)
        program.send(signal.SIGKILL)
        program.end()
    held = listed(place)["slow"]
    # Only on SQLite a process knows at once that another is dead.
    again = ["slow"] if place.url.startswith("sqlite") else []

    with Program("-m", "cormorant", "run", cwd=place.folder, CORMORANT_STORAGE__URL=place.url) as program:
        program.line_with(" ready in ")
        wait_until(lambda: feeds.times_asked("slow") == 1 + len(again))
        after = listed(place)
        assert place.run("subscriptions", "check", "later").code == 0
        program.line_with("event=subscription.checked subscription=later")
        program.send(signal.SIGTERM)
        assert program.end().code == 0

    assert {name: after[name]["next_check_at"] for name in before} == {
        name: each["next_check_at"] for name, each in before.items()
    }
    assert (after["slow"]["next_check_at"], after["slow"]["last_checked_at"]) == (held["next_check_at"], None)
    assert sorted(name for name, _ in feeds.asked) == ["cron", "later", "later", "slow", *again, "written"]

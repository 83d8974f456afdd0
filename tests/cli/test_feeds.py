"""`cormorant subscriptions` and `cormorant schedule` on a real database."""

from __future__ import annotations

import json
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection

from cormorant.cli import feeds
from cormorant.services.watch.views import SubscriptionShownOut, subscription_out
from storage.jobs import workers
from tests.cli.source_place import Indexer, SourcePlace
from tests.watch_kinds import new_feed

pytestmark = pytest.mark.slow("opens databases")

KEY = "hunter2hunter2"
URL = f"https://x.test/rss?passkey={KEY}"
SETTINGS = """
[targets.box]
kind = "blackhole"
folder = "box"

[feeds.written]
url = "https://x.test/written"
"""


@pytest.fixture
def place(tmp_path: Path) -> SourcePlace:
    (tmp_path / "config.toml").write_text(SETTINGS)
    return SourcePlace(tmp_path, f"sqlite:///{tmp_path}/feeds.db", Indexer(0))


def test_a_feed_is_added_listed_shown_paused_checked_and_removed_without_its_key(place: SourcePlace) -> None:
    added = place.run("subscriptions", "add", "music", URL, "--every", "1h", "--accept", "flac", "--hand-to", "box")
    again = place.run("subscriptions", "add", "music", URL)
    listed = place.run("subscriptions", "list")
    shown = place.run("subscriptions", "show", "music", "--json")
    alone = place.run("subscriptions", "check", "1")
    paused = place.run("subscriptions", "pause", "music")
    refused = place.run("subscriptions", "check", "music")
    resumed = place.run("subscriptions", "resume", "music")
    place.write(_a_service_runs)
    served = place.run("subscriptions", "check", "music", "--json")
    removed = place.run("subscriptions", "remove", "music")
    gone = place.run("subscriptions", "show", "music")

    assert added.out.startswith("music is checked every 1h; what is there at the first check is left out\n")
    assert "no service runs on this database: it is checked when one is started" in added.out
    assert (again.code, "there is a subscription 'music' already; choose another name" in again.err) == (1, True)
    assert re.search(
        r"^ *1  music +every 1h +now +https://x\.test/rss\?passkey=\*\*\* +not checked yet$", listed.out, re.MULTILINE
    )
    said = json.loads(shown.out)
    assert (said["subscription"]["accept"], said["subscription"]["hand_to"], said["checks"]) == (["flac"], ["box"], [])
    assert (alone.code, "no service runs" in alone.out) == (0, True)
    assert (paused.code, refused.code, "music is paused; resume it" in refused.err, resumed.code) == (0, 1, True, 0)
    assert json.loads(served.out) == {"subscription": "music", "due": True, "service_runs": True}
    assert (removed.out, gone.code) == ("music is removed; what was found stays\n", 1)
    assert not [each for each in (added, again, listed, shown, alone, refused) if KEY in each.out + each.err]


def _a_service_runs(connection: Connection) -> None:
    workers.register(connection, "w", kinds=[], version="1", now=datetime.now(UTC))


WRONG: list[tuple[list[str], str]] = [
    (["c", URL, "--every", "5s"], "'--every': 5s is out of range; allowed: 1m to 365d"),
    (["c", URL, "--cron", "0 9 * *"], "cron: '0 9 * *' has not five fields"),
    (["c", URL, "--cron", "0 25 * * *"], "cron: '0 25 * * *' cannot be kept: Bad hour; write it like 0 */6 * * *"),
    (["c", URL, "--cron", "0 9 * * *", "--zone", "Mars/Base"], "zone: 'Mars/Base' is no time zone"),
    (["c", URL, "--zone", "Europe/Berlin"], "zone: an interval is the same in every zone"),
    (["c", f"ftp://x.test/{KEY}"], "url: it is no address of http or https; write one like"),
    (["written", URL], "name: the settings file has [feeds.written] already"),
    (["c", URL, "--hand-to", "bin"], "hand_to: there is no target 'bin'; write [targets.bin], or one of: box"),
]


def test_what_cannot_be_is_refused_with_its_part_and_the_remedy(place: SourcePlace) -> None:
    refused = [place.run("subscriptions", "add", *words) for words, _ in WRONG]

    assert {each.code for each in refused} == {2}
    assert [each.err for each, (_, told) in zip(refused, WRONG, strict=True) if told not in each.err] == []
    assert not [each.err for each in refused if KEY in each.err]


def test_an_address_is_read_from_standard_input_and_lists_that_are_weapons_are_refused_in_time(
    place: SourcePlace,
) -> None:
    read = place.run("subscriptions", "add", "piped", "-", typed=f"{URL}\n")
    empty = place.run("subscriptions", "add", "none", "-", typed="\n")
    bombs = {
        "entities": '<!DOCTYPE opml [<!ENTITY a "x">]><opml><body><outline text="&a;" xmlUrl="http://x.org"/></body></opml>',
        "feeds": "<opml><body>" + "".join(f"<outline xmlUrl='http://x.org/{n}'/>" for n in range(10_001)),
        "bytes": "<opml>" + " " * 10_000_001,
    }
    refused = {name: place.run("subscriptions", "import", "-", typed=bomb) for name, bomb in bombs.items()}
    listed = json.loads(place.run("subscriptions", "export", "--json").out)

    assert (read.code, read.out.startswith("piped is checked every 6h"), KEY in read.out) == (0, True, False)
    assert (empty.code, "url: the feed has no address" in empty.err) == (2, True)
    assert {name: (each.code, each.err.strip().removeprefix("cormorant: ")) for name, each in refused.items()} == {
        "entities": (2, "FILE: the list declares XML entities, which may be an attack, and was not read"),
        "feeds": (2, "FILE: the list has more than 10,000 feeds; divide it"),
        "bytes": (2, "FILE: the list has more than 10,000,000 bytes; divide it"),
    }
    assert listed["feeds"] == [{"name": "piped", "url": URL, "folder": []}]


def test_feeds_come_from_opml_each_once_and_go_back_into_a_file_for_its_owner_alone(place: SourcePlace) -> None:
    (place.folder / "in.opml").write_text(
        '<opml version="2.0"><body><outline text="music">'
        f'<outline text="one" xmlUrl="https://x.test/1?passkey={KEY}"/><outline text="one" xmlUrl="https://x.test/2"/>'
        '<outline text="local" xmlUrl="file:///etc/passwd"/></outline></body></opml>'
    )
    (place.folder / "no.opml").write_text("<html/>")
    first = place.run("subscriptions", "import", str(place.folder / "in.opml"), "--cron", "0 9 * * MON")
    second = place.run("subscriptions", "import", str(place.folder / "in.opml"), "--json")
    wrong = place.run("subscriptions", "import", str(place.folder / "no.opml"))
    out = place.folder / "out.opml"
    written = place.run("subscriptions", "export", str(out))
    twice = place.run("subscriptions", "export", str(out))
    listed = json.loads(place.run("subscriptions", "export", "--json").out)

    assert first.out.startswith("2 added, 0 known already, 1 left out\n  left out, no address of http: local\n")
    assert (json.loads(second.out)["added"], json.loads(second.out)["known"]) == ([], 2)
    assert (wrong.code, "FILE: this is no OPML" in wrong.err) == (2, True)
    assert (written.code, stat.S_IMODE(out.stat().st_mode), KEY in out.read_text()) == (0, 0o600, True)
    assert (twice.code, "is there already; name another" in twice.err) == (2, True)
    assert [(each["name"], each["folder"]) for each in listed["feeds"]] == [("one", ["music"]), ("one (2)", ["music"])]
    assert re.search(r'<outline text="music">\s*<outline type="rss" text="one" ', out.read_text())
    assert re.search(r"^  folder +music$", place.run("subscriptions", "show", "one").out, re.MULTILINE)


def test_a_name_that_is_taken_by_one_of_two_with_one_address_does_not_refuse_a_whole_list(place: SourcePlace) -> None:
    for name in ("A", "B"):
        place.run("subscriptions", "add", name, URL)
    feeds = "".join(f'<outline text="{name}" xmlUrl="https://c.test/{name}"/>' for name in ("A", "B", "404"))
    (place.folder / "in.opml").write_text(f"<opml><body>{feeds}</body></opml>")
    ended = place.run("subscriptions", "import", str(place.folder / "in.opml"), "--json")

    assert (ended.code, ended.err) == (0, "")
    assert [each["name"] for each in json.loads(ended.out)["added"]] == ["A (2)", "B (2)", "404 (c.test)"]


def test_the_schedule_tells_what_runs_when_each_in_its_turn(place: SourcePlace) -> None:
    for name in ("a", "b"):
        place.run("subscriptions", "add", name, f"https://x.test/{name}", "--every", "30m")
    place.run("saved", "add", "hourly", "flac", "--every", "1h")
    plan = json.loads(place.run("schedule", "--hours", "1", "--json").out)
    told = place.run("schedule", "--hours", "1", "--limit", "2")
    following = json.loads(place.run("subscriptions", "next", "--json").out)

    assert sorted((run["kind"], run["name"]) for run in plan["runs"]) == [
        *[("saved search", "hourly")],
        *[("subscription", "a")] * 2,
        *[("subscription", "b")] * 2,
    ]
    at = {run["name"]: datetime.fromisoformat(run["at"]) for run in plan["runs"][:3]}
    assert (at["b"] - at["a"]).total_seconds() == 1.0
    assert (told.code, "there is more: raise --limit" in told.out) == (0, True)
    assert [run["name"] for run in following["runs"]] == ["a", "b"]


def test_options_without_a_line_of_their_own_are_shown_in_the_order_of_the_settings_if_they_are_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "_SHOWN", frozenset({"url", "first_check"}))
    now = datetime(2026, 11, 16, tzinfo=UTC)
    shown = SubscriptionShownOut(subscription=subscription_out(new_feed("one", now, accept=("flac",))), checks=[])

    lines = list(feeds.FeedText(now=now, zone=UTC).shown(shown))

    others = lines[lines.index("  handed to      nobody: what is new is only shown") + 1 : -3]
    assert others == [
        "  every s        60.0",
        "  zone           UTC",
        "  adaptive       False",
        "  auto import    True",
        "  accept         ['flac']",
        "  set            by command",
    ]

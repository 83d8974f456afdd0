"""The reference pages say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cormorant.cli.prices import prices
from cormorant.cli.sources import add, sources
from cormorant.cli.wants import downloads, targets, wants
from cormorant.cli.watches import saved, watchlist
from cormorant.reference import all_events, events_reference, metrics_reference, settings_reference
from cormorant.rules.jobs.states import JobState, Verb
from cormorant.rules.settings.keys import known_settings
from cormorant.rules.settings.settings import Settings
from cormorant.rules.watch.wants import WantState
from tests.architecture import BEGIN, END, PAGE, generated, with_generated
from tests.bounds import WAIT_S

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_lists_every_setting_as_it_is() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()

    assert page == settings_reference(), "run: python -m cormorant.settings > docs/settings.md"


def test_the_page_of_events_lists_every_event_as_it_is() -> None:
    page = (ROOT / "docs" / "events.md").read_text()

    assert page == events_reference(), "run: python -m cormorant.log > docs/events.md"


def test_the_page_of_metrics_lists_every_metric_as_it_is() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()

    assert page == metrics_reference(), "run: python -m cormorant.reference > docs/metrics.md"


def test_every_setting_and_every_event_says_what_it_means() -> None:
    meanings = [known.setting.meaning for known in known_settings(Settings())]
    sentences = [event.__doc__ or "" for event in all_events()]

    assert [text for text in meanings + sentences if not text.rstrip().endswith(".")] == []


def test_no_room_of_events_is_left_out() -> None:
    folder = ROOT / "cormorant" / "rules"
    defines = re.compile(r"^class \w+\((Job)?Event\):", re.MULTILINE)
    rooms = {path for path in folder.rglob("*.py") if defines.search(path.read_text())}

    assert rooms == {ROOT.joinpath(*event.__module__.split(".")).with_suffix(".py") for event in all_events()}


def test_no_two_events_have_the_same_name() -> None:
    names = [event.name for event in all_events()]

    assert len(names) == len(set(names))


def test_the_page_of_jobs_names_every_state_and_every_change() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text()

    assert [state for state in JobState if f"| `{state}` |" not in page] == []
    assert [verb for verb in Verb if f"*{verb}*" not in page] == []


@pytest.mark.parametrize("group", [watchlist, saved, wants, downloads, targets], ids=lambda group: str(group.name))
def test_the_page_of_watching_names_every_command_and_option(group: click.Group) -> None:
    page = (ROOT / "docs" / "watching.md").read_text()

    assert [name for name in group.commands if f"`cormorant {group.name} {name}" not in page] == []
    options = {
        name
        for command in group.commands.values()
        for parameter in command.params
        for name in parameter.opts
        if name.startswith("--")
    }
    assert [name for name in sorted(options) if not re.search(rf"`{name}\b", page)] == []


def test_the_page_of_prices_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "prices.md").read_text()

    assert [name for name in prices.commands if f"`cormorant prices {name}" not in page] == []
    options = {name for each in prices.commands.values() for parameter in each.params for name in parameter.opts}
    assert [name for name in sorted(options) if name.startswith("--") and f"`{name}`" not in page] == []


def test_the_page_of_watching_names_every_state_of_a_want() -> None:
    page = (ROOT / "docs" / "watching.md").read_text()

    assert [state for state in WantState if f"| `{state}` |" not in page] == []


def test_the_page_of_sources_names_every_command_and_option() -> None:
    page = (ROOT / "docs" / "sources.md").read_text()

    assert [name for name in sources.commands if f"`cormorant sources {name}" not in page] == []
    options = [name for parameter in add.params for name in parameter.opts if name.startswith("--")]
    assert [name for name in options if f"`{name}" not in page] == []


def test_the_page_of_jobs_explains_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \| ", (ROOT / "docs" / "jobs.md").read_text(), re.MULTILINE))
    defaults = {known.key: known.setting.kind.write(known.default) for known in known_settings(Settings())}
    ours = {key: default for key, default in defaults.items() if key.startswith(("jobs.", "queue."))}

    assert ours.pop("queue.priorities") == "{ high = 0, normal = 5, low = 10 }"
    assert rows.pop("queue.priorities") == "high 0, normal 5, low 10"
    assert {key: rows.get(key) for key in ours} == ours


@pytest.mark.slow("runs a service to see its tree")
def test_the_page_of_the_architecture_has_the_tree_and_the_messages_of_the_code() -> None:
    page = PAGE.read_text()

    assert page == with_generated(page, generated()), "run: python -m tests.architecture"
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert "no module" not in generated(), "a message that no module sends"


@pytest.mark.slow("starts Python once for each")
@pytest.mark.parametrize(
    ("module", "page"), [("settings", "settings.md"), ("log", "events.md"), ("reference", "metrics.md")]
)
def test_the_pages_are_made_without_make(module: str, page: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", f"cormorant.{module}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )

    assert made.stdout == (ROOT / "docs" / page).read_text()

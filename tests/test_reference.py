"""The reference pages say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cormorant.reference import all_events, events_reference, settings_reference
from cormorant.rules.catalogue import known_settings
from cormorant.rules.settings import Settings

ROOT = Path(__file__).parents[1]


def test_the_page_of_settings_lists_every_setting_as_it_is() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()

    assert page == settings_reference(), "run: python -m cormorant.settings > docs/settings.md"


def test_the_page_of_events_lists_every_event_as_it_is() -> None:
    page = (ROOT / "docs" / "events.md").read_text()

    assert page == events_reference(), "run: python -m cormorant.telemetry > docs/events.md"


def test_every_setting_and_every_event_says_what_it_means() -> None:
    meanings = [known.setting.meaning for known in known_settings(Settings())]
    sentences = [event.__doc__ or "" for event in all_events()]

    assert [text for text in meanings + sentences if not text.rstrip().endswith(".")] == []


def test_no_two_events_have_the_same_name() -> None:
    names = [event.name for event in all_events()]

    assert len(names) == len(set(names))


@pytest.mark.slow("starts Python twice")
@pytest.mark.parametrize(("module", "page"), [("settings", "settings.md"), ("telemetry", "events.md")])
def test_the_pages_are_made_without_make(module: str, page: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", f"cormorant.{module}"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )

    assert made.stdout == (ROOT / "docs" / page).read_text()

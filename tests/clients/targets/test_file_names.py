"""Names of files: whatever a title holds, the name stays in its folder and every filesystem takes it."""

from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.clients.targets.folders import FALLBACK, clean_name, cut_to, fill_template

TITLES = st.text() | st.text(alphabet="./\\ -~:\0\n{}aé👩‍\u0301", max_size=400)
WINDOWS_RESERVES = {"con", "prn", "aux", "nul", "com1", "lpt9"}


@settings(max_examples=25)
@given(TITLES, st.integers(10, 255))
def test_a_name_is_one_clean_part_of_a_path(title: str, bytes_max: int) -> None:
    name = clean_name(title, bytes_max=bytes_max)

    assert 1 <= len(name.encode()) <= max(bytes_max, len(FALLBACK))
    assert not set(name) & set('/\\:*?"<>|\0\n\r\t')
    assert name == name.strip(" .")
    assert ".." not in name
    assert os.path.normpath(name) == name
    assert all(unicodedata.category(letter) != "Cs" for letter in name)


@settings(max_examples=25)
@given(TITLES)
def test_a_clean_name_stays_as_it_is(title: str) -> None:
    assert clean_name(clean_name(title)) == clean_name(title)


@settings(max_examples=25)
@given(st.text(max_size=60), st.integers(0, 50))
def test_a_cut_text_is_a_beginning_that_fits(text: str, bytes_max: int) -> None:
    kept = cut_to(text, bytes_max)

    assert text.startswith(kept)
    assert len(kept.encode("utf-8", "replace")) <= bytes_max


@pytest.mark.parametrize("name", sorted(WINDOWS_RESERVES))
@pytest.mark.parametrize("ending", ["", ".txt", ". "])
def test_a_reserved_name_is_changed(name: str, ending: str) -> None:
    assert clean_name(f"{name.upper()}{ending}").partition(".")[0].lower() not in WINDOWS_RESERVES


def test_letters_that_belong_together_are_not_cut_apart() -> None:
    family = "👩‍👩‍👧"

    assert cut_to(f"ab{family}", len(family.encode())) == "ab"
    assert cut_to("e\u0301" * 10, 4) == "e\u0301"


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["feed", "title", "artist"]), TITLES))
def test_what_is_filled_in_never_changes_how_deep_a_file_lies(parts: dict[str, str]) -> None:
    names = fill_template("podcasts/{feed}/{artist} - {title}", parts)

    assert len(names) == 3
    assert names[0] == "podcasts"
    assert all(name not in {"", ".", ".."} and "/" not in name for name in names)

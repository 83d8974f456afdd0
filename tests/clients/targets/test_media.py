"""Media files: known by how they begin; pages are never taken for one."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cormorant.clients.targets.download_folder import media_ending, media_problem

MP3 = "https://x.org/a.mp3"
PAGES = ("<!doctype html>", "<html>", "<HTML lang=de>", "<?xml version='1.0'?><error/>", "<script>", "<!-- x --><head>")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "encoded",
    [
        lambda page: page.encode(),
        lambda page: b"\r\n \t" + page.encode(),
        lambda page: codecs.BOM_UTF8 + page.encode(),
        lambda page: codecs.BOM_UTF16_LE + page.encode("utf-16-le"),
        lambda page: codecs.BOM_UTF16_BE + page.encode("utf-16-be"),
        lambda page: page.encode("utf-16-le"),
    ],
)
def test_a_page_is_no_media_file_whatever_is_said_of_it(page: str, encoded: object) -> None:
    assert callable(encoded)

    assert media_problem(encoded(page), content_type="audio/mpeg", link=MP3) is not None


@settings(max_examples=25)
@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=40))
def test_plain_text_is_no_media_file(text: str) -> None:
    is_marked = text.startswith(("ID3", "OggS", "fLaC", "RIFF", "FORM", "GIF8", "%PDF-")) or text[4:8] == "ftyp"

    assert is_marked or media_problem(text.encode(), content_type="audio/mpeg", link=MP3) is not None


@pytest.mark.parametrize(
    ("start", "ending"),
    [
        (b"\xff\xfb\x90\x64" + bytes(50), ".mp3"),
        (b"\xff\xfe\x90\x64" + bytes(50), ".mp3"),
        (b"\x00\x00\x00\x20ftypM4A ", ".m4a"),
        (b"\x00\x00\x00\x18ftypmp42", ".mp4"),
        (b"OggS\x00\x02", ".ogg"),
        (b"fLaC\x00", ".flac"),
        (b"%PDF-1.7", ".pdf"),
    ],
)
def test_a_media_file_is_known_by_how_it_begins(start: bytes, ending: str) -> None:
    nothing = {"content_type": "application/octet-stream", "link": "https://x.org/get?id=1"}

    assert media_problem(start, **nothing) is None
    assert media_ending(start, **nothing) == ending


def test_what_begins_like_nothing_known_is_taken_if_it_is_said_to_be_media() -> None:
    odd = b"\x00\x01\x02\x03" * 20

    assert media_problem(odd, content_type="audio/mpeg; x=y", link="") is None
    assert media_problem(odd, content_type="", link="https://x.org/a.mp3?x=1") is None
    assert media_problem(odd, content_type="application/json", link="https://x.org/a") is not None

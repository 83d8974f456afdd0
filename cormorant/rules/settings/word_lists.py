"""How is a setting described that holds several words? Written as a list, or in the environment with commas between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cormorant.rules.settings.fields import Kind, Setting, setting_field
from cormorant.rules.units import as_written

__all__ = ["patterns", "words"]

_WORDS_MAX: Final = 100
_WORD_LENGTH_MAX: Final = 1_000


def words(meaning: str, *, default: tuple[str, ...] = ()) -> Any:
    """Several words; none unless set. The attribute is a `tuple[str, ...]`."""
    return setting_field(default, Setting(kind=WORDS, meaning=meaning))


def patterns(meaning: str, *, problem: Callable[[str], str | None]) -> Any:
    """Several words that `problem` has nothing against."""

    def parse(value: object) -> tuple[str, ...]:
        parsed = _parse_words(value)
        found = [text for text in map(problem, parsed) if text]
        if found:
            raise ValueError("; ".join(found))
        return parsed

    kind = Kind(name="list of patterns", parse=parse, write=_written, from_environment=_split)
    return setting_field((), Setting(kind=kind, meaning=meaning))


def _parse_words(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or len(given) > _WORDS_MAX:
        raise ValueError(f'{as_written(value)} is not a list of at most {_WORDS_MAX} words, such as ["flac", "24bit"]')
    for word in given:
        if not isinstance(word, str) or not word.strip() or len(word) > _WORD_LENGTH_MAX or not word.isprintable():
            raise ValueError(f"{as_written(word)} is not one line of 1 to {_WORD_LENGTH_MAX} characters in quotes")
    return tuple(given)


def _split(text: str) -> object:
    return [word.strip() for word in text.split(",") if word.strip()]


def _written(given: tuple[str, ...]) -> str:
    return f"[{', '.join(as_written(word) for word in given)}]"


WORDS = Kind(name="list of words", parse=_parse_words, write=_written, from_environment=_split)

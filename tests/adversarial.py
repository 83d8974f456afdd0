"""Texts on which a regular expression may take the square of their length, made from the parts of the expression itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice, permutations
from time import process_time
from typing import Any, Final

from tests.bounds import QUADRATIC_FROM, growth

# What `re` itself reads expressions with. There is no public way.
_parser: Any = import_module("re._parser")
_codes: Any = import_module("re._constants")

SMALL: Final = 500
LARGE: Final = 8 * SMALL
JUDGED: Final = (2 * SMALL, 2 * LARGE)
"""The lengths between which growth is judged. In shorter texts a repeat with a bound grows faster than its text."""
_REPEATS: Final = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)
_PROBES: Final = "a0 -.:/=&?#<'\"@(\\\n\u0301\x01"
"""Characters that are tried where a class says only what it does not hold."""
_CHARACTERS_MAX: Final = 6
_PIECES_MAX: Final = 12
_ENDS: Final = ("", "\0", "!")
_SUSPICIOUS_S: Final = 0.0005
"""4,000 characters take a tenth of it in linear time, and ten times as much in quadratic time."""
_SUSPICIOUS_FROM: Final = 16.0
"""Measured once: between the 8 times of linear time and the 64 times of quadratic time."""

Text = Any
"""A `str` or `bytes`, as the pattern wants it."""


def quadratic_text(pattern: re.Pattern[Any]) -> Text | None:
    """A text on which a pattern takes more than linear time, however it is asked; None when none is found."""
    for place, (small, large) in enumerate(zip(_texts(pattern, SMALL), _texts(pattern, LARGE), strict=True)):
        for work in (_search(pattern), pattern.fullmatch):
            if _is_suspicious(work, small, large):
                shorter, longer = (next(islice(_texts(pattern, length), place, None)) for length in JUDGED)
                if growth(work, shorter, longer) >= QUADRATIC_FROM:
                    return large
    return None


def _is_suspicious(work: Callable[[Text], object], small: Text, large: Text) -> bool:
    """Measured once: there are thousands of texts, and `growth` takes its time."""
    took_s = _seconds(work, large)
    return took_s > _SUSPICIOUS_S and took_s > _SUSPICIOUS_FROM * _seconds(work, small)


def _search(pattern: re.Pattern[Any]) -> Callable[[Text], int]:
    return lambda text: sum(1 for _ in pattern.finditer(text))


def _seconds(work: Callable[[Text], object], text: Text) -> float:
    began_s = process_time()
    work(text)
    return process_time() - began_s


def _texts(pattern: re.Pattern[Any], length: int) -> Iterator[Text]:
    """Each piece repeated, each pair of pieces repeated, many of one after many of the other, and many after one."""
    is_bytes = isinstance(pattern.pattern, bytes)
    source = pattern.pattern.decode("latin-1") if is_bytes else pattern.pattern
    pieces = _pieces(_parser.parse(source, pattern.flags & ~re.UNICODE if is_bytes else pattern.flags))
    texts = _combined(pieces, length)
    return (text.encode("latin-1", "replace") for text in texts) if is_bytes else texts


def _combined(pieces: Iterable[str], length: int) -> Iterator[str]:
    for piece in pieces:
        yield from (_filled(piece, length) + end for end in _ENDS)
    for first, second in permutations(pieces, 2):
        yield _filled(first + second, length) + _ENDS[1]
        yield first + _filled(second, length) + _ENDS[1]
        yield first + _filled(f"{second} ", length) + _ENDS[1]
        yield _filled(first, length // 2) + _filled(second, length // 2) + _ENDS[1]


def _filled(piece: str, length: int) -> str:
    return piece * max(1, length // len(piece))


def _pieces(parsed: Any) -> list[str]:
    """What the repeats of an expression take, and what stands before each: the beginnings of a match."""
    repeated: list[str] = []
    begun: list[str] = []
    _walk(list(parsed), "", repeated, begun)
    begun = list(dict.fromkeys(filter(None, begun)))
    half = _PIECES_MAX // 2
    begun = begun if len(begun) <= _PIECES_MAX else [*begun[:half], *begun[-half:]]
    return list(dict.fromkeys([*filter(None, repeated[:_PIECES_MAX]), *begun]))


def _walk(parts: list[Any], before: str, repeated: list[str], begun: list[str]) -> None:
    for place, (code, given) in enumerate(parts):
        here = before + _matched(parts[:place])
        begun.append(here)
        if code in _REPEATS:
            inner = list(given[2])
            repeated.extend(_characters(*inner[0])[:_CHARACTERS_MAX] if len(inner) == 1 else ())
            repeated.append(_matched(inner))
        for inner in _inner(code, given):
            _walk(inner, here, repeated, begun)
            begun.append(_matched(inner))
    begun.append(before + _matched(parts))


def _inner(code: Any, given: Any) -> list[list[Any]]:
    """The sequences within a part of an expression; of alternatives the first few."""
    if code in _REPEATS:
        return [list(given[2])]
    if code is _codes.SUBPATTERN:
        return [list(given[3])]
    if code is _codes.ATOMIC_GROUP:
        return [list(given)]
    if code is _codes.BRANCH:
        return [list(each) for each in given[1][:4]]
    return [list(given[1])] if code in (_codes.ASSERT, _codes.ASSERT_NOT) else []


def _matched(parts: Iterable[Any]) -> str:
    """A short text that these parts match, one after the other; what must stand before them is put there."""
    text = ""
    for code, given in parts:
        if code in _REPEATS:
            text += _matched(given[2]) * max(1, given[0])
        elif code is _codes.ASSERT:
            text += _matched(given[1]) if given[0] < 0 and not text else ""
        elif code is not _codes.ASSERT_NOT:
            inner = _inner(code, given)
            text += _matched(inner[0]) if inner else "".join(_characters(code, given)[:1])
    return text


def _characters(code: Any, given: Any) -> list[str]:
    """Some of the characters that a part of one character matches."""
    if code is _codes.LITERAL:
        return [chr(given)]
    if code is _codes.ANY:
        return list(_PROBES[:_CHARACTERS_MAX])
    if code is _codes.NOT_LITERAL:
        return [sign for sign in _PROBES if ord(sign) != given]
    if code is not _codes.IN:
        return []
    own = [chr(each if what is _codes.LITERAL else each[0]) for what, each in given if what in _SPELLED]
    return [sign for sign in dict.fromkeys([*own, *_PROBES]) if _is_in(sign, given)]


_SPELLED: Final = (_codes.LITERAL, _codes.RANGE)


def _is_in(sign: str, given: Any) -> bool:
    is_negated = given[0][0] is _codes.NEGATE
    return any(_is_of(sign, code, each) for code, each in given) is not is_negated


def _is_of(sign: str, code: Any, given: Any) -> bool:
    if code is _codes.LITERAL:
        return sign == chr(given)
    if code is _codes.RANGE:
        return bool(given[0] <= ord(sign) <= given[1])
    name = str(given) if code is _codes.CATEGORY else ""
    is_so = {"DIGIT": sign.isdigit(), "SPACE": sign.isspace(), "WORD": sign.isalnum() or sign == "_"}
    kind = next((kind for kind in is_so if name.endswith(kind)), None)
    return False if kind is None else is_so[kind] != ("_NOT_" in name)

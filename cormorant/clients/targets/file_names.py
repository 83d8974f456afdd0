"""Under which name can anything be kept as a file? Titles hold slashes, dots and 300 characters; a name must stay in its folder."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping

NAME_BYTES_MAX = 255
TITLE_BYTES_MAX = 200
"""Of the 255 bytes of a name, the rest is for what is added: an ending, a key."""
FALLBACK = "untitled"

# Two dots in a row are no more than one: a name is never "..", nor looks like it.
_FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+|\.{2,}')
_SPACES = re.compile(r"\s+")
_EDGES = " .-~"
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_JOINERS = "\u200d\ufe0f"


def clean_name(title: str, *, bytes_max: int = TITLE_BYTES_MAX) -> str:
    """A title as a name that every filesystem takes: one part, never empty, at most so many bytes of UTF-8.

    >>> clean_name("../../etc/passwd"), clean_name("AC/DC: Live?"), clean_name(" ... "), clean_name("nul.txt")
    ('etc passwd', 'AC DC Live', 'untitled', '_nul.txt')
    >>> clean_name("🎸 Sigur Rós"), len(clean_name("é" * 300).encode())
    ('🎸 Sigur Rós', 200)
    """
    text = _FORBIDDEN.sub(" ", unicodedata.normalize("NFC", title))
    text = _SPACES.sub(" ", text).strip(_EDGES)
    if _RESERVED.match(text):
        text = f"_{text}"
    return cut_to(text, bytes_max).strip(_EDGES) or FALLBACK


def cut_to(text: str, bytes_max: int) -> str:
    r"""The beginning of a text that fits; no character is cut apart, nor one from what is joined to it.

    >>> cut_to("aé", 2), cut_to("e\u0301x", 2)
    ('a', '')
    """
    whole = text.encode("utf-8", "replace")
    if len(whole) <= bytes_max:
        return text
    kept = whole[:bytes_max].decode("utf-8", "ignore")
    rest = text[len(kept) : len(kept) + 1]
    while kept and (_is_joined(rest) or kept[-1] == _JOINERS[0]):
        kept, rest = kept[:-1], kept[-1]
    return kept


def _is_joined(letter: str) -> bool:
    return letter != "" and (letter in _JOINERS or unicodedata.combining(letter) != 0)


def template_problem(template: str, *, known: Collection[str]) -> str | None:
    """Why text is no template of names in a folder.

    >>> template_problem("podcasts/{feed}/{title}", known=["feed", "title"])
    >>> template_problem("/srv/{feed}", known=["feed"])
    'it begins with /; names are those inside the folder of the target'
    >>> template_problem("{fed}", known=["feed"])
    'there is no {fed}; there is {feed}'
    """
    if template.startswith(("/", "\\")):
        return "it begins with /; names are those inside the folder of the target"
    if ".." in template.split("/"):
        return "it holds .., which would lead out of the folder of the target"
    for name in _PLACEHOLDER.findall(template):
        if name not in known:
            return f"there is no {{{name}}}; there is {', '.join(f'{{{each}}}' for each in known)}"
    if not template.strip("/ ") or set(_PLACEHOLDER.sub("", template)) & set("{}\\"):
        return "it is no path; write names and words in braces, such as {feed}/{title}"
    return None


def fill_template(template: str, parts: Mapping[str, str]) -> tuple[str, ...]:
    """The folders and the name, each clean: what is filled in never adds or leaves a folder.

    >>> fill_template("podcasts/{feed}/{title}", {"feed": "../x", "title": "a/b"})
    ('podcasts', 'x', 'a b')
    >>> fill_template("{feed}/{title}", {"title": "One"})
    ('untitled', 'One')
    """
    filled = (_PLACEHOLDER.sub(lambda found: parts.get(found[1], ""), part) for part in template.split("/") if part)
    return tuple(clean_name(part) for part in filled)

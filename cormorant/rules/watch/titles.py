"""Whether two titles mean the same."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from typing import Final

LENGTH_MAX: Final = 200
"""A longer title is cut and told from others by a digest: keys are kept in an index."""

_DIGEST_LENGTH: Final = 16
# What a shop adds to the name of the same recordings. A deluxe or live edition is another release and keeps its words.
# It begins where a run of spaces begins and looks ahead for the word: each sign is read a fixed number of times.
_REISSUE: Final = re.compile(
    r"(?<!\s)(?:\s*+[(\[](?=[^()\[\]]*\b(?:remaster(?:ed)?|explicit|clean version)\b)[^()\[\]]*+[)\]]"
    r"|\s++-\s(?:\d{4}\s)?remaster(?:ed)?(?:\s(?:version|edition))?(?:\s\d{4})?\s*$)",
    re.IGNORECASE,
)
# Every sign that is written for an apostrophe.
_ASIDE: Final = re.compile("['`\u00b4\u02bc\u2018\u2019]")
_SIGNS: Final = re.compile(r"[^0-9a-z]+")
_ACCENTED: Final = re.compile(r"([A-Za-z])[\u0300-\u036f]+")


def plain_title(title: str) -> str:
    """The same text for titles that differ only in how they are written.

    >>> [plain_title(title) for title in ("Ágætis  byrjun", "Help! (Remastered 2009)", "Drum & Bass", "÷ ", "ハバナ")]
    ['agaetis byrjun', 'help', 'drum and bass', '÷', 'ハバナ']
    """
    words = plain_words(without_marks(title)) or plain_words(title)
    if not words:  # a title may be nothing but signs
        signs = " ".join(_printable(unicodedata.normalize("NFKC", title)).casefold().split())
        words = plain_words(signs) or signs
    return _cut(words)


def without_marks(title: str) -> str:
    """The title without what shops add to it: "(Remastered 2009)", "[Explicit]", "- Remastered 2011".

    >>> without_marks("Help! (Remastered 2009)")
    'Help!'
    """
    return _REISSUE.sub("", title)


def plain_words(text: str) -> str:
    r"""The words of a text in lower case, without accents and signs; of a text of any length.

    >>> plain_words("@@peer\\Music\\Björk - Post [FLAC]\\01 - Army Of Me.flac")
    'peer music bjork post flac 01 army of me flac'
    """
    bare = _ASIDE.sub("", text)
    if bare.isascii():
        return _SIGNS.sub(" ", bare.replace("&", " and ").lower()).strip()
    spread = unicodedata.normalize("NFKD", bare).replace("æ", "ae").replace("Æ", "ae").replace("&", " and ")
    # Only Latin letters lose their marks: in other scripts a mark makes another letter.
    bare = _ACCENTED.sub(r"\1", spread)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", bare).casefold())
    return " ".join("".join(map(_letter_or_space, folded)).split())


def _letter_or_space(sign: str) -> str:
    return sign if unicodedata.category(sign)[0] in "LNM" else " "


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(sign)[0] == "C" else sign for sign in text)


def _cut(text: str) -> str:
    if len(text) <= LENGTH_MAX:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{text[: LENGTH_MAX - _DIGEST_LENGTH - 1]} {digest}"

"""Which artist does somebody mean who gives a name, an id, or a link as Spotify's app copies it?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["ARTISTS_MAX", "LINE_LENGTH_MAX", "artist_id_in", "read_artist_lines"]

ARTISTS_MAX: Final = 10_000
"""Artists in one file."""
LINE_LENGTH_MAX: Final = 300

_ID: Final = r"([0-9A-Za-z]{22})"
_LINKS: Final = (
    re.compile(rf"https?://(?:open|play)\.spotify\.com/(?:intl-[a-z-]{{2,8}}/)?artist/{_ID}(?:[/?#].*)?", re.ASCII),
    re.compile(rf"spotify:artist:{_ID}", re.ASCII),
    re.compile(_ID, re.ASCII),
)


def artist_id_in(text: str) -> str | None:
    """The id that a link holds, or that the text is; None for a name.

    >>> artist_id_in("https://open.spotify.com/intl-de/artist/4Z8W4fKeB5YxbusRsdQVPb?si=ab")
    '4Z8W4fKeB5YxbusRsdQVPb'
    >>> artist_id_in("spotify:artist:4Z8W4fKeB5YxbusRsdQVPb"), artist_id_in("Radiohead")
    ('4Z8W4fKeB5YxbusRsdQVPb', None)
    """
    found = next((match for link in _LINKS if (match := link.fullmatch(text.strip()))), None)
    return found[1] if found else None


def read_artist_lines(lines: Iterable[str]) -> Iterator[str]:
    """The artists of a file, one in a line, each once. What begins with # says nothing. Raises ValueError.

    >>> list(read_artist_lines(["# mine", "", " Radiohead ", "Radiohead", "spotify:artist:4Z8W4fKeB5YxbusRsdQVPb # them"]))
    ['Radiohead', 'spotify:artist:4Z8W4fKeB5YxbusRsdQVPb']
    """
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        wanted = re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()
        if not wanted:
            continue
        if len(wanted) > LINE_LENGTH_MAX or not wanted.isprintable():
            raise ValueError(f"line {number} is no artist: write an id, a link or a name of one line")
        if wanted not in seen and len(seen) >= ARTISTS_MAX:
            raise ValueError(f"line {number}: there are more than {ARTISTS_MAX:,} artists; make several files of it")
        if wanted not in seen:
            seen.add(wanted)
            yield wanted

"""With which arguments is a command of the operator's run? As written, with words in braces filled in and nothing else read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cormorant.rules.watch.handovers import Parcel, ParcelKind

WORDS = ("key", "title", "kind", "infohash", "link", "file", "watch", "feed", "artist", "album", "date")
"""What an argument may name."""

_WORD = re.compile(r"\{([a-z_]+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def command_problem(arguments: Sequence[str]) -> str | None:
    """Why these arguments are no command.

    >>> command_problem(["/usr/bin/aria2c", "{link}"])
    >>> command_problem(["fetch", "{lnik}"])
    'there is no {lnik}; there is {key}, {title}, {kind}, {infohash}, {link}, {file}, {watch}, {feed}, {artist}, {album}, {date}'
    >>> command_problem(["{title}"])
    'the first is the program, and nothing is filled in there'
    """
    if not arguments or not arguments[0].strip():
        return "it names no program"
    if any("\0" in argument for argument in arguments):
        return "it holds a NUL character"
    if _WORD.search(arguments[0]):
        return "the first is the program, and nothing is filled in there"
    named = _words(arguments)
    unknown = next((word for word in named if word not in WORDS), None)
    if unknown is not None:
        return f"there is no {{{unknown}}}; there is {', '.join(f'{{{word}}}' for word in WORDS)}"
    if {"file", "link"} <= named.keys():
        return "a parcel has either a {file} or a {link}; make two targets of it"
    return None


def kinds_for(arguments: Sequence[str]) -> frozenset[ParcelKind]:
    """The kinds of parcels that have what the arguments name.

    >>> sorted(kind.value for kind in kinds_for(["x", "{file}"]))
    ['nzb', 'torrent']
    """
    named = _words(arguments)
    if "file" in named:
        return frozenset({ParcelKind.TORRENT, ParcelKind.NZB})
    if "link" in named:
        return frozenset({ParcelKind.MAGNET, ParcelKind.URL})
    return frozenset({ParcelKind.TORRENT, ParcelKind.NZB, ParcelKind.MAGNET, ParcelKind.URL})


def filled_arguments(arguments: Sequence[str], parcel: Parcel, *, file: str = "") -> list[str]:
    """The arguments for a parcel. What is filled in stays one argument, and cannot become an option.

    >>> parcel = Parcel(key="k", title="--delete; rm -rf /", kind=ParcelKind.URL, link="https://x.org/a")
    >>> filled_arguments(["get", "{link}", "{title}", "--name={title}"], parcel)
    ['get', 'https://x.org/a', '_-delete; rm -rf /', '--name=--delete; rm -rf /']
    """
    values = {
        **parcel.folder_parts,
        "key": parcel.key,
        "title": parcel.title,
        "kind": parcel.kind.value,
        "infohash": parcel.infohash or "",
        "link": parcel.link or "",
        "file": file,
    }
    return [arguments[0], *(_filled(argument, values) for argument in arguments[1:])]


def _filled(argument: str, values: Mapping[str, str]) -> str:
    filled = _WORD.sub(lambda found: _plain(values.get(found[1], "")), argument)
    is_foreign = filled.startswith("-") and not argument.startswith("-")
    return f"_{filled[1:]}" if is_foreign else filled


def _plain(value: str) -> str:
    """Text that can be an argument: no NUL, no line breaks, no half characters."""
    return _CONTROL.sub(" ", value).encode("utf-8", "replace").decode()


def _words(arguments: Sequence[str]) -> dict[str, None]:
    return dict.fromkeys(word for argument in arguments for word in _WORD.findall(argument))

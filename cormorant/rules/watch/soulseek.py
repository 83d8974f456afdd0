"""Ranks what peers offer and makes results of it.

The rule: locked files never; a free upload slot first, then the preferred format, then the more complete, then the faster
peer, then the shorter queue, then the larger files, and the name last, so that equals always come in the same order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Self

from attrs import evolve, field, frozen

from cormorant.rules.search.requests import Result, SearchRequest
from cormorant.rules.watch.titles import plain_words, without_marks

FORMATS: Final = ("flac", "wav", "mp3-320", "m4a", "opus", "ogg", "mp3")
"""What is preferred, best first. Other audio comes after these."""

CANDIDATES_MAX: Final = 100
"""So many candidates are told; more nobody tries."""

_AUDIO: Final = frozenset(
    {"aac", "aif", "aiff", "alac", "ape", "flac", "m4a", "mp3", "mpc", "ogg", "opus", "wav", "wma", "wv"}
)
_EXTENSION: Final = re.compile(r"\.([0-9A-Za-z]{1,5})$")
_DISC: Final = re.compile(r"(?:cd|dis[ck]|vinyl|side)[\s._-]*(?:\d{1,2}|[a-d])\b.*", re.IGNORECASE)
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(?:^|[\\/])\.\.(?:[\\/]|$)")
# Shops name the guests in the title of a track, people who name files do not.
_GUESTS: Final = re.compile(r"(?<!\s)\s*+[(\[](?:feat|ft|with)\b[^()\[\]]*+[)\]]", re.IGNORECASE)
_BEST_MP3_KBPS: Final = 320
_MEGABYTE: Final = 1_000_000


@frozen(kw_only=True)
class PeerFile:
    """A file as a peer names it: the whole path, with backslashes. Name and size are sent back exactly as they came."""

    filename: str
    size_bytes: int
    bit_rate: int | None = None
    length_s: int | None = None
    is_locked: bool = False

    @property
    def folder(self) -> str:
        """The path without the name."""
        return self.filename.rpartition("\\")[0]

    @property
    def extension(self) -> str:
        """By its name: what a peer states as the extension is often wrong or missing."""
        found = _EXTENSION.search(self.filename)
        return found[1].lower() if found else ""


@frozen(kw_only=True)
class PeerResponse:
    """What one peer offers to a search."""

    username: str
    files: tuple[PeerFile, ...] = ()
    locked_files: tuple[PeerFile, ...] = ()
    has_free_slot: bool = False
    speed_bytes_s: int = 0
    queue_length: int = 0


@frozen(kw_only=True)
class PeerQuery:
    """What is looked for. Without `tracks_total` any number of tracks is right; without `artist` any artist."""

    title: str
    artist: str = ""
    tracks_total: int | None = None


@frozen(kw_only=True)
class PeerOffer:
    """Files of one peer that can be fetched together, and why they stand where they stand."""

    username: str
    folder: str
    files: tuple[PeerFile, ...] = field(repr=lambda files: f"<{len(files)} files>")
    format: str
    has_free_slot: bool
    speed_bytes_s: int
    queue_length: int
    reasons: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def names_and_sizes(self) -> tuple[tuple[str, int], ...]:
        """Its files as a parcel carries them."""
        return tuple((file.filename, file.size_bytes) for file in self.files)


def rank_albums(responses: Iterable[PeerResponse], wish: PeerQuery) -> tuple[PeerOffer, ...]:
    """Whole albums: one peer, one folder (or the discs in it), one format, and the right number of tracks."""
    words = [_PathText.of(wish.title), _PathText.of(wish.artist)]
    offers = chain.from_iterable(map(_offers, responses))
    return _best((offer for offer in offers if _fits(offer, wish, words)), wish.tracks_total)


def rank_track(responses: Sequence[PeerResponse], wish: PeerQuery, track: str) -> tuple[PeerOffer, ...]:
    """Single files whose name has the words of `track`: the way out where no peer has the whole album."""
    name, artist = _PathText.of(_GUESTS.sub("", track)), _PathText.of(wish.artist)
    # Looked at once for all files in them: an answer has ten thousand files.
    folders = {file.folder for response in responses for file in response.files}
    theirs = {folder for folder in folders if artist.are_in(folder)}
    offers = (
        _offer(response, file.folder, [file])
        for response in responses
        for file in _fetchable(response)
        if name.are_in(_name(file)) and (file.folder in theirs or artist.are_in(file.filename))
    )
    return _best(offers, None)


@frozen
class _PathText:
    """What a path must have: all the words, or all of them without spaces ("A.M." is a folder called "AM").

    A title of nothing but signs has no words, and is anywhere: what peers call it nobody knows.
    """

    each: frozenset[str]
    joined: str

    @classmethod
    def of(cls, wanted: str) -> Self:
        words = plain_words(without_marks(wanted)).removeprefix("the ").split()
        return cls(frozenset(words), "".join(words))

    def are_in(self, path: str) -> bool:
        have = plain_words(path).split()
        return self.each.issubset(have) or self.joined in "".join(have)


def _offers(response: PeerResponse) -> Iterator[PeerOffer]:
    """The files of a peer by folder and kind of file. A folder with FLAC and MP3 is two offers."""
    groups: dict[tuple[str, str], list[PeerFile]] = {}
    for file in _fetchable(response):
        groups.setdefault((_album_folder(file), file.extension), []).append(file)
    for (folder, _), files in groups.items():
        yield _offer(response, folder, files)


def _offer(response: PeerResponse, folder: str, files: list[PeerFile]) -> PeerOffer:
    return PeerOffer(
        username=response.username,
        folder=folder,
        files=tuple(sorted(files, key=lambda file: file.filename)),
        format=_format(files),
        has_free_slot=response.has_free_slot,
        speed_bytes_s=response.speed_bytes_s,
        queue_length=response.queue_length,
    )


def _fetchable(response: PeerResponse) -> Iterator[PeerFile]:
    """The audio that a peer lets us have, each file once. What is locked anywhere in the response is locked."""
    locked = {file.filename for file in response.locked_files}
    locked.update(file.filename for file in response.files if file.is_locked)
    known: dict[str, PeerFile] = {}
    for file in response.files:
        is_fit = file.size_bytes > 0 and file.extension in _AUDIO and not _UNFIT.search(file.filename)
        if is_fit and file.filename not in locked:
            known.setdefault(file.filename, file)
    yield from known.values()


def _album_folder(file: PeerFile) -> str:
    """The folder of the album: that of the file, or the one above "CD 1"."""
    above, _, last = file.folder.rpartition("\\")
    return above if above and _DISC.fullmatch(last) else file.folder


def _format(files: Sequence[PeerFile]) -> str:
    extension = files[0].extension
    if extension == "mp3" and all((file.bit_rate or 0) >= _BEST_MP3_KBPS for file in files):
        return "mp3-320"
    return extension


def _fits(offer: PeerOffer, wish: PeerQuery, words: Sequence[_PathText]) -> bool:
    if wish.tracks_total not in {None, len(offer.files)}:
        return False
    return all(
        wanted.are_in(offer.folder) or all(wanted.are_in(file.filename) for file in offer.files) for wanted in words
    )


def _name(file: PeerFile) -> str:
    return file.filename.rpartition("\\")[2].rpartition(".")[0]


def _best(offers: Iterable[PeerOffer], tracks_total: int | None) -> tuple[PeerOffer, ...]:
    return tuple(_explained(offer, tracks_total) for offer in sorted(offers, key=rank)[:CANDIDATES_MAX])


def rank(candidate: PeerOffer) -> tuple[object, ...]:
    """What candidates are compared by; less is better. Only what fetches the same files compares equal."""
    return (
        not candidate.has_free_slot,
        _preference(candidate.format),
        -len(candidate.files),
        -candidate.speed_bytes_s,
        candidate.queue_length,
        -candidate.size_bytes,
        candidate.username,
        candidate.folder,
        candidate.names_and_sizes,
    )


def _preference(kind: str) -> int:
    return FORMATS.index(kind) if kind in FORMATS else len(FORMATS)


def _explained(offer: PeerOffer, tracks_total: int | None) -> PeerOffer:
    count, preference = len(offer.files), _preference(offer.format)
    wanted = "" if tracks_total is None else f" of {tracks_total}"
    reasons = (
        "a free upload slot" if offer.has_free_slot else "no free upload slot",
        f"{offer.format}, choice {preference + 1}" if preference < len(FORMATS) else f"{offer.format}, no choice",
        f"{count}{wanted} {'track' if count == 1 else 'tracks'}",
        f"{offer.speed_bytes_s / _MEGABYTE:.1f} MB/s",
        f"{offer.queue_length} in its queue",
        f"{offer.size_bytes / _MEGABYTE:.0f} MB",
    )
    return evolve(offer, reasons=reasons)


OFFERS_MAX = 50
"""So many are taken, the best first; hundreds of peers have the same."""


def offered(responses: Sequence[PeerResponse], request: SearchRequest) -> tuple[Result, ...]:
    """What peers offer for a search, best first: whole albums, and single files when there are none."""
    params = request.params
    title = params.get("album") or params.get("title") or request.query
    said = params.get("tracks", "")
    tracks = int(said) if said.isdecimal() else 0
    wish = PeerQuery(title=title, artist=params.get("artist", ""), tracks_total=tracks or None)
    ranked = () if "title" in params else rank_albums(responses, wish)
    if not ranked and "album" not in params:
        ranked = rank_track(responses, wish, title)
    best = ranked[:OFFERS_MAX]
    return tuple(_result(candidate, rank=len(best) - place) for place, candidate in enumerate(best))


def files_of(result: Result) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Whose files a result stands for, and which."""
    files = [json.loads(text) for text in result.attributes.get("file", ())]
    return result.attributes.get("username", ("",))[0], tuple((str(name), int(size)) for name, size in files)


def _result(candidate: PeerOffer, *, rank: int) -> Result:
    name = candidate.folder.rpartition("\\")[2] or candidate.folder
    number = len(candidate.files)
    return Result(
        title=f"{name} [{candidate.format}] ({number} {'file' if number == 1 else 'files'}) from {candidate.username}",
        guid=f"{candidate.username}/{candidate.folder}/{candidate.format}",
        link="",
        protocol="soulseek",
        size_bytes=candidate.size_bytes,
        attributes={
            "username": (candidate.username,),
            "file": tuple(_written(candidate)),
            "format": (candidate.format,),
            "reason": candidate.reasons,
            "rank": (str(rank),),
        },
    )


def _written(candidate: PeerOffer) -> Iterable[str]:
    return (json.dumps([file.filename, file.size_bytes]) for file in candidate.files)

"""An operator's command and its arguments."""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from cormorant.clients.subprocesses import ProgramResult, RunLimits, run_program
from cormorant.clients.targets.folders import trouble_with
from cormorant.clients.targets.target import refuse_false
from cormorant.rules.ports import Offload
from cormorant.rules.secrets import shortened
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetError,
    TargetInDoubt,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

LATER: Final = 75
"""The exit code that means "not now, try again": EX_TEMPFAIL of sysexits."""
_ENDINGS: Final = {ParcelKind.TORRENT: ".torrent", ParcelKind.NZB: ".nzb"}
_CLEAN_UP_S: Final = 10.0
_SHOWN_MAX: Final = 200


class Command:
    """One command, run without any environment. It cannot be asked; give it `{key}` if it shall tell a repetition."""

    can_be_asked: Final = False

    def __init__(self, arguments: tuple[str, ...], *, timeout_s: float, offload: Offload) -> None:
        problem = command_problem(arguments)
        if problem is not None:
            raise TargetMisconfigured(f"the command cannot be used: {problem}")
        self.takes = kinds_for(arguments)
        self._arguments = arguments
        self._limits = RunLimits(timeout_s=timeout_s)
        self._offload = offload

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Run it. Exit code 0: taken; 75: not now; any other: refused. Killed or too slow: nobody knows."""
        await refuse_false(parcel, self.takes, name="the command", offload=self._offload)
        if not any("{file}" in argument for argument in self._arguments):
            return self._receipt(await self._run(filled_arguments(self._arguments, parcel)))
        async with _scratch_file(parcel, self._offload) as path:
            return self._receipt(await self._run(filled_arguments(self._arguments, parcel, file=path)))

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - nobody can be asked
        """It cannot be asked."""
        return ParcelStatus(standing=ParcelState.UNKNOWN, reason="a command cannot be asked what became of it")

    async def test(self) -> str:
        """Whether there is such a program. It is not run."""
        program = self._arguments[0]
        found = await self._offload(shutil.which, program)
        if found is None:
            raise self._missing(program)
        return f"{found} can be run"

    async def _run(self, arguments: list[str]) -> ProgramResult:
        # As `test` finds it: the command has an empty environment, and so no PATH.
        program = await self._offload(shutil.which, arguments[0]) or arguments[0]
        try:
            return await run_program([program, *arguments[1:]], environment={}, folder=None, limits=self._limits)
        except OSError as error:
            raise self._no_start(error) from error

    def _receipt(self, ended: ProgramResult) -> ParcelStatus:
        words = self._last_output(ended)
        said = f", and said: {words}" if words else ""
        if ended.code is None:
            raise TargetInDoubt(f"the command took longer than {self._limits.timeout_s:g} s and was ended{said}")
        if ended.code < 0:
            raise TargetInDoubt(f"the command was ended by signal {-ended.code}{said}")
        if ended.code == LATER:
            raise TargetUnavailable(f"the command cannot take it now (exit code {LATER}){said}")
        if ended.code:
            raise TargetRefused(f"the command refused it (exit code {ended.code}){said}")
        return ParcelStatus(standing=ParcelState.DONE, reason=words or None)

    def _last_output(self, ended: ProgramResult) -> str:
        """The end of its output: there the reason stands."""
        line = shortened(ended.words, length_max=len(ended.words))
        return line if len(line) <= _SHOWN_MAX else f"…{line[-_SHOWN_MAX:]}"

    def _no_start(self, error: OSError) -> TargetError:
        program = self._arguments[0]
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return self._missing(program)
        why = error.strerror or type(error).__name__
        if error.errno == errno.E2BIG:
            return TargetRefused(f"{program} cannot be given an argument as long as this ({why})")
        if isinstance(error, PermissionError):
            return TargetMisconfigured(f"{program} may not be run ({why}); make it executable for Cormorant")
        return TargetUnavailable(f"{program} could not be started ({why})")

    @staticmethod
    def _missing(program: str) -> TargetMisconfigured:
        return TargetMisconfigured(f"there is no program {program}; write its whole path, or add its folder to PATH")


@asynccontextmanager
async def _scratch_file(parcel: Parcel, offload: Offload) -> AsyncIterator[str]:
    """The body of a parcel as a file, for as long as a command runs."""
    made: list[Path] = []

    def write() -> str:
        made.append(Path(tempfile.mkdtemp(prefix="cormorant-")))
        path = made[0] / f"{parcel.key}{_ENDINGS[parcel.kind]}"
        path.write_bytes(parcel.body or b"")
        return str(path)

    try:
        try:
            path = await offload(write)
        except OSError as error:
            raise trouble_with(Path(tempfile.gettempdir()), error) from error
        yield path
    finally:
        for folder in made:
            with trio.move_on_after(_CLEAN_UP_S, shield=True):
                await offload(shutil.rmtree, folder, True)  # noqa: FBT003 - ignore_errors, by place in a thread


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

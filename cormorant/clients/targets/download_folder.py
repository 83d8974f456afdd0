"""How is an enclosure fetched into a folder? Piece by piece into a part file, which gets its name only when it is a whole media file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2
import trio
from attrs import frozen

from cormorant.clients.http.retry_after import retry_after_s
from cormorant.clients.http.transport import Answer, AnswerTooLarge, FetchLimits, Transport
from cormorant.clients.targets.file_names import fill_template, template_problem
from cormorant.clients.targets.folders import Folder, PartFile, trouble_with
from cormorant.clients.targets.media import START_BYTES, media_ending, media_problem
from cormorant.clients.targets.parcels import refuse_false
from cormorant.rules.ports import Clock, Offload
from cormorant.rules.search.outcomes import SourceError, SourceRefused
from cormorant.rules.watch.handovers import (
    Parcel,
    ParcelKind,
    ParcelState,
    ParcelStatus,
    TargetError,
    TargetMisconfigured,
    TargetRefused,
    TargetUnavailable,
)

T = TypeVar("T")

NAMES: Final = ("watch", "feed", "artist", "album", "title", "date", "key")
"""What a template may name."""
_GOOD: Final = range(200, 300)
_FINAL: Final = range(400, 500)
_PASSING: Final = {408, 425, 429}
_WRITE_BYTES: Final = 1_000_000
_CLEAN_UP_S: Final = 10.0


@frozen(kw_only=True)
class DownloadOptions:
    """Under which name files are kept, and how large and slow one may be."""

    template: str = "{feed}/{title}"
    size_max_bytes: int = 2_000_000_000
    timeout_s: float = 3600.0
    idle_s: float = 60.0


class DownloadFolder:
    """A folder that enclosures are fetched into. Links come from feeds: give it a transport for which nothing is written."""

    takes: Final = frozenset({ParcelKind.URL})
    can_be_asked: Final = True

    def __init__(
        self,
        folder: Path,
        transport: Transport,
        *,
        offload: Offload,
        clock: Clock,
        options: DownloadOptions | None = None,
    ) -> None:
        self._options = options or DownloadOptions()
        problem = template_problem(self._options.template, known=NAMES)
        if problem is not None:
            raise TargetMisconfigured(f"the template {self._options.template!r} cannot be used: {problem}")
        self._folder = Folder(folder)
        self._transport = transport
        self._offload = offload
        self._clock = clock

    async def give(self, parcel: Parcel) -> ParcelStatus:
        """Fetch it. When this returns it is done; when it raises, or is cancelled, nothing is left of it."""
        await refuse_false(parcel, self.takes, name="a download folder", offload=self._offload)
        found = await self.look(parcel, None)
        if found.standing is not ParcelState.ABSENT:
            return found
        part = await self._in_thread(self._folder.begin, parcel.key)
        try:
            return await self._fetch(parcel, part)
        finally:
            # Nothing is left of what was given up; after success there is nothing to drop.
            with trio.move_on_after(_CLEAN_UP_S, shield=True):
                await self._in_thread(part.drop)

    async def look(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - the note holds all
        """Whether it was fetched. A file that was moved away since was."""
        placed = await self._in_thread(self._folder.find, parcel.key)
        if placed is None:
            return ParcelStatus(standing=ParcelState.ABSENT)
        return ParcelStatus(target_id=str(placed.path.relative_to(self._folder.root)), standing=ParcelState.DONE)

    async def test(self) -> str:
        """Write a file and remove it."""
        await self._in_thread(self._folder.check)
        return f"{self._folder.root} can be written to"

    async def _fetch(self, parcel: Parcel, part: PartFile) -> ParcelStatus:
        link = parcel.link or ""
        limits = FetchLimits(
            timeout_s=self._options.timeout_s,
            body_max_bytes=self._options.size_max_bytes,
            idle_s=self._options.idle_s,
        )
        sink = _FileSink(part, link, self._in_thread)
        try:
            answer = await self._transport.fetch_into(link, sink, limits=limits)
            self._refuse_status(answer)
            await sink.finish()
        except SourceError as error:
            raise _translated(error, self._options.size_max_bytes) from error
        parts = {"title": parcel.title, "key": parcel.key, **parcel.folder_parts}
        names = fill_template(self._options.template, parts)
        path = await self._in_thread(self._folder.place, part, names, sink.ending)
        return ParcelStatus(target_id=str(path.relative_to(self._folder.root)), standing=ParcelState.DONE)

    def _refuse_status(self, answer: Answer) -> None:
        if answer.status in _GOOD:
            return
        host = httpx2.URL(answer.url).host
        if answer.magnet is not None or (answer.status in _FINAL and answer.status not in _PASSING):
            raise TargetRefused(f"{host} does not give the file (HTTP {answer.status})")
        wait_s = retry_after_s(answer.headers.get("Retry-After"), now=self._clock.now())
        raise TargetUnavailable(f"{host} does not give the file now (HTTP {answer.status})", retry_after_s=wait_s)

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return await self._offload(work, *args)
        except OSError as error:
            raise trouble_with(self._folder.root, error) from error


class _FileSink:
    """Looks at the beginning, then writes in large pieces."""

    def __init__(self, part: PartFile, link: str, in_thread: Callable[..., Any]) -> None:
        self._part = part
        self._link = link
        self._in_thread = in_thread
        self._kept = bytearray()
        self._content_type = ""
        self._is_checked = False
        self.ending = ""

    async def begin(self, headers: httpx2.Headers) -> None:
        """The type is said here."""
        self._content_type = headers.get("Content-Type", "")

    async def take(self, piece: bytes) -> None:
        """Keep it until there is enough to be worth a thread."""
        self._kept += piece
        if len(self._kept) >= START_BYTES:
            self._check()
        if len(self._kept) >= _WRITE_BYTES:
            await self._write()

    async def finish(self) -> None:
        """Write the rest and make sure of it."""
        self._check()
        await self._write()
        await self._in_thread(self._part.finish)

    async def _write(self) -> None:
        kept, self._kept = bytes(self._kept), bytearray()
        await self._in_thread(self._part.write, kept)

    def _check(self) -> None:
        if self._is_checked:
            return
        start = bytes(self._kept[:START_BYTES])
        problem = media_problem(start, content_type=self._content_type, link=self._link)
        if problem is not None:
            raise TargetRefused(f"what the link leads to is not kept: {problem}")
        self.ending = media_ending(start, content_type=self._content_type, link=self._link)
        self._is_checked = True


def _translated(error: SourceError, size_max_bytes: int) -> TargetError:
    if isinstance(error, AnswerTooLarge):
        return TargetRefused(f"the file has more than {size_max_bytes:,} bytes; allow larger ones, or leave it out")
    if isinstance(error, SourceRefused):
        return TargetRefused(f"the file cannot be fetched: {error}")
    return TargetUnavailable(f"the file could not be fetched: {error}", retry_after_s=error.retry_after_s)

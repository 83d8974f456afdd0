"""Bounded, decompressed bodies."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Final, cast

PIECE_MAX: Final = 65_536
"""The largest piece that is made out of compressed bytes at once."""

_LENGTH: Final = re.compile(r"\d{1,18}", re.ASCII)
_GZIP: Final = zlib.MAX_WBITS | 16
_RAW: Final = -zlib.MAX_WBITS
_PLAIN: Final = frozenset({"", "identity"})
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class BodyTooLarge(Exception):
    """There is more than the limit; the rest was not read."""


class BodyUnreadable(Exception):
    """The body is not compressed as it claims to be."""


class Inflater:
    """Takes compressed bytes and gives plain ones in pieces of bounded size."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in _PLAIN and name not in _WINDOWS:
            raise BodyUnreadable("it has an encoding that was not asked for")
        self._window = _WINDOWS.get(name)
        self._is_fresh = True
        self._inflate = None if self._window is None else zlib.decompressobj(self._window)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The plain pieces that these bytes complete."""
        if self._inflate is None:
            yield data
            return
        while data and not self._inflate.eof:
            piece = self._piece(data)
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece

    def _piece(self, data: bytes) -> bytes:
        assert self._inflate is not None
        try:
            piece = self._inflate.decompress(data, PIECE_MAX)
        except zlib.error as error:
            if not self._is_fresh or self._window != zlib.MAX_WBITS:
                raise BodyUnreadable("it is not compressed as it claims to be") from error
            # "deflate" means zlib, but some servers send the bare stream.
            self._inflate = zlib.decompressobj(_RAW)
            self._is_fresh = False
            return self._piece(data)
        self._is_fresh = False
        return piece

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing at the end."""
        return self._inflate is None or self._inflate.eof or self._is_fresh


def refuse_length(stated: str, *, bytes_max: int) -> None:
    """Raise `BodyTooLarge` when a server announces too much. What it announces may be wrong: `read_body` counts."""
    if _LENGTH.fullmatch(stated) and int(stated) > bytes_max:
        raise BodyTooLarge


async def read_body(stream: AsyncIterable[bytes], *, encoding: str, bytes_max: int) -> bytes:
    """The plain body. Raises `BodyTooLarge` one byte past the limit, and `BodyUnreadable`."""
    body = bytearray()

    async def keep(piece: bytes) -> None:
        body.extend(piece)

    await stream_body(stream, keep, encoding=encoding, bytes_max=bytes_max)
    return bytes(body)


async def stream_body(
    stream: AsyncIterable[bytes], take: Callable[[bytes], Awaitable[None]], *, encoding: str, bytes_max: int
) -> None:
    """Give the plain body away piece by piece, never more than `bytes_max`. Raises as `read_body` does."""
    inflater = Inflater(encoding)
    given = 0
    # Closed by hand: an async generator left to the garbage collector cannot close its connection.
    async with aclosing(cast("AsyncGenerator[bytes]", aiter(stream))) as pieces:
        async for data in pieces:
            for piece in inflater.feed(data):
                given += len(piece)
                if given > bytes_max:
                    raise BodyTooLarge
                await take(piece)
    if not inflater.is_complete:
        raise BodyUnreadable("it ends before it is complete")

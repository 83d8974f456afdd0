"""How is a key kept that is too long? Cut, and still different from every other."""

from __future__ import annotations

import hashlib

__all__ = ["short_key"]


def short_key(key: str, most: int) -> str:
    """A key of at most so many characters; long ones that differ at their end alone stay different.

    >>> short_key("short", 60)
    'short'
    >>> len(short_key("x" * 99, 60)), short_key("x" * 99 + "a", 60) == short_key("x" * 99 + "b", 60)
    (60, False)
    """
    if len(key) <= most:
        return key
    told = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return f"{key[: most - len(told) - 1]}#{told}"

"""Can this be kept as the payload of a job?"""

from __future__ import annotations

import json
import re
from typing import Any

from cormorant.rules.errors import PayloadRefused

PAYLOAD_BYTES_MAX = 1_000_000

# A backslash that is itself escaped does not escape the u.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def checked_payload(payload: Any) -> str:
    """The payload as JSON text, or `PayloadRefused` with what is wrong.

    >>> checked_payload({"artist": "Boards of Canada"})
    '{"artist":"Boards of Canada"}'
    """
    try:
        text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"the payload cannot be kept as JSON: {error}") from error
    if len(text) > PAYLOAD_BYTES_MAX:
        size = len(text)
        raise PayloadRefused(
            f"the payload has {size:,} bytes, more than {PAYLOAD_BYTES_MAX:,}: keep it elsewhere and send its key"
        )
    if _NUL.search(text):
        raise PayloadRefused("the payload holds a NUL character, which no database here can keep: remove it")
    return text

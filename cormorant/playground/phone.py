"""Who is told in the playground? A phone that takes what Apprise sends as JSON, and keeps the last of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from attrs import define, field

_Reply = tuple[int, Mapping[str, str], bytes]


@define(kw_only=True)
class PhoneStandIn:
    """Takes everything; `GET` shows what came."""

    told: deque[Any] = field(factory=lambda: deque(maxlen=50))
    asked: list[str] = field(factory=list)

    def handle(
        self, method: str, path: str, _query: Mapping[str, str], _headers: Mapping[str, str], body: bytes
    ) -> _Reply:
        """Answer one request."""
        self.asked.append(f"{method} {path}")
        if method == "POST":
            said = json.loads(body)
            self.told.append({part: str(said[part]) for part in ("title", "message")})
        return 200, {"Content-Type": "application/json"}, json.dumps(list(self.told), indent=2).encode()

"""A receiver of webhooks: takes each key once and checks the signature."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from attrs import define, field

_Reply = tuple[int, Mapping[str, str], bytes]


@define(kw_only=True)
class WebhookStandIn:
    """Its state and its habits; the habits may be changed at any time."""

    secret: str = ""
    """If there is one, what is not signed with it is refused."""
    status: int = 200
    """What it answers; 5xx as a server that fails before it takes anything."""
    tells_repetitions: bool = False
    """Whether a key that came before is answered by 409 instead of as the first time."""
    taken: dict[str, Any] = field(factory=dict)
    asked: list[Mapping[str, str]] = field(factory=list)

    def handle(
        self, method: str, _path: str, _query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> _Reply:
        """Answer one request."""
        self.asked.append(headers)
        if method != "POST":
            return 405, {}, b""
        if self.secret and not self._is_signed(headers.get("x-cormorant-signature", ""), body):
            return 401, {}, b"the signature is wrong"
        if self.status not in range(200, 300):
            return self.status, {"Retry-After": "9"}, b"not now"
        key = headers.get("idempotency-key", "")
        if key in self.taken and self.tells_repetitions:
            return 409, {}, b"was here before"
        self.taken.setdefault(key, json.loads(body))
        return self.status, {}, b""

    def _is_signed(self, signature: str, body: bytes) -> bool:
        time, _, given = signature.removeprefix("t=").partition(",v1=")
        made = hmac.new(self.secret.encode(), f"{time}.".encode() + body, sha256).hexdigest()
        return hmac.compare_digest(made, given)

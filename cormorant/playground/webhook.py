"""A receiver of webhooks, and a phone that takes notifications."""

from __future__ import annotations

import hmac
import json
from collections import deque
from hashlib import sha256
from typing import Any

from attrs import define, field

from cormorant.playground.http import StandInRequest, StandInResponse, as_text, remember


@define(kw_only=True)
class WebhookStandIn:
    """Takes each key once and checks the signature. The habits may be changed at any time."""

    name: str = "webhook"
    secret: str = ""
    """If there is one, what is not signed with it is refused."""
    status: int = 200
    """What it answers; 5xx as a server that fails before it takes anything."""
    tells_repetitions: bool = False
    """Whether a key that came before is answered by 409 instead of as the first time."""
    taken: dict[str, Any] = field(factory=dict)
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.method != "POST":
            return StandInResponse(status=405)
        if self.secret and not self._is_signed(asked.headers.get("x-cormorant-signature", ""), asked.body):
            return as_text("the signature is wrong", status=401)
        if self.status not in range(200, 300):
            return StandInResponse(status=self.status, body=b"not now", headers={"Retry-After": "9"})
        key = asked.headers.get("idempotency-key", "")
        if key in self.taken and self.tells_repetitions:
            return as_text("was here before", status=409)
        self.taken.setdefault(key, json.loads(asked.body))
        return StandInResponse(status=self.status)

    def _is_signed(self, signature: str, body: bytes) -> bool:
        time, _, given = signature.removeprefix("t=").partition(",v1=")
        made = hmac.new(self.secret.encode(), f"{time}.".encode() + body, sha256).hexdigest()
        return hmac.compare_digest(made, given)


@define(kw_only=True)
class PhoneStandIn:
    """Takes notifications as Apprise sends them; `GET` shows what came."""

    name: str = "phone"
    told: deque[dict[str, str]] = field(factory=lambda: deque(maxlen=50))

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        if asked.method == "POST":
            said = json.loads(asked.body)
            self.told.append({part: str(said[part]) for part in ("title", "message")})
        return StandInResponse(kind="application/json", body=json.dumps(list(self.told), indent=2).encode())

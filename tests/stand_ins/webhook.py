"""A webhook that checks signatures and fails on demand."""

from __future__ import annotations

import hmac
from hashlib import sha256

from attrs import define
from typing_extensions import override

from cormorant.playground.http import StandInRequest, StandInResponse, as_text, remember
from cormorant.playground.world import WebhookStandIn


@define(kw_only=True)
class StrictWebhook(WebhookStandIn):
    """Its habits may be changed at any time."""

    secret: str = ""
    """If there is one, what is not signed with it is refused."""
    status: int = 200
    """What it answers; 5xx as a server that fails before it takes anything."""
    tells_repetitions: bool = False
    """Whether a key that came before is answered by 409 instead of as the first time."""

    @override
    async def answer(self, asked: StandInRequest) -> StandInResponse:
        refusal = self._refusal(asked)
        if refusal is None:
            return await super().answer(asked)
        remember(self.asked, asked)
        return refusal

    def _refusal(self, asked: StandInRequest) -> StandInResponse | None:
        if asked.method != "POST":
            return None
        if self.secret and not self._is_signed(asked.headers.get("x-cormorant-signature", ""), asked.body):
            return as_text("the signature is wrong", status=401)
        if self.status not in range(200, 300):
            return StandInResponse(status=self.status, body=b"not now", headers={"Retry-After": "9"})
        if self.tells_repetitions and asked.headers.get("idempotency-key", "") in self.taken:
            return as_text("was here before", status=409)
        return None

    def _is_signed(self, signature: str, body: bytes) -> bool:
        time, _, given = signature.removeprefix("t=").partition(",v1=")
        made = hmac.new(self.secret.encode(), f"{time}.".encode() + body, sha256).hexdigest()
        return hmac.compare_digest(made, given)

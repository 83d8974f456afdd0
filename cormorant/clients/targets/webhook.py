"""Webhook, its body and signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from cormorant.clients.http.transport import Transport
from cormorant.clients.targets.caller import RequestBody, TargetCaller, TargetRequest
from cormorant.clients.targets.target import refuse_false
from cormorant.rules.ports import Ports
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.watch import TargetSettings
from cormorant.rules.watch.handovers import Parcel, ParcelKind, ParcelState, ParcelStatus

SIGNATURE: Final = "X-Cormorant-Signature"
_NAME: Final = "the webhook"


class Webhook:
    """One address that is told, signed if there is a key for it.

    It cannot be asked; repeated with the same key it must do nothing.
    """

    takes: Final = frozenset(ParcelKind)
    can_be_asked: Final = False

    def __init__(self, settings: TargetSettings, transport: Transport, environment: Ports) -> None:
        self._secret = settings.key
        self._environment = environment
        self._caller = TargetCaller(_NAME, settings.url, transport, environment.clock, timeout_s=settings.timeout_s)
        self._caller.keep_secret([settings.key])
        self._caller.keep_path_secret()

    async def submit(self, parcel: Parcel) -> ParcelStatus:
        """Tell it. Any good answer counts, and so does 409: it has been told before."""
        await refuse_false(parcel, self.takes, name=_NAME, offload=self._environment.offload)
        body = await self._environment.offload(webhook_body, parcel)
        await self._send(body, {"Idempotency-Key": parcel.key}, gives=True)
        return ParcelStatus(standing=ParcelState.DONE)

    async def status(self, parcel: Parcel, receipt: ParcelStatus | None) -> ParcelStatus:  # noqa: ARG002 - nobody can be asked
        """It cannot be asked."""
        return ParcelStatus(standing=ParcelState.UNKNOWN, reason="a webhook cannot be asked what became of it")

    async def test(self) -> str:
        """Send a parcel of the kind "test", which the receiver should ignore."""
        await self._send(b'{"kind": "test", "version": 1}', {"Idempotency-Key": "test"}, gives=False)
        return "the webhook answers"

    async def _send(self, body: bytes, headers: Mapping[str, str], *, gives: bool) -> None:
        signed = {}
        if self._secret:
            at_s = int(self._environment.clock.now().timestamp())
            signed = {SIGNATURE: signature_of(body, at_s=at_s, secret=self._secret)}
        content = RequestBody(type="application/json", body=body)
        call = TargetRequest(path="", headers={**headers, **signed}, content=content, gives=gives)
        answer = await self._caller.call(call)
        if answer.status != HTTPStatus.CONFLICT:
            self._caller.refuse_status(answer, gives=gives)


VERSION = 1


def webhook_body(parcel: Parcel) -> bytes:
    """The parcel as JSON. The same bytes at every attempt."""
    said: dict[str, Any] = {
        "version": VERSION,
        "key": parcel.key,
        "title": parcel.title.encode("utf-8", "replace").decode(),
        "kind": parcel.kind.value,
        "link": parcel.link,
        "infohash": parcel.infohash,
        "parts": dict(parcel.folder_parts),
        "body_base64": None if parcel.body is None else base64.b64encode(parcel.body).decode("ascii"),
    }
    return json.dumps(said, sort_keys=True).encode("ascii")


def signature_of(body: bytes, *, at_s: int, secret: Secret) -> str:
    """Who knows the secret can make this, and nobody else. The time is signed too, so that old messages can be refused.

    >>> signature_of(b"{}", at_s=1, secret=Secret("x"))[:24]
    't=1,v1=481b3af1736163365'
    """
    digest = hmac.new(secret.reveal().encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={digest}"

"""What does a webhook say of a parcel, and how can its receiver tell that we said it?"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from cormorant.rules.secrets import Secret
from cormorant.rules.watch.handovers import Parcel

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

"""Is a body what it should be? A field that nobody reads is told, for it is most likely a typo."""

from __future__ import annotations

from typing import Any

import attrs

from cormorant.rules.searches import BadRequest

__all__ = ["refuse_unknown"]


def refuse_unknown(body: object, model: type[Any]) -> None:
    """Raise `BadRequest` for a field that the model has not."""
    known = sorted(attrs.fields_dict(model))
    unknown = sorted(set(body) - set(known)) if isinstance(body, dict) else []
    if unknown:
        raise BadRequest(str(unknown[0])[:40], f"there is no such field; there are {', '.join(known)}")

"""JSON bodies of requests: their nesting has a limit, and a field that no model has is refused, as it is most likely a typo."""

from __future__ import annotations

from typing import Any

import attrs
from litestar import Request
from typing_extensions import override

from cormorant.rules.json_documents import NestedTooDeep, check_nesting
from cormorant.rules.search.requests import BadRequest

__all__ = ["BoundedRequest", "refuse_unknown"]


class BoundedRequest(Request[Any, Any, Any]):
    """A request whose JSON cannot be nested too deep. Litestar reads every body through it."""

    @override
    async def json(self) -> Any:
        """The body. Raises `NestedTooDeep`."""
        try:
            body = await super().json()
        except RecursionError:
            raise NestedTooDeep from None
        check_nesting(body)
        return body


def refuse_unknown(body: object, model: type[Any]) -> None:
    """Raise `BadRequest` for a field that the model has not."""
    known = sorted(attrs.fields_dict(model))
    unknown = sorted(set(body) - set(known)) if isinstance(body, dict) else []
    if unknown:
        raise BadRequest(str(unknown[0])[:40], f"there is no such field; there are {', '.join(known)}")

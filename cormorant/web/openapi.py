"""The OpenAPI document."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import asdict
from litestar.connection import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from cormorant import __version__
from cormorant.rules.search.requests import CATEGORIES_MAX, KINDS, PARAMS_MAX, QUERY_LENGTH_MAX
from cormorant.web.api.clients import CLIENT_LIMITS
from cormorant.web.api.searches import WAIT_S_MAX
from cormorant.web.problems import PROBLEM_TYPE, ProblemDocument

__all__ = ["described", "openapi_config"]

_OPEN: Final = ("/health", "/ready")
_CODES: Final = {
    "400": "What was sent cannot be; `errors` names each field.",
    "401": "The key is missing or wrong.",
    "403": "A browser that is signed in asks from another page, or without the token of its session.",
    "404": "There is no such thing.",
    "409": "It is in a state in which that cannot be done.",
    "413": "The body is too large.",
    "429": "Too often, or too much waits; Retry-After says when to come back.",
    "503": "The database is away, or the service is starting or stopping.",
}
_MAY_CONFLICT: Final = (
    "/clients",
    "/clients/{name}",
    "/subscriptions",
    "/subscriptions/{watch}",
    "/subscriptions/{watch}/check",
)
_NAMED: Final = ("/api/v1/saved-searches/", "/api/v1/prices/")
"""Paths of watches whose names are like those of tables in the settings file."""
_TEXTS: Final = {"type": "string", "maxLength": QUERY_LENGTH_MAX, "pattern": "^[^\\u0000]*$"}
_BODY: Final = {
    "query": _TEXTS,
    "kind": {"type": "string", "enum": list(KINDS)},
    "categories": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": CATEGORIES_MAX},
    "params": {
        "type": "object",
        "maxProperties": PARAMS_MAX,
        # By their Torznab names, but for those that we write ourselves.
        "propertyNames": {"pattern": "^(?!(t|apikey|q|cat|offset|limit|extended|o)$)[a-z_][a-z0-9_]{0,39}$"},
        "additionalProperties": _TEXTS,
    },
    "priority": {"type": "string", "enum": ["interactive", "rss", "completion", "background"]},
    "max_wait_s": {"oneOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
    "wait_s": {"type": "number", "minimum": 0, "maximum": WAIT_S_MAX},
}
_NAME: Final = "^[a-z][a-z0-9_-]{0,39}$"
_CLIENT: Final = {"name": {"type": "string", "pattern": _NAME}} | CLIENT_LIMITS
_PRICE: Final = {"name": {"type": "string", "pattern": _NAME}, "currency": {"type": "string", "pattern": "^[A-Z]{3}$"}}
_NOON: Final = "2026-11-16T12:00:00Z"
_EXAMPLES: Final[Mapping[str, object]] = {
    "SearchBody": {"query": "boards of canada", "kind": "music", "categories": [3000], "wait_s": 20},
    "Health": {"status": "alive", "service": "cormorant"},
    "SchedulerOut": {
        "running": True,
        "total_jobs": 2,
        "active_checks": 0,
        "pending_jobs": 0,
        "next_run": _NOON,
        "concurrent_limit": 5,
    },
    "ScheduledListOut": {
        "jobs": [
            {"id": "maintenance", "name": "maintenance", "next_run": _NOON, "pending": False},
            {"id": "subscription_7", "name": "Check releases", "next_run": _NOON, "pending": False},
        ],
        "next_after": None,
    },
    "ExplanationOut": {
        "priority": "background",
        "lane": "query",
        "opens_at": _NOON,
        "gates": [{"name": "day", "opens_at": _NOON, "why": "100 of 100 queries per day are spent"}],
        "lines": ["waits for the limit per day until 12:00:00: 100 of 100 queries per day are spent"],
    },
    "Problem": asdict(
        ProblemDocument(
            title="Bad Request", status=400, detail="Validation failed", errors=("query: Expected `str`, got `int`",)
        )
    ),
}


class _Document(JsonRenderPlugin):
    """Renders the document, once."""

    _rendered: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002 - their signature
        """The document as JSON."""
        if self._rendered is None:
            self._rendered = json.dumps(described(openapi_schema)).encode()
        return self._rendered


def openapi_config() -> OpenAPIConfig:
    """What Litestar is told of the document."""
    return OpenAPIConfig(
        title="Cormorant",
        version=__version__,
        path="/api/v1",
        render_plugins=[_Document(path="/openapi.json")],
    )


def described(made: Mapping[str, Any]) -> dict[str, Any]:
    """The whole document: problems as they are told, keys, examples, and what a search may be."""
    document: dict[str, Any] = copy.deepcopy(dict(made))
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    for name, example in _EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    for name, properties in (("SearchBody", _BODY), ("ClientBody", _CLIENT), ("PriceBody", _PRICE)):
        if name in schemas:
            schemas[name]["properties"] |= properties
            schemas[name]["additionalProperties"] = False
    parts["securitySchemes"] = {
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    document["security"] = [{"key": []}, {"bearer": []}]
    for method, path, operation in _operations(document):
        _describe(method, path, operation)
    return document


_EVENT: Final = {
    "type": "object",
    "description": "One server-sent event; `data` is JSON.",
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}, "id": {"type": "string"}},
}
_PROBLEM: Final = {
    "type": "object",
    "description": "What is wrong (RFC 9457).",
    "properties": {
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "status", "detail", "errors"],
}


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict) and "responses" in operation:
                yield method, path, operation


def _describe(method: str, path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    for code in [code for code in responses if code >= "400"]:
        del responses[code]
    for code in _codes(method, path, operation):
        content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        responses[code] = {"description": _CODES[code], "content": content}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path" and (parameter["name"] == "name" or path.startswith(_NAMED)):
            parameter["schema"]["pattern"] = _NAME
    if path.endswith(("/stream", "/events")):
        responses["200"]["content"] = {"text/event-stream": {"schema": _EVENT}}
    if path.endswith(_OPEN) or (path.endswith("/session") and method in {"get", "post"}):
        operation["security"] = [{}]


def _codes(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    if operation.get("parameters") or operation.get("requestBody"):
        yield "400"
    if not path.endswith(_OPEN):
        yield "401"
    if method != "get":
        yield "403"
    if "{" in path or operation.get("requestBody"):
        yield "404"
    if "{job_id}" in path or path.endswith(_MAY_CONFLICT):
        yield "409"
    if operation.get("requestBody"):
        yield "413"
    yield from ("429", "503")

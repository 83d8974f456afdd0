"""Serves the page."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from attrs import frozen
from litestar import Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect

from cormorant.web.problems import AnyRequest, parts_of

__all__ = ["PAGE_POLICY", "page_routes"]

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from other hosts, nothing in line, and no text that becomes HTML: titles come from strangers."""

_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_OPEN: Final = {"open": True}


@frozen(kw_only=True)
class PageFile:
    """One file as it is sent."""

    content: bytes
    kind: str
    tag: str


def _read(folder: Path) -> dict[str, PageFile]:
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[path.name] = PageFile(content=content, kind=_TYPES[path.suffix], tag=tag)
    return found


# At import, and not when the first one asks: the loop never waits for a disk.
_FILES: Final = _read(Path(__file__).parent / "page")


@get("/", opt=_OPEN, include_in_schema=False)
async def index(request: AnyRequest) -> Response[bytes]:
    """The page. It holds nothing of anybody: what it shows is asked for by the browser, with the cookie."""
    base = parts_of(request).environment.settings.web.url_base
    if not _asked_path(request).endswith("/"):
        return Redirect(f"{base.rstrip('/')}/", status_code=308)  # what the page names is found relative to this
    return _answer(request, _FILES["index.html"])


@get("/page/{name:str}", opt=_OPEN, include_in_schema=False)
async def page_file(request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    """A part of the page."""
    file = _FILES.get(name)
    if file is None:
        raise NotFoundException(f"the page has no part {name[:40]!r}")
    return _answer(request, file)


def _asked_path(request: AnyRequest) -> str:
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.decode("latin-1").partition("?")[0]


def _answer(request: AnyRequest, file: PageFile) -> Response[bytes]:
    # Asked for each time and sent only when it has changed: after an update nobody has half of the old page.
    headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Content-Security-Policy": PAGE_POLICY}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if file.tag in known:
        return Response(b"", status_code=304, headers=headers, media_type=file.kind)
    return Response(file.content, headers=headers, media_type=file.kind)


def page_routes() -> Router:
    """The addresses of this file."""
    return Router("/", route_handlers=[index, page_file])

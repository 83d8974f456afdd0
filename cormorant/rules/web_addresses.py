"""Is this the address of a site or of a proxy, and do two addresses mean the same site?

Invariant: no message holds any part of an address: people paste keys into them.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from urllib.parse import SplitResult, urlsplit

__all__ = ["feed_address_problem", "is_for_good", "normalised", "proxy_problem", "web_address_problem"]

_PORTS = {"http": 80, "https": 443}
_PROXIES = ("http", "https")
_FOR_GOOD = (301, 308)
FEED_LENGTH_MAX = 4_000
_LABEL = r"[^\s:./\\@?#%<>\"'`^{|}\[\]]+"
_HOST = re.compile(rf"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|{_LABEL}(?:\.{_LABEL})*\.?)(?::[0-9]{{1,5}})?")


def web_address_problem(text: str) -> str | None:
    """Why text is not the address of a site.

    >>> web_address_problem("http://prowlarr:9696/1/api")
    >>> web_address_problem("https://me:hunter2@tracker.example/")
    'a user or password stands before the host; leave it out, what the site asks for belongs into key'
    """
    parts = _parts(text)
    if parts is None or parts.scheme not in _PORTS:
        return "it is not the address of a site; write http:// or https://, a host and a path, such as http://prowlarr:9696/1/api"
    if "@" in parts.netloc:
        return "a user or password stands before the host; leave it out, what the site asks for belongs into key"
    if "?" in text or "#" in text:
        return "a ? or # stands in it; end it before that, what the site asks for belongs into key"
    return None


def feed_address_problem(text: str) -> str | None:
    """Why text is not the address of a feed. It may have a query, a user and a password: feeds often carry their key so.

    >>> feed_address_problem("https://me:hunter2@tracker.example/rss?passkey=abc")
    >>> feed_address_problem("feed://tracker.example/rss")
    'it is no address of http or https; write one like https://example.org/feed.xml'
    """
    if len(text) > FEED_LENGTH_MAX:
        return f"the address has more than {FEED_LENGTH_MAX:,} characters"
    parts = _parts(text)
    if parts is None or parts.scheme not in _PORTS:
        return "it is no address of http or https; write one like https://example.org/feed.xml"
    return None


def proxy_problem(text: str) -> str | None:
    """Why text is not the address of a proxy. A proxy may want a user and a password.

    >>> proxy_problem("http://me:hunter2@gate:3128")
    >>> proxy_problem("gate:1080")
    'it is not the address of a proxy; write http or https, :// and a host, such as http://gate:3128'
    """
    parts = _parts(text)
    if parts is None or parts.scheme not in _PROXIES or parts.path.strip("/") or parts.query or parts.fragment:
        kinds = " or ".join(_PROXIES)
        return f"it is not the address of a proxy; write {kinds}, :// and a host, such as http://gate:3128"
    return None


def normalised(address: str) -> str:
    """The same text for every way to write an address that `web_address_problem` accepts.

    >>> normalised("HTTP://Tracker.Example:80/api/"), normalised("http://tracker.example/api")
    ('http://tracker.example/api', 'http://tracker.example/api')
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host.removesuffix(".")
    port = "" if parts.port in {None, _PORTS.get(parts.scheme)} else f":{parts.port}"
    return f"{parts.scheme}://{shown}{port}{parts.path.rstrip('/')}"


def is_for_good(status: int, *, old: str, new: str) -> bool:
    """Whether a redirect from one scheme to another is remembered. Never one that gives up encryption: anybody can say what follows.

    >>> [is_for_good(301, old=old, new=new) for old, new in (("http", "https"), ("http", "http"), ("https", "http"))]
    [True, True, False]
    """
    return status in _FOR_GOOD and (old, new) != ("https", "http")


def _parts(text: str) -> SplitResult | None:
    """The parts of an address that has a host; None when it has not the form of one."""
    if any(letter.isspace() or not letter.isprintable() for letter in text) or "\\" in text:
        return None
    try:
        parts = urlsplit(text)
        found = _HOST.fullmatch(parts.netloc.rpartition("@")[2])
        if found is None or parts.port == 0:
            return None
        if found["ipv6"]:
            IPv6Address(found["ipv6"])
    except ValueError:  # a port or a host that cannot be
        return None
    return parts

"""Database URLs, site and proxy addresses, listen addresses: read, checked, shown without secrets.

Invariant: no message holds any part of an address: people paste keys into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

from attrs import frozen

from cormorant.rules.secrets import SECRET_NAME, Secret

FORMS = "write sqlite:///folder/file.db or postgresql://user@host/name"

_PORT_MAX = 65_535
_IN_MEMORY = {"", ":memory:"}

# What may be shown of a query. All else may be a secret, or one whose name is misspelt.
_SHOWN = {"host", "hostaddr", "port", "dbname", "user", "sslmode", "application_name", "connect_timeout"}

_ADDRESS = re.compile(
    r"""
    (?P<kind>[A-Za-z][A-Za-z0-9_+]*)://
    (?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?
    (?:\[(?P<ipv6>[^/?\]]+)\]|(?P<host>[^/:?\[][^/:?]*))?
    (?::(?P<port>[0-9]+))?
    (?:/(?P<database>[^?]*))?
    (?:\?(?P<query>.*))?
    """,
    re.VERBOSE | re.DOTALL,
)


@frozen(kw_only=True)
class DatabaseUrl:
    """The parts of an address as they are written; those that are missing are empty."""

    kind: str
    user: str
    password: Secret
    host: str
    port: str
    database: str
    query: Secret

    @property
    def is_sqlite(self) -> bool:
        """Whether it names a file, or a database in memory."""
        return self.kind.partition("+")[0] == "sqlite"


def read_address(text: str) -> DatabaseUrl | None:
    """The parts of an address, or None when it has not the form of one.

    >>> read_address("postgresql://me:hun%2Fter2@db:5432/birds")
    DatabaseUrl(kind='postgresql', user='me', password=***, host='db', port='5432', database='birds', query='')
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    if found["user"] is None and "@" in text.partition("://")[2].partition("/")[0]:
        return None  # SQLAlchemy would take what stands before it for a user
    part = {name: value or "" for name, value in found.groupdict().items()}
    password, query, ipv6 = Secret(part.pop("password")), Secret(part.pop("query")), part.pop("ipv6")
    return DatabaseUrl(**part | {"host": ipv6 or part["host"]}, password=password, query=query)


def address_problem(text: str) -> str | None:
    """Why an address cannot mean what was meant, without any part of it.

    >>> address_problem("postgresql://me:hunter@2@db/birds")
    'an @ stands where none can be; in a user or password write %40 for @, %2F for / and %3A for :'
    """
    address = read_address(text)
    if address is None or int(address.port or 0) > _PORT_MAX:
        return f"it is not the address of a database; {FORMS}"
    if "@" in address.host or ("@" in address.database and not address.is_sqlite):
        return "an @ stands where none can be; in a user or password write %40 for @, %2F for / and %3A for :"
    return None


def shown_address(text: str) -> str:
    """An address for people: no password, and nothing that could be one. Of what cannot be read only the kind.

    >>> shown_address("postgresql://me:hunter2@db/birds?sslmode=require&sslpassword=x")
    'postgresql://me:***@db/birds?sslmode=require&***'
    >>> shown_address("postgresql:/me:hunter2@db/birds")
    'postgresql:…'
    """
    address = read_address(text)
    if address is None or address_problem(text):
        kind = re.match(r"(?:sqlite|postgres(?:ql)?)\b", text)
        return f"{kind[0]}:…" if kind else "…"
    password = ":***" if address.password else ""
    at = "@" if address.user or password else ""
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = f":{address.port}" if address.port else ""
    database = f"/{address.database}" if address.database else ""
    return f"{address.kind}://{address.user}{password}{at}{host}{port}{database}{_shown_query(address)}"


def _shown_query(address: DatabaseUrl) -> str:
    pairs = address.query.reveal().split("&") if address.query else []
    shown = [pair if pair.partition("=")[0] in _SHOWN else "***" for pair in pairs]
    return f"?{'&'.join(shown)}" if shown else ""


def passwords_in(text: str) -> Iterator[Secret]:
    """Every password in an address, in each way it may show up alone: as written, decoded, encoded."""
    address = read_address(text)
    if address is None or address_problem(text):
        # What stands between the first colon and the last @ may be one, and so may be each part of it.
        doubtful = re.match(r"\w+:/*[^:]*:(.*)@", text, re.DOTALL)
        parts = [doubtful[1], *re.split(r"[@/:]", doubtful[1])] if doubtful else []
        yield from _spellings(parts)
        return
    pairs = [pair.partition("=") for pair in address.query.reveal().split("&")]
    yield from _spellings([address.password.reveal(), *(value for name, _, value in pairs if SECRET_NAME.search(name))])


def _spellings(passwords: Iterable[str]) -> Iterator[Secret]:
    spellings = [(text, unquote(text), unquote_plus(text), quote(unquote(text), safe="")) for text in passwords if text]
    yield from (Secret(text) for text in dict.fromkeys(text for each in spellings for text in each))


def sqlite_file(text: str) -> str | None:
    """The path of the SQLite file that an address names; None when it names anything else.

    >>> sqlite_file("sqlite:////srv/50%25%3F.db"), sqlite_file("sqlite://"), sqlite_file("postgresql:///x")
    ('/srv/50%?.db', None, None)
    """
    address = read_address(text)
    if address is None or not address.is_sqlite or address.host or address.query or address.database in _IN_MEMORY:
        return None
    return unquote(address.database)


def sqlite_address(path: str, *, kind: str = "sqlite") -> str:
    """The address of a SQLite file, whatever characters its path has.

    >>> sqlite_address("/srv/50%?.db")
    'sqlite:////srv/50%25%3F.db'
    """
    # Nothing else has a meaning there, and a path that is no valid Unicode could not be encoded whole.
    return f"{kind}:///{path.replace('%', '%25').replace('?', '%3F')}"


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


_LISTEN_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}|localhost)):([0-9]{1,5})")
_LISTEN_PORT_MAX = 65_535
_BASE = re.compile(r"(?:/[A-Za-z0-9._~-]{1,40}){0,8}/?")


@frozen
class ListenAddress:
    """An address of this machine and a port. Port 0: whichever is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ip_address(self.host).is_loopback

    @property
    def shown(self) -> str:
        """As people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """The address that a text means, or a ValueError.

    >>> parse_listen_address("localhost:7979").shown, parse_listen_address("[::]:80").is_loopback
    ('127.0.0.1:7979', False)
    >>> parse_listen_address("7979")
    Traceback (most recent call last):
    ValueError: it is not an address to listen on; write an IP address and a port, such as "127.0.0.1:7979"
    """
    problem = 'it is not an address to listen on; write an IP address and a port, such as "127.0.0.1:7979"'
    found = _LISTEN_ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > _LISTEN_PORT_MAX:
        raise ValueError(problem)
    host = found[1] or ("127.0.0.1" if found[2] == "localhost" else found[2])
    try:
        ip_address(host)
    except ValueError:
        raise ValueError(problem) from None
    return ListenAddress(host, int(found[3]))


def parse_url_base(text: str) -> str:
    """The path before all of ours, or a ValueError.

    >>> parse_url_base("/"), parse_url_base("/tools/cormorant/")
    ('/', '/tools/cormorant')
    """
    if not text.startswith("/") or not _BASE.fullmatch(text):
        raise ValueError('it is not the beginning of a path; write one like "/" or "/cormorant"')
    return text.rstrip("/") or "/"

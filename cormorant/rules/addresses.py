"""What does the address of a database say, and what of it may be shown? It is read as SQLAlchemy reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote, unquote_plus

from attrs import frozen

from cormorant.rules.secrets import SECRET_NAME, Secret

__all__ = [
    "DatabaseUrl",
    "address_problem",
    "passwords_in",
    "read_address",
    "shown_address",
    "sqlite_address",
    "sqlite_file",
]

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

"""Secret, redaction of keys in text and links, and SecretFilter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from attrs import frozen
from typing_extensions import override

SECRET_LENGTH_MIN = 4
"""Hiding "a" wherever it stands would leave nothing to read, and whoever has such a secret has none."""

_NAMES = "password|passwd|passphrase|passkey|api_?key|token|secret"
SECRET_NAME = re.compile(rf"(?:{_NAMES})$", re.IGNORECASE)
"""The end of a name whose value is nobody's business."""

# What stands before the password in an address. Not the host before a port: "http://host:8080/users/me@x" holds no password.
_URL_USER = re.compile(r":/{1,2}[^\s:/@]{0,200}+(?=:(?![0-9]{1,5}/))")
_URL_PASSWORD_MAX = 500
_SPACE = re.compile(r"\s")
_NAMED_PASSWORD = re.compile(
    rf"((?:{_NAMES})=)" r"(?:'(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s&;,'\")]+)",
    re.IGNORECASE,
)


class Secret:
    """Text that shows itself as `***` wherever it is printed, logged or formatted."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that needs it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    @override
    def __hash__(self) -> int:
        return hash((Secret, self._text))

    @override
    def __repr__(self) -> str:
        return "***" if self._text else "''"

    @override
    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @override
    def __str__(self) -> str:
        return "***" if self._text else ""


def redact_passwords(text: str) -> str:
    """The same text, with what looks like a password in an address or a connection string hidden.

    >>> redact_passwords("cannot reach postgresql://me:hunter2@db/cormorant?sslpassword=x")
    'cannot reach postgresql://me:***@db/cormorant?sslpassword=***'
    >>> redact_passwords("host=db password=hunter2 user=me")
    'host=db password=*** user=me'
    """
    if "@" in text:
        text = _redact_url_passwords(text)
    return _NAMED_PASSWORD.sub(r"\1***", text) if "=" in text else text


def _redact_url_passwords(text: str) -> str:
    """Replace what stands between each `://user:` and the last @ of the next 500 characters, up to the next space.

    By hand: as one pattern it reads these 500 characters twice for each of many `:/` close to each other.
    """
    shown: list[str] = []
    done, space = 0, -1
    for user in _URL_USER.finditer(text):
        begin = user.end() + 1
        if user.start() < done:
            continue
        if space < begin:
            found = _SPACE.search(text, begin)
            space = found.start() if found else len(text)
        at = text.rfind("@", begin, min(begin + _URL_PASSWORD_MAX + 1, space))
        if at >= 0:
            shown += (text[done:begin], "***")
            done = at
    return "".join([*shown, text[done:]])


def redact_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """The same text, with these secrets and anything that looks like a password hidden.

    >>> redact_secrets("GET /api?key=hunter2 refused", [Secret("hunter2")])
    'GET /api?key=*** refused'
    """
    for secret in _longest_first(secrets):
        text = text.replace(secret, HIDDEN)
    return redact_passwords(text)


def _longest_first(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """The longest first: a shorter one inside it would leave the rest of it to be read. Those too short to be hidden are left out."""
    texts = {secret.reveal() for secret in secrets}
    return tuple(sorted((text for text in texts if len(text) >= SECRET_LENGTH_MIN), key=len, reverse=True))


def secret_texts(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """Every spelling of these secrets that is hidden in a text, in the order in which it is."""
    return _longest_first(spellings(secrets))


HIDDEN = "***"

# The names under which indexers put keys into links.
_KEY_NAMES = (
    "api|apikey|api_key|jackett_apikey|auth|authkey|auth_key|hash_key|key|passkey|pass_key|password|pass|passwd|passid|pid"
    "|r|rss|rsskey|rss_key|rsstoken|secret|secret_key|secure_key|sid|session|signature|sig|tk|token|access_token"
    "|torrent_pass|torrentpass|uk|user|username|ukey|userkey"
)
_KEY_PARAM = re.compile(rf"(?<=[?&;])((?:amp;)?(?:{_KEY_NAMES})=)[^&#\s;]+", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]*@")
# It also matches a part without a value: the search then goes on behind it and not at each `?` and `;` in it.
_PART = re.compile(r"(?<=[?&;])([^=&#\s]*+)(=?+)[^&#\s]*+")
# A part of a path that is long and means nothing to a reader may be a key.
_PATH_KEY = re.compile(r"(?<=/)(?=[^/?#\s]*\d)[0-9A-Za-z_-]{20,}(?=[/?#.]|$)")
_ESCAPE = re.compile(r"%[0-9A-F]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SHOWN_MAX = 300
# What is shorter stands in honest text, too: hiding "1" would leave little to read.
_KEY_LENGTH_MIN = 5
KEYS_MAX = 100
"""A link with more keys than these is no honest one. A server can redirect to a link with thousands."""


def redact_keys(text: str) -> str:
    """The same link or guid, with the values of parameters that carry keys hidden. It still tells finds apart.

    >>> redact_keys("https://x.org/dl.php?action=download&authkey=a1&torrent_pass=b2&id=30689")
    'https://x.org/dl.php?action=download&authkey=***&torrent_pass=***&id=30689'
    >>> redact_keys("1166992-9d438d94dc7fc934b801439f4c05458b")
    '1166992-9d438d94dc7fc934b801439f4c05458b'
    """
    if "=" not in text and "@" not in text:
        return text
    return _KEY_PARAM.sub(rf"\1{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))


def redact_link(link: str) -> str:
    """A link for people and logs: host and path, no value of the query, no part of the path that could be a key.

    >>> redact_link("http://prowlarr:9696/1/download?apikey=abc&link=xyz&file=Name")
    'http://prowlarr:9696/1/download?apikey=***&link=***&file=***'
    >>> redact_link("https://x.org/rss/0123456789abcdef0123456789abcdef/name.torrent")
    'https://x.org/rss/***/name.torrent'
    """
    if link.startswith("magnet:"):
        return "magnet:…"
    redact = _PART.sub(_without_value, _USER_INFO.sub(f"{HIDDEN}@", link))
    redact = _PATH_KEY.sub(HIDDEN, redact)
    return redact if len(redact) <= _SHOWN_MAX else f"{redact[:_SHOWN_MAX]}…"


def _without_value(part: re.Match[str]) -> str:
    return f"{part[1]}={HIDDEN}" if part[2] else part[1]


def keys_in(link: str, *, in_path: bool = True) -> tuple[Secret, ...]:
    """What in a link is secret: the values of parameters that carry keys, a password, parts of the path that could be keys.

    At most `KEYS_MAX` of them: every text beside the link is searched for each.

    >>> [secret.reveal() for secret in keys_in("https://me:hunter2@x.org/rss/0123456789abcdef0123456789abcdef?passkey=a1b2c3d4")]
    ['a1b2c3d4', '0123456789abcdef0123456789abcdef', 'hunter2', 'me:hunter2']
    """
    values = [found[0].partition("=")[2] for found in _KEY_PARAM.finditer(link)]
    user = [found[0][:-1] for found in _USER_INFO.finditer(link)]
    passwords = [text.partition(":")[2] for text in user]
    found = [*values, *(_PATH_KEY.findall(link) if in_path else ()), *passwords, *user]
    long_enough = dict.fromkeys(text for text in found if len(text) >= _KEY_LENGTH_MIN)
    return tuple(Secret(text) for text in islice(long_enough, KEYS_MAX))


def spellings(secrets: Iterable[Secret]) -> tuple[Secret, ...]:
    """Every way in which these secrets may show up in text: as they are, encoded for a URL, escaped for XML.

    >>> [secret.reveal() for secret in spellings([Secret("a/b&c")])]
    ['a/b&c', 'a%2Fb%26c', 'a/b%26c', 'a%2fb%26c', 'a/b&amp;c']
    """
    found = (spelling for secret in secrets for spelling in _spellings(secret.reveal()))
    return tuple(Secret(text) for text in dict.fromkeys(found) if text)


def _spellings(text: str) -> Iterator[str]:
    encoded = quote(text, safe="", errors="replace")
    yield from (text, encoded, quote(text, errors="replace"), _lower_escapes(encoded))
    yield from (quote_plus(text, errors="replace"), unquote(text), unquote_plus(text))
    yield from (escape(text), escape(text, quote=False))


def _lower_escapes(text: str) -> str:
    return _ESCAPE.sub(lambda found: found[0].lower(), text)


def shortened(text: str, secrets: Iterable[Secret] = (), *, length_max: int = 200) -> str:
    r"""What a server said, fit for a message: one line, not too long, no secret.

    >>> shortened("Bad key\r\n hunter2", [Secret("hunter2")])
    'Bad key ***'
    """
    known = tuple(secrets)
    line = " ".join(_CONTROL.sub(" ", redact_secrets(text, known)).split())
    # Once more: a line break inside a secret has become the space that belongs there.
    line = redact_keys(redact_secrets(line, known))
    return line if len(line) <= length_max else f"{line[:length_max]}…"


@frozen
class SecretFilter:
    """Every spelling of the secrets of one source, the longest first: a shorter one may be a part of it."""

    texts: tuple[str, ...]

    def shows(self, text: str) -> bool:
        """Whether a secret is in a text."""
        return any(each in text for each in self.texts)

    def redact(self, text: str) -> str:
        """The text without secrets."""
        for each in self.texts:
            if each in text:
                text = text.replace(each, HIDDEN)
        return text


NO_SCREEN = SecretFilter(())


def secret_filter_of(key: Secret, proxy: Secret) -> SecretFilter:
    """Hides the key and the proxy of a source."""
    return SecretFilter(secret_texts([key, proxy]))

"""What must never be seen? Secrets, and text that may hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from typing_extensions import override

__all__ = ["SECRET_LENGTH_MIN", "SECRET_NAME", "Secret", "hide_passwords", "hide_secrets"]

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


def hide_passwords(text: str) -> str:
    """The same text, with what looks like a password in an address or a connection string hidden.

    >>> hide_passwords("cannot reach postgresql://me:hunter2@db/cormorant?sslpassword=x")
    'cannot reach postgresql://me:***@db/cormorant?sslpassword=***'
    >>> hide_passwords("host=db password=hunter2 user=me")
    'host=db password=*** user=me'
    """
    if "@" in text:
        text = _hide_url_passwords(text)
    return _NAMED_PASSWORD.sub(r"\1***", text) if "=" in text else text


def _hide_url_passwords(text: str) -> str:
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


def hide_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """The same text, with these secrets and anything that looks like a password hidden.

    >>> hide_secrets("GET /api?key=hunter2 refused", [Secret("hunter2")])
    'GET /api?key=*** refused'
    """
    # The longest first: a shorter one inside it would leave the rest of it to be read.
    for secret in sorted({secret.reveal() for secret in secrets}, key=len, reverse=True):
        if len(secret) >= SECRET_LENGTH_MIN:
            text = text.replace(secret, "***")
    return hide_passwords(text)

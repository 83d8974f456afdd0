"""Sends a notification by Apprise, in a subprocess that can be killed."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from cormorant.clients.subprocesses import ProgramResult, RunLimits, run_program
from cormorant.rules.errors import CormorantError
from cormorant.rules.notices import Message
from cormorant.rules.secrets import Secret, redact_secrets

if TYPE_CHECKING:
    from types import ModuleType


CONNECT_S: Final = 5.0
READ_S: Final = 10.0

_SECRET_LENGTH_MIN: Final = 6
"""Of a part of an address; a password is hidden from half of that on."""
_WORDS_MAX: Final = 300


class NotTold(CormorantError):
    """A service did not take a notification. Another attempt may work."""


def address_problem(address: str) -> str | None:
    """Why Apprise cannot use an address, without the address; None: it can. Nothing is sent."""
    apprise = _loaded()
    scheme, found, _ = address.partition("://")
    if not found or not scheme.isascii() or not scheme.replace("+", "").isalnum():
        return "it has no service in front; write it like ntfy://my-topic or tgram://token/chat"
    if apprise.Apprise.instantiate(address, suppress_exceptions=True) is not None:
        return None
    known = {each.lower() for each in apprise.plugins.N_MGR.schemas()}
    if scheme.lower() not in known:
        return f"Apprise knows no service {scheme.lower()}://; https://appriseit.com/services/ lists them"
    return f"Apprise cannot read the rest of a {scheme.lower()}:// address; https://appriseit.com/services/ shows how"


def send(address: str, message: Message) -> None:
    """Send a message, or raise `NotTold` with what the service said. Blocks, each step within its time-out.

    All of it together has none, as a service may answer byte by byte for ever: `send_in_subprocess` has.
    """
    apprise = _loaded()
    service = apprise.Apprise.instantiate(address, suppress_exceptions=True)
    if service is None:
        raise NotTold("Apprise cannot use the address; look at notify.apprise")
    service.socket_connect_timeout, service.socket_read_timeout = CONNECT_S, READ_S
    service.service_retry = 0  # the job is tried again, after a longer time
    heard = _AppriseLog()
    logger = logging.getLogger("apprise")
    logger.addHandler(heard)
    began = time.monotonic()
    try:
        # As text: titles are what others wrote, and no markup of theirs is to work.
        is_told = service.notify(body=message.body, title=message.title, body_format=apprise.NotifyFormat.TEXT)
    finally:
        logger.removeHandler(heard)
    if not is_told:
        said = heard.words or f"no word of why, after {time.monotonic() - began:.1f} s"
        raise NotTold(f"{service.service_name} did not take it: {_hidden(said, service, address)}")


def _hidden(words: str, service: Any, address: str) -> str:
    """What was said, without the address and what is secret in it."""
    parts = {part for text in (address, unquote(address)) for part in re.split(r"[/?@:&=,]", text)}
    long = [Secret(part) for part in (address, str(service.url()), *parts) if len(part) >= _SECRET_LENGTH_MIN]
    password = str(service.password or "")
    long += [Secret(password)] if len(password) >= _SECRET_LENGTH_MIN / 2 else []
    return " ".join(redact_secrets(words, long).split())[:_WORDS_MAX]


class _AppriseLog(logging.Handler):
    """Keeps the last that Apprise has to say."""

    words = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.words = record.getMessage()


@cache
def _loaded() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its plugins load what Python will not have for ever; that is their business
        import apprise  # noqa: PLC0415 - most never need it

        apprise.Apprise.instantiate("json://127.0.0.1")  # loads the plugins
    # What it logs holds addresses; what matters of it is in `NotTold`.
    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return apprise


TELL_S: Final = 45.0
"""All that one notification may take, with loading Apprise, however slowly a service answers."""
_ORPHANED_S: Final = 5
"""So much longer it may live if we were killed and cannot end it."""
_SELF: Final = "cormorant.clients.apprise"
_MARK: Final = "told: "
_GRACE_S: Final = 0.5

Tell = Callable[[str, Message], Awaitable[None]]
"""Tells a person at an address, or raises `NotTold`."""


async def send_in_subprocess(address: str, message: Message, *, within_s: float = TELL_S) -> None:
    """Send a message, or raise `NotTold`. However it ends, nothing of it goes on afterwards."""
    said = {"address": address, "title": message.title, "body": message.body, "within_s": within_s}
    # The modules that we have, and none that lies in the folder we happen to be in.
    places = os.pathsep.join(place for place in sys.path if place)
    try:
        ended = await run_program(
            [sys.executable, "-P", "-m", _SELF],
            environment={**os.environ, "PYTHONPATH": places},
            folder=None,
            limits=RunLimits(timeout_s=within_s, grace_s=_GRACE_S),
            fed=json.dumps(said).encode(),
        )
    except OSError as error:
        raise NotTold(f"the process that sends could not be started: {error.strerror}") from error
    problem = _problem(ended, within_s)
    if problem is not None:
        raise NotTold(problem)


def _problem(ended: ProgramResult, within_s: float) -> str | None:
    if ended.code is None:
        return f"the service had not taken it after {within_s:g} s"
    last = [line for line in ended.words.splitlines() if line.startswith(_MARK)]
    if ended.code or not last:
        # What it said besides may hold the address.
        return f"the process that sends ended with {ended.code} and did not say why"
    problem: str | None = json.loads(last[-1].removeprefix(_MARK))
    return problem


def _main() -> None:
    said = json.load(sys.stdin)
    # Ends this process whatever it is doing, also when nobody is left who would.
    signal.alarm(math.ceil(said["within_s"]) + _ORPHANED_S)
    problem = None
    try:
        send(said["address"], Message(title=said["title"], body=said["body"]))
    except NotTold as error:
        problem = str(error)
    sys.stdout.write(f"\n{_MARK}{json.dumps(problem)}\n")


if __name__ == "__main__":
    _main()

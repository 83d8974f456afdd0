"""The first settings file, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import attrs
from attrs import frozen

from cormorant.cli.console.command_line import UsageRefused, display_path, parsed_setting
from cormorant.rules.addresses import parse_listen_address
from cormorant.rules.errors import KeyUnusable, SettingsError
from cormorant.rules.ports import ignore
from cormorant.rules.settings.service import WebSettings
from cormorant.rules.settings.settings import Settings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.units import as_written, zone_of
from cormorant.services.keys import kept_key
from cormorant.settings import load_settings

__all__ = ["FirstSettings", "WrittenFile", "check_prowlarr", "refuse_to_replace", "time_zone_here", "write"]

_TEMPLATE: Final = """\
# Cormorant: one gate between your apps and the sites that can ban them.
#
# What is not set has a good default. All settings: docs/settings.md
# The environment wins over this file: CORMORANT_LOG__LEVEL=debug sets level under [log].

data = {data}
time_zone = {time_zone}

[web]
listen = {listen}
{key}
# Sites, with the words of `cormorant sources add NAME URL`, which needs no line here:
# [sources.redacted]
# kind = "torznab"                 # or "newznab"
# url = "http://prowlarr:9696/1/api"
# key = {{ env = "REDACTED_KEY" }}   # or {{ file = "/run/secrets/redacted" }}
# limits = "private"               # or "default", or a [limits.NAME] of your own
# per_day = 300                    # refines it

# Apps, with the words of `cormorant clients add NAME`, which needs no line here either:
# [clients.sonarr]
# priority = "completion"          # or "interactive", "background"
# share = "25%"                    # of what a source allows in an hour, a day or a month
# hold = "60s"                     # a search waits so long for its turn

# Everything is kept in the data folder. For several machines take PostgreSQL:
# [storage]
# url = {{ env = "DATABASE_URL" }}   # postgresql://cormorant:…@db.example/cormorant
"""
_NO_KEY: Final = '# key = {{ env = "CORMORANT_KEY" }}  # not set: made at the first start, kept in {file}\n'
_KEY: Final = "key = {{ file = {file} }}  # other machines reach this address\n"


@frozen(kw_only=True)
class FirstSettings:
    """The few things that are asked."""

    data: str = "data"
    listen: str = WebSettings().listen
    time_zone: str = "UTC"

    @classmethod
    def usual(cls) -> Self:
        """What fits most, on this machine."""
        return cls(time_zone=time_zone_here())

    @staticmethod
    def questions() -> Iterator[tuple[str, str]]:
        """What is asked, in order."""
        yield "data", "Folder for what is kept"
        yield "listen", "Address of the server; 0.0.0.0:7979 for all machines"
        yield "time_zone", "Time zone"

    def with_answer(self, name: str, text: str) -> Self:
        """With one answer, or `UsageRefused`, which says what is wrong with it."""
        _check(WebSettings if name == "listen" else Settings, name, text)
        if name == "time_zone" and not _is_zone(text.strip()):
            raise UsageRefused(
                f"time zone: {as_written(text)} is none that is known here; write one like Europe/Berlin"
            )
        return attrs.evolve(self, **{name: text.strip()})

    def text(self) -> str:
        """The settings file."""
        file = str(Path(self.data) / "keys" / "web.key")
        key = _NO_KEY.format(file=file) if self.is_private else _KEY.format(file=_quoted(file))
        return _TEMPLATE.format(
            data=_quoted(self.data), time_zone=_quoted(self.time_zone), listen=_quoted(self.listen), key=key
        )

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach the server."""
        return parse_listen_address(self.listen).is_loopback


@frozen(kw_only=True)
class WrittenFile:
    """What was written."""

    file: str
    chosen: FirstSettings
    key_file: str | None
    former: str | None

    def told(self) -> Iterator[str]:
        """What was done, and what comes next."""
        if self.former:
            yield f"what was there is now {display_path(self.former)}"
        chosen = self.chosen
        yield f"{display_path(self.file)} is written: data in {chosen.data}, server at {chosen.listen}, times in {chosen.time_zone}"
        if self.key_file:
            yield f"other machines reach the server with the key in {display_path(self.key_file)}"
        yield "next:"
        yield "  cormorant sources add NAME URL    a site to search"
        yield "  cormorant clients add sonarr      an app that searches, and its key"
        yield "  cormorant run"

    def facts(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "written": self.file,
            **attrs.asdict(self.chosen),
            "key_file": self.key_file,
            "former": self.former,
        }


def time_zone_here() -> str:
    """The time zone of this machine, as far as it can be guessed; else UTC."""
    guess = next(filter(_is_zone, _guesses()), "UTC")
    return "UTC" if guess == "Etc/UTC" else guess


def _is_zone(name: str) -> bool:
    try:
        zone_of(name)
    except (OSError, ValueError, KeyError):
        return False
    return True


def _guesses() -> Iterator[str]:
    yield os.environ.get("TZ", "").removeprefix(":")
    try:
        yield str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")[2]
        yield Path("/etc/timezone").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return


def check_prowlarr(text: str) -> str:
    """The address of a Prowlarr, or `UsageRefused`. What was typed is not repeated, for a key may have been pasted with it."""
    return text if not text else _check(SourceSettings, "url", text, shown="prowlarr")


def _check(cls: type, name: str, text: str, *, shown: str = "") -> str:
    what, written = shown or name.replace("_", " "), text.strip()
    if not written:
        raise UsageRefused(f"{what}: it is empty")
    parsed_setting(cls, name, written, shown=what)
    return written


def refuse_to_replace(config: str) -> None:
    """Raise `UsageRefused` where there is a file already."""
    if os.path.lexists(config):
        what = f"{display_path(config)} is there already and is left as it is"
        raise UsageRefused(
            f"{what}; --force writes a new one and keeps it under another name, --config names another file"
        )


def write(config: str, chosen: FirstSettings) -> WrittenFile:
    """Write the file, and the key that it needs. A file that is there is kept under another name."""
    file = Path(config).absolute()
    if not file.parent.is_dir():
        raise UsageRefused(
            f"there is no folder {display_path(str(file.parent))}; make it, or name another file with --config"
        )
    try:
        key_file = None if chosen.is_private else _make_key(file.parent / chosen.data)
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            fresh.write_text(chosen.text(), encoding="utf-8")
            load_settings(fresh, {})
            former = _kept(file)
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise UsageRefused(f"{display_path(config)} cannot be written: {error.strerror}") from None
    except KeyUnusable as error:
        raise UsageRefused(str(error)) from None
    except SettingsError as error:
        raise UsageRefused("these settings do not go together", error.problems) from None
    return WrittenFile(file=str(file), chosen=chosen, key_file=key_file, former=former)


def _make_key(data: Path) -> str:
    file = data / "keys" / "web.key"
    kept_key(file, of="the API", emit=ignore)
    return str(file)


def _kept(file: Path) -> str | None:
    """A copy of what is there. Where nothing is, the name is taken: whoever comes between is not overwritten."""
    if not os.path.lexists(file):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        return None
    names = (file.with_name(f"{file.name}.old{number or ''}") for number in count())
    former = next(name for name in names if not os.path.lexists(name))
    shutil.copy2(file, former)
    return str(former)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

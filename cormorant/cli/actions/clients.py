"""What the commands of `cormorant clients` do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from attrs import frozen

from cormorant.cli.actions.job_text import as_text
from cormorant.cli.console.command_line import EXIT_OK, CommandFailed, CommandInterrupted, UsageRefused, display_path
from cormorant.cli.console.database_session import with_database
from cormorant.cli.console.output import table
from cormorant.cli.console.preflight import load_or_refuse
from cormorant.rules.errors import CommitUnknown, CormorantError
from cormorant.rules.settings.fields import DURATION, SHARE
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.settings import Settings
from cormorant.services.keys import new_key
from storage import access
from storage.access import ClientAppView, ClientExists, ClientRecord, UnknownClient, digest_of
from storage.database import Database

__all__ = ["ClientActions", "run_client_action"]

_HEAD = ("NAME", "PRIORITY", "SHARE", "HOLD", "QUERIES", "GRABS", "FROM", "SPENT AT")


@frozen(kw_only=True)
class ClientActions:
    """Where the commands meet the database."""

    settings: Settings
    config: str
    database: Database
    as_json: bool

    async def list_clients(self) -> int:
        """All apps."""
        looks = await self._looks()
        return self._tell({"clients": [_client_json(look) for look in looks]}, self._listed(looks))

    async def add(self, name: str, wanted: ClientSettings) -> int:
        """Let an app in."""
        if name in self.settings.clients:
            raise CommandFailed(f"{self._file} has a client {name} already; change it there, or choose another name")
        key = new_key()
        record = ClientRecord(name=name, settings=wanted, key_digest=digest_of(key), added_at=_now())
        await self.database.run(access.add, record)
        [look] = [each for each in await self._looks() if each.name == name]
        return self._tell({"added": _client_json(look), "key": key}, self._added(name, key))

    async def remove(self, name: str) -> int:
        """Let an app in no more."""
        if name in self.settings.clients:
            what = f"{name} is a client of {self._file}; it cannot be removed by command"
            raise CommandFailed(f"{what}: take [clients.{name}] out of that file")
        await self.database.run(access.remove, name)
        told = f"{name} is removed; its key and its links open nothing any more. What it spent stays spent"
        return self._tell({"removed": name}, [told])

    async def _looks(self) -> list[ClientAppView]:
        return await self.database.read(access.read_clients, self.settings.clients, now=_now())

    def _listed(self, looks: Sequence[ClientAppView]) -> Iterator[str]:
        if not looks:
            yield f"no clients yet; add one: cormorant clients add NAME, or [clients.NAME] in {self._file}"
            return
        rows = [
            [
                look.name,
                look.settings.priority,
                SHARE.write(look.settings.share).strip('"'),
                DURATION.write(look.settings.hold_s).strip('"'),
                f"{look.queries_today:,}",
                f"{look.grabs_today:,}",
                self._file if look.from_file else "by command",
                ", ".join(f"{each.source} {each.queries}+{each.grabs}" for each in look.spent) or "-",
            ]
            for look in looks
        ]
        yield from table(_HEAD, rows, right=("QUERIES", "GRABS"))
        yield "queries and grabs are those of the last 24 hours"

    def _added(self, name: str, key: str) -> Iterator[str]:
        yield f"{name} is added. Its key is shown this once; only a digest of it is kept:"
        yield f"  {key}"
        yield f"in the app: URL {self._gate}/combined, or {self._gate}/SOURCE for one site; API path /api"
        yield "a running service lets it in within seconds"

    @property
    def _gate(self) -> str:
        web = self.settings.web
        return f"http://{web.address.shown}{web.url_base.rstrip('/')}/gate"

    @property
    def _file(self) -> str:
        return display_path(self.config)

    def _tell(self, facts: dict[str, Any], lines: Iterable[str]) -> int:
        click.echo(as_text(facts) if self.as_json else "\n".join(lines))
        return EXIT_OK


def run_client_action(
    config: str, action: Callable[[ClientActions], Awaitable[int]], *, as_json: bool, may_make: bool = False
) -> int:
    """Run a command at the database of a settings file. Returns its exit code."""
    settings = load_or_refuse(config)

    async def run(database: Database) -> int:
        return await action(ClientActions(settings=settings, config=config, database=database, as_json=as_json))

    try:
        return with_database(settings, run, may_make=may_make)
    except (ClientExists, UnknownClient) as error:
        raise CommandFailed(str(error)) from None
    except CommitUnknown as unknown:
        raise CommandFailed(f"{unknown}; `cormorant clients list` shows it") from None
    except CormorantError as error:
        raise UsageRefused(str(error)) from None
    except KeyboardInterrupt:
        raise CommandInterrupted("interrupted") from None


def _client_json(look: ClientAppView) -> dict[str, Any]:
    chosen = look.settings
    return {
        "name": look.name,
        "priority": chosen.priority,
        "share": chosen.share,
        "hold_s": chosen.hold_s,
        "from_file": look.from_file,
        "queries_today": look.queries_today,
        "grabs_today": look.grabs_today,
        "sources": [
            {"source": each.source, "queries_today": each.queries, "grabs_today": each.grabs} for each in look.spent
        ],
    }


def _now() -> datetime:
    return datetime.now(UTC)

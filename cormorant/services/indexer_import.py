"""Plans and carries out an import of indexers from Prowlarr or Jackett."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, field, frozen

from actors.environment import Environment
from cormorant.clients.arr import PROWLARR, jackett_indexers, prowlarr_indexers, said_by
from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.rules.addresses import normalised
from cormorant.rules.app_indexers import CHANGES, ImportAction, ImportStep, KnownSource, OfferedIndexer, plan
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.sources import SourceSettings, limits_of
from cormorant.services.sources import configured_sources
from storage.search import source_views
from storage.search.source_views import Rows, SourceChange
from storage.search.sources import SourceRecord


@frozen(kw_only=True)
class ImportPlan:
    """What is to be done, and the sources of that program that it has no more."""

    actions: list[ImportAction]
    gone: list[str]


@frozen(kw_only=True)
class IndexerImport:
    """The import from the Prowlarr or Jackett at `url`. `limits` is a preset for all; None: one for each by its privacy."""

    environment: Environment = field(kw_only=False)
    app: str
    url: str
    key: Secret
    limits: str | None = None
    is_partial: bool = False
    """Whether some of its indexers are left out, so that nothing is known of those that are gone."""

    async def offered(self) -> list[OfferedIndexer]:
        """The indexers that the program has."""
        offload = self.environment.offload
        with said_by(self.app, self.key):
            transport = Transport(written=[self.url])
            if self.app != PROWLARR:
                return await jackett_indexers(self.url, self.key, transport, offload=offload)
            api = JsonApi(app=self.app, url=self.url, key=self.key, transport=transport, offload=offload)
            return await prowlarr_indexers(api)

    async def look(self, offered: Sequence[OfferedIndexer]) -> ImportPlan:
        """What would be done."""
        rows = await self.environment.database.read(source_views.known_rows, _identities(offered))
        return self.plan(offered, rows)

    async def carry_out(self, offered: Sequence[OfferedIndexer]) -> ImportPlan:
        """Do it. Returns what was done."""

        def decide(rows: Rows) -> list[SourceChange]:
            return [self._change(each, rows) for each in self.plan(offered, rows).actions if each.step in CHANGES]

        rows = await self.environment.database.run(
            source_views.apply_changes, _identities(offered), decide, now=self.environment.now()
        )
        return self.plan(offered, rows)

    def plan(self, offered: Sequence[OfferedIndexer], rows: Rows) -> ImportPlan:
        """What is to be done about these indexers when the database has these sources."""
        settings = self.environment.settings
        in_use = {record.name for record, is_removed in rows.values() if not is_removed}
        actions = plan(offered, self._known(rows), taken=in_use | set(settings.sources), limits=self.limits)
        gone = () if self.is_partial else self._gone(offered, rows)
        return ImportPlan(actions=actions, gone=sorted(set(gone) - set(settings.sources)))

    def _known(self, rows: Rows) -> dict[str, KnownSource]:
        known = {
            identity: KnownSource(
                name=record.name, is_removed=is_removed, has_same_key=record.key == self.key, kind=record.kind
            )
            for identity, (record, is_removed) in rows.items()
        }
        configured = configured_sources(self.environment.settings)
        return known | {each.identity: KnownSource(name=each.name, is_configured=True) for each in configured}

    def _gone(self, offered: Sequence[OfferedIndexer], rows: Rows) -> list[str]:
        identities, theirs = _identities(offered), f"{normalised(self.url)}/"
        return [
            record.name
            for identity, (record, is_removed) in rows.items()
            if identity.startswith(theirs) and identity not in identities and not is_removed
        ]

    def _change(self, action: ImportAction, rows: Rows) -> SourceChange:
        each = action.offered
        former, _ = rows.get(normalised(each.url), (None, False))
        record = SourceRecord(
            name=action.name, identity=normalised(each.url), kind=each.kind, url=each.url, key=self.key
        )
        if former is not None:
            record = evolve(record, id=former.id, proxy=former.proxy, limits=former.limits)
        if former is None or action.limits is not None:
            preset = SourceSettings(limits=action.limits or "default")
            record = evolve(record, limits=limits_of(preset, self.environment.settings.limits))
        return SourceChange(record=record, former=former, is_update=action.step is ImportStep.UPDATE)


def _identities(offered: Sequence[OfferedIndexer]) -> list[str]:
    return [normalised(each.url) for each in offered]

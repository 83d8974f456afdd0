"""Results as apps see them: our download links, first seen, no secrets."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
from attrs import define, field, frozen

from actors.environment import Environment
from cormorant.rules.search.requests import Protocol, Result
from cormorant.rules.secrets import HIDDEN, SecretFilter, redact_passwords, secret_filter_of
from cormorant.rules.web_requests import LruCache
from cormorant.services.gate.torznab_documents import PASSED_ON, GateInfo, TorznabItem
from cormorant.services.keys import Keys
from storage import gate
from storage.gate import GateLink
from storage.search.sources import SourceRecord

_LONG_AGO: Final = datetime(1970, 1, 2, tzinfo=UTC)
_PLACEHOLDER: Final = "placeholder"
_PLACEHOLDER_TITLE: Final = "Nothing is here yet (a placeholder made up by Cormorant, not a release)"
_MADE_MAX: Final = 2_000
"""So many finds are remembered as they were shown last: some kilobytes each."""
_PLACEHOLDER_AT: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""So old that no app takes it for the newest that it knows."""


@frozen(kw_only=True)
class GateResult:
    """A find of a source. `at` is when it counts as published if the site did not say."""

    record: SourceRecord
    result: Result
    at: datetime | None = None


@define(eq=False)
class _MadeLink:
    """A find, and what was made of it for all apps. `shown_at` is when it counted as first seen then."""

    find: GateResult
    link: GateLink
    shown: GateInfo | None = None
    shown_at: datetime | None = None


@define(eq=False, kw_only=True)
class GateItems:
    """Makes finds into what apps get, and knows what a link of ours stands for."""

    environment: Environment = field(kw_only=False)
    keys: Keys
    links: DownloadLinks = field(init=False)
    _made: LruCache[_MadeLink] = field(init=False, factory=lambda: LruCache(_MADE_MAX))

    def __attrs_post_init__(self) -> None:
        self.links = DownloadLinks(self.environment)

    async def of(self, client: str, found: Sequence[GateResult], *, base: str) -> list[TorznabItem]:
        """The finds that can be fetched, as this app is shown them."""
        made = [self._made_of(each) for each in found if each.result.link]
        seen = await self.links.first_seen([each.link for each in made])
        records = {each.find.record.name: each.find.record for each in made}
        secret_filters = {name: secret_filter_of(record.key, record.proxy) for name, record in records.items()}
        return [
            self._item(each, secret_filters[each.find.record.name], client=client, base=base, seen=seen)
            for each in made
        ]

    async def link(self, token: str, record: SourceRecord) -> str | None:
        """The link of the site that ours stands for; None when that is too long ago."""
        return await self.environment.database.read(gate.find, _ref_of_token(token), source_id=record.id)

    def is_ours(self, token: str, record: SourceRecord) -> bool:
        """Whether we have made this link, for the app that it names."""
        ours = self._token(client_of_token(token), record, _ref_of_token(token))
        return hmac.compare_digest(ours.encode(errors="replace"), token.encode(errors="replace"))

    def _made_of(self, find: GateResult) -> _MadeLink:
        """What was made of a find before, if it is still the same; apps ask for the same finds one after the other."""
        # Found by a search it counts as published at another time than among what is new.
        name = f"{find.record.id} {find.at is None} {find.result.link}"
        made = self._made.get(name)
        if made is None or made.find != find:
            ref = self._ref(find.record, find.result.link)
            made = _MadeLink(find, GateLink(ref=ref, source_id=find.record.id, link=find.result.link))
        self._made.put(name, made)
        return made

    def _item(
        self, made: _MadeLink, secret_filter: SecretFilter, *, client: str, base: str, seen: Mapping[str, datetime]
    ) -> TorznabItem:
        record, ref = made.find.record, made.link.ref
        at = made.find.at or seen.get(ref, _LONG_AGO)
        if made.shown is None or made.shown_at != at:
            made.shown, made.shown_at = _shown(made.find, secret_filter, first_seen=at), at
        return TorznabItem(
            shown=made.shown, link=f"{base}/gate/{record.name}/download/{self._token(client, record, ref)}"
        )

    def _ref(self, record: SourceRecord, link: str) -> str:
        return _text(self.keys.sign("ref", str(record.id), link))

    def _token(self, client: str, record: SourceRecord, ref: str) -> str:
        return f"{client}.{ref}.{_text(self.keys.sign('token', client, str(record.id), ref))}"


def _shown(find: GateResult, secret_filter: SecretFilter, *, first_seen: datetime) -> GateInfo:
    result, record = find.result, find.record
    details = result.details if result.details.startswith(("http://", "https://")) else ""
    digest = hashlib.sha256(f"{record.identity}\0{result.guid}".encode(errors="replace")).hexdigest()[:40]
    return GateInfo(
        result=_clean(result, secret_filter),
        # Not the site's own: it may hold a key where nobody looks for one.
        guid=f"cormorant-{record.name}-{digest}",
        indexer_id=record.id,
        indexer=record.name,
        published=result.published or first_seen.replace(microsecond=0),
        # Part of an address is no address: one in which something was hidden is left out.
        details="" if HIDDEN in redact_passwords(secret_filter.redact(details)) else details,
    )


def _clean(result: Result, secret_filter: SecretFilter) -> Result:
    """A find without secrets in what is passed on of it."""
    passed_on = {name: values for name, values in result.attributes.items() if name in PASSED_ON}
    # Looked for once in all of it, with something in between that no secret has: of most finds that is all there is to do.
    all_of_it = "\0".join([result.title, *[value for values in passed_on.values() for value in values]])
    if HIDDEN not in all_of_it and not secret_filter.shows(all_of_it):
        return result
    return attrs.evolve(
        result,
        title=secret_filter.redact(result.title),
        attributes={
            name: tuple(value for value in values if HIDDEN not in secret_filter.redact(value))
            for name, values in passed_on.items()
        },
    )


def placeholder(
    where: str, records: Sequence[SourceRecord], categories: Sequence[int], *, title: str, base: str
) -> TorznabItem:
    """An item that says there is none: Sonarr, Radarr and Lidarr cannot be given an address whose feed is empty.

    It has no seeders, and its link leads nowhere. In `combined` its indexer has the number 0.
    """
    kinds = {record.kind for record in records}
    protocol: Protocol = "usenet" if kinds == {"newznab"} else "torrent"
    result = Result(
        title=_PLACEHOLDER_TITLE,
        guid=_PLACEHOLDER,
        link=_PLACEHOLDER,
        protocol=protocol,
        size_bytes=1,
        categories=tuple(map(str, categories or (8000,))),
        seeders=0 if protocol == "torrent" else None,
        peers=0 if protocol == "torrent" else None,
    )
    link = f"{base}/gate/{where}/download/{_PLACEHOLDER}"
    shown = GateInfo(
        result=result,
        guid=f"cormorant-{where}-{_PLACEHOLDER}",
        indexer_id=next((record.id for record in records if record.name == where), 0),
        indexer=title,
        published=_PLACEHOLDER_AT,
    )
    return TorznabItem(shown=shown, link=link)


def client_of_token(token: str) -> str:
    """The app that a link of ours was given to."""
    return token.partition(".")[0]


def _ref_of_token(token: str) -> str:
    return token.partition(".")[2].partition(".")[0]


def _text(signature: bytes) -> str:
    return urlsafe_b64encode(signature).rstrip(b"=").decode()


_AGAIN: Final = timedelta(hours=1)
"""Links are kept for 60 days after they were last given out: an hour more or less is no matter."""
_KEPT_MAX: Final = 20_000


@define(eq=False, kw_only=True)
class DownloadLinks:
    """Remembers links for later downloads."""

    environment: Environment = field(kw_only=False)
    _known: LruCache[tuple[datetime, datetime]] = field(init=False, factory=lambda: LruCache(_KEPT_MAX))
    """When each was first given out, and when that was last written down."""

    async def first_seen(self, links: Sequence[GateLink]) -> Mapping[str, datetime]:
        """When each was first given out, by its short name; all of them are kept from now on."""
        now = self.environment.now()
        known = {link.ref: self._known.get(link.ref) for link in links}
        stale = [link for link in links if not _is_fresh(known[link.ref], now)]
        seen = await self.environment.database.run(gate.remember, stale, now=now) if stale else {}
        for ref, first in seen.items():
            self._known.put(ref, (first, now))
        return {ref: found[0] for ref, found in known.items() if found is not None} | dict(seen)


def _is_fresh(found: tuple[datetime, datetime] | None, now: datetime) -> bool:
    return found is not None and timedelta(0) <= now - found[1] < _AGAIN

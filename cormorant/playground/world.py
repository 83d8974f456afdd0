"""The stand-ins and the settings of the shipped playground, with its webhook and its phone."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import define, evolve, field

from cormorant.playground.arr import APPS, Arr
from cormorant.playground.catalogue import PlayedCatalogue, PlayedNews
from cormorant.playground.feed_site import feed_site, playground_feeds
from cormorant.playground.http import StandInRequest, StandInResponse, StandInSite, remember
from cormorant.playground.indexer import Habits, Indexer
from cormorant.playground.price_site import MARKET, PRICES, PriceSiteStandIn, market_source, sales_since
from cormorant.playground.prowlarr import Jackett, Prowlarr, ProwlarrEntry
from cormorant.playground.qbittorrent import QbittorrentStandIn
from cormorant.playground.releases import GrowingArtists, peers_with, releases_since
from cormorant.playground.sabnzbd import SabnzbdStandIn
from cormorant.playground.slskd import SlskdStandIn
from cormorant.playground.spotify import SpotifyStandIn
from cormorant.rules.addresses import normalised
from cormorant.rules.ports import Clock
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.service import ClientSettings
from cormorant.rules.settings.settings import Settings, StorageSettings
from cormorant.rules.settings.sources import SourceSettings
from cormorant.rules.settings.watch import ProfileSettings, SavedSettings, TargetSettings, WatchlistSettings

FOLDER: Final = "playground"
"""Where its database is, below the data folder: a real set-up later begins clean."""
KEY: Final = "open-sesame"
"""The key of everything here that wants one. It opens nothing else."""
SPOTIFY_ID: Final = "playground"

_SITES: Final[Mapping[str, Habits]] = {
    "attic": Habits(title="The Attic", key=KEY, per_minute=30),
    "cellar": Habits(title="The Cellar", key=KEY, share=0.7, per_minute=2, is_private=True),
    "loft": Habits(title="The Loft", key=KEY, share=0.4, per_minute=4, says_retry_after=False),
    "mill": Habits(title="The Mill", key=KEY, share=0.6, answers_after_s=1.5),
    "shed": Habits(title="The Shed", key=KEY, share=0.5, fails_every=3),
    "vault": Habits(title="The Vault", refuses_every_key=True, is_private=True),
    "barn": Habits(
        title="The Barn", kind="newznab", key=KEY, share=0.8, per_day=200, grabs_per_day=20, states_quota=True
    ),
}
_OUTSIDE: Final[Mapping[str, Habits]] = {
    "harbour": Habits(title="Harbour Light", share=0.9, per_minute=20, is_private=True),
    "quay": Habits(title="Old Quay", share=0.5),
    "post": Habits(title="Parcel Post", kind="newznab", share=0.7, per_day=100, states_quota=True),
    "wreck": Habits(title="The Wreck", share=0.1),
}
"""What only Prowlarr and Jackett know."""

_SPACING_S: Final = 2.0
_PACE_S: Final = 10.0
_QUICK_S: Final = {"attic": 0.5, "barn": 0.5}
"""What is watched is searched there, and somebody looks on."""
_PER_HOUR: Final = {"cellar": 40, "vault": 40}


_TAKES_S: Final = 1.5
_FOLLOW_S: Final = 1.0
_SILENCE_S: Final = 1.0
"""The stand-in of slskd ends a search after this silence. slskd itself keeps to the 12 s that it is asked for."""
_CACHE_S: Final = 5.0
"""Prices change while one looks."""

WATCHLIST: Final = WatchlistSettings(
    every_s=60.0, interval_s=1.0, search=("attic", "slskd"), choose="flac", hand_to=("qbittorrent", "slskd")
)
"""In a hurry, so that there is something to see; with real sites it is half a day."""
PROFILES: Final[Mapping[str, ProfileSettings]] = {
    "flac": ProfileSettings(accept=("flac",), prefer=("24.?bit",), size_max_bytes=3_000_000_000),
    "films": ProfileSettings(accept=("1080p",)),
}
SAVED: Final[Mapping[str, SavedSettings]] = {
    "orchard": SavedSettings(
        query="the last orchard keeper",
        search=("barn",),
        every_s=120.0,
        choose="films",
        hand_to=("sabnzbd",),
        first_check="take",
    )
}


def playground_sites(clock: Clock) -> list[StandInSite]:
    """All stand-ins, new and unspent."""
    news = releases_since(clock.now())
    catalogue = PlayedCatalogue(clock.now(), news=news)

    def indexers(habits: Mapping[str, Habits]) -> dict[str, Indexer]:
        return {
            name: Indexer(name=name, habits=each, catalogue=catalogue, clock=clock) for name, each in habits.items()
        }

    outside = indexers(_OUTSIDE)
    entries = [ProwlarrEntry(indexer=each, is_enabled=name != "wreck") for name, each in outside.items()]
    apps = {name: Arr(app=app, key=KEY) for name, app in APPS.items()}
    apps["sonarr"].keep("Harbour Light (by hand)", "https://harbour.invalid")
    behind_jackett = [each for each in outside.values() if each.habits.kind == "torznab"]
    return [
        *indexers(_SITES).values(),
        Prowlarr(key=KEY, entries=entries),
        Jackett(key=KEY, indexers=behind_jackett),
        *apps.values(),
        *_around_watching(news, catalogue, clock),
    ]


def _around_watching(news: Sequence[PlayedNews], catalogue: PlayedCatalogue, clock: Clock) -> Iterator[StandInSite]:
    """The sources of artists, files, feeds and prices, the targets and the phone. They are quicker than the real programs."""
    artists = GrowingArtists(news, catalogue, clock)
    yield SpotifyStandIn(artists=artists, client_id=SPOTIFY_ID, secret=KEY)
    yield SlskdStandIn(peers=peers_with(news), key=KEY, silence_max_s=_SILENCE_S, lag_s=0.5, transfer_takes_s=_TAKES_S)
    yield QbittorrentStandIn(user="playground", password=KEY, takes_s=_TAKES_S)
    yield SabnzbdStandIn(key=KEY, takes_s=_TAKES_S)
    yield WebhookStandIn()
    yield feed_site(clock)
    yield PriceSiteStandIn(clock=clock, sales=sales_since(clock.now()), key=KEY)
    yield PhoneStandIn()


def _other_sources(address: str) -> dict[str, SourceSettings]:
    return {
        "spotify": SourceSettings(kind="spotify", url=f"{address}/spotify/v1", id=SPOTIFY_ID, key=Secret(KEY)),
        "slskd": SourceSettings(kind="slskd", url=f"{address}/slskd", key=Secret(KEY), spacing_s=0.5),
        MARKET: market_source(address, KEY),
    }


def _targets(address: str) -> dict[str, TargetSettings]:
    key = Secret(KEY)
    return {
        "qbittorrent": TargetSettings(
            url=f"{address}/qbittorrent", username="playground", password=key, follow_s=_FOLLOW_S
        ),
        "slskd": TargetSettings(kind="slskd", source="slskd", follow_s=_FOLLOW_S),
        "sabnzbd": TargetSettings(kind="sabnzbd", url=f"{address}/sabnzbd", key=key, follow_s=_FOLLOW_S),
        "webhook": TargetSettings(kind="webhook", url=f"{address}/webhook"),
    }


def _phone(settings: Settings) -> Secret:
    return Secret(f"json://{settings.playground.listen}/phone")


def with_playground(settings: Settings) -> Settings:
    """The settings of a playground: its sites, a client for each app, what is watched, and a data folder of its own.

    It is live whatever is set: only stand-ins take what is found.
    """
    address = f"http://{settings.playground.listen}"
    sites = {
        name: SourceSettings(
            kind=habits.kind,
            url=f"{address}/{name}/api",
            key=Secret(KEY),
            spacing_s=_QUICK_S.get(name, _SPACING_S),
            pace_s=_QUICK_S.get(name, _PACE_S),
            per_hour=_PER_HOUR.get(name),
        )
        for name, habits in _SITES.items()
    }
    written = {normalised(source.url) for source in settings.sources.values() if source.url}
    sites |= _other_sources(address)
    sites = {name: site for name, site in sites.items() if normalised(site.url) not in written}
    sources = {**sites, **settings.sources}
    targets = {name: each for name, each in _targets(address).items() if not each.source or each.source in sources}
    return evolve(
        settings,
        data=f"{settings.data}/{FOLDER}",
        storage=evolve(settings.storage, url=StorageSettings().url),
        sources=sources,
        mode="live",
        watchlist=WATCHLIST if settings.watchlist == WatchlistSettings() else settings.watchlist,
        saved={**SAVED, **settings.saved},
        profiles={**PROFILES, **settings.profiles},
        targets={**targets, **settings.targets},
        feeds={**playground_feeds(address), **settings.feeds},
        prices={**(PRICES if sources.get(MARKET) == sites.get(MARKET) else {}), **settings.prices},
        notify=settings.notify if settings.notify.apprise else evolve(settings.notify, apprise=_phone(settings)),
        search=evolve(settings.search, cache_ttl_s=min(settings.search.cache_ttl_s, _CACHE_S)),
        clients={**{name: ClientSettings() for name in APPS}, **settings.clients},
    )


@define(kw_only=True)
class WebhookStandIn:
    """Takes each key once."""

    name: str = "webhook"
    taken: dict[str, Any] = field(factory=dict)
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        remember(self.asked, asked)
        if asked.method != "POST":
            return StandInResponse(status=405)
        self.taken.setdefault(asked.headers.get("idempotency-key", ""), json.loads(asked.body))
        return StandInResponse()


@define(kw_only=True)
class PhoneStandIn:
    """Takes notifications as Apprise sends them; `GET` shows what came."""

    name: str = "phone"
    told: deque[dict[str, str]] = field(factory=lambda: deque(maxlen=50))

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        """What it says."""
        if asked.method == "POST":
            said = json.loads(asked.body)
            self.told.append({part: str(said[part]) for part in ("title", "message")})
        return StandInResponse(kind="application/json", body=json.dumps(list(self.told), indent=2).encode())

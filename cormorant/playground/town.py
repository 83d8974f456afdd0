"""Who is in the playground that comes with Cormorant? Seven sites with their moods, and the apps around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from cormorant.playground.arr import APPS, Arr
from cormorant.playground.catalogue import Catalogue
from cormorant.playground.indexer import Habits, Indexer
from cormorant.playground.jackett import Jackett
from cormorant.playground.prowlarr import Entry, Prowlarr
from cormorant.playground.serving import Site
from cormorant.rules.ports import Clock
from cormorant.rules.secrets import Secret
from cormorant.rules.settings import Settings, StorageSettings
from cormorant.rules.source_settings import SourceSettings
from cormorant.rules.web_addresses import normalised
from cormorant.rules.web_settings import ClientSettings

__all__ = ["FOLDER", "KEY", "sites_of_the_town", "with_playground"]

FOLDER: Final = "playground"
"""Where its database is, below the data folder: a real set-up later begins clean."""
KEY: Final = "open-sesame"
"""The key of everything here that wants one. It opens nothing else."""

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
_PER_HOUR: Final = {"cellar": 40, "vault": 40}


def sites_of_the_town(clock: Clock) -> list[Site]:
    """All stand-ins, new and unspent."""
    catalogue = Catalogue(clock.now())

    def indexers(habits: Mapping[str, Habits]) -> dict[str, Indexer]:
        return {
            name: Indexer(name=name, habits=each, catalogue=catalogue, clock=clock) for name, each in habits.items()
        }

    outside = indexers(_OUTSIDE)
    entries = [Entry(indexer=each, is_enabled=name != "wreck") for name, each in outside.items()]
    apps = {name: Arr(app=app, key=KEY) for name, app in APPS.items()}
    apps["sonarr"].keep("Harbour Light (by hand)", "https://harbour.invalid")
    behind_jackett = [each for each in outside.values() if each.habits.kind == "torznab"]
    return [
        *indexers(_SITES).values(),
        Prowlarr(key=KEY, entries=entries),
        Jackett(key=KEY, indexers=behind_jackett),
        *apps.values(),
    ]


def with_playground(settings: Settings) -> Settings:
    """The settings of a playground: its sites, a client for each app, and a data folder of its own."""
    address = f"http://{settings.playground.listen}"
    sites = {
        name: SourceSettings(
            kind=habits.kind,
            url=f"{address}/{name}/api",
            key=Secret(KEY),
            spacing_s=_SPACING_S,
            pace_s=_PACE_S,
            per_hour=_PER_HOUR.get(name),
        )
        for name, habits in _SITES.items()
    }
    written = {normalised(source.url) for source in settings.sources.values() if source.url}
    sites = {name: site for name, site in sites.items() if normalised(site.url) not in written}
    return evolve(
        settings,
        data=f"{settings.data}/{FOLDER}",
        storage=evolve(settings.storage, url=StorageSettings().url),
        sources={**sites, **settings.sources},
        clients={**{name: ClientSettings() for name in APPS}, **settings.clients},
    )

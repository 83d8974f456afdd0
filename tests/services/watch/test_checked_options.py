"""Options that a program gives are checked as those of the settings file, and nothing of what is refused is stored."""

from __future__ import annotations

from typing import Any, Final

import attrs
import pytest
from trio.testing import MockClock

from cormorant.rules.search.requests import BadRequest
from cormorant.rules.settings.watch import ArtistOptions, FeedSettings, PriceSettings, SavedSettings
from cormorant.rules.watch.releases import CatalogueArtist
from cormorant.testing import SimulatedClock, in_line, memory_gateway, named_sources, settings
from supervisors import Service, open_service
from tests.environments import environment_of

pytestmark = pytest.mark.slow("opens a service")

URL: Final = "http://x.test/rss"
WRONG: Final = [
    (FeedSettings(url="ftp://x.test/"), "url: it is no address"),
    (FeedSettings(url="file:///etc/passwd"), "url: it is no address"),
    (FeedSettings(url="not an address"), "url: it is no address"),
    (FeedSettings(url=f"{URL}?{'x' * 100_000}"), "url: "),
    (FeedSettings(url=URL, accept=("(",)), 'accept: "(" is no pattern'),
    (ArtistOptions(start="foo"), "start: 'foo' is no start"),
    (SavedSettings(query="a\nb"), "query: "),
    (PriceSettings(title="Morgan", search=("",)), "search: "),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
async def test_what_the_settings_file_could_not_have_is_refused(clock: MockClock, options: Any, told: str) -> None:
    with memory_gateway() as gateway:
        environment = environment_of(clock=SimulatedClock(), offload=in_line, database=gateway)
        shop = {"shop": attrs.evolve(named_sources("shop")["shop"], kind="prices")}
        async with open_service(settings(sources=shop), environment=environment) as service:
            with pytest.raises(BadRequest, match=f"^{told.replace('(', '[(]')}"):
                await add(service, options)
            found = [*await service.artists.all(), *await service.saved_searches.all()]
            found += [*await service.feeds.all(), *await service.prices.all()]

    assert found == []


async def test_each_of_many_feeds_is_checked_and_none_is_added(clock: MockClock) -> None:
    with memory_gateway() as gateway:
        environment = environment_of(clock=SimulatedClock(), offload=in_line, database=gateway)
        async with open_service(settings(), environment=environment) as service:
            with pytest.raises(BadRequest, match=r'^feed "odd": url: it is no address'):
                await service.feeds.add_all([("good", URL, ()), ("odd", "ftp://x.test/", ())], FeedSettings())
            found = await service.feeds.all()

    assert found == []


async def add(service: Service, options: Any) -> object:
    """Add a watch to the service of its options."""
    match options:
        case FeedSettings():
            return await service.feeds.add("one", options)
        case SavedSettings():
            return await service.saved_searches.add("one", options)
        case PriceSettings():
            return await service.prices.add("one", options)
        case _:
            return await service.artists.add(CatalogueArtist(id="x1", name="One"), options)

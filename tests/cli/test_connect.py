"""`cormorant connect` and `disconnect`: an app gets our endpoints once, and loses them again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cormorant.clients.http.json_api import JsonApi
from cormorant.clients.http.transport import Transport
from cormorant.playground import open_playground
from cormorant.playground.arr import APPS, MASKED, Arr
from cormorant.playground.prowlarr import Prowlarr, ProwlarrEntry
from cormorant.rules.search.outcomes import SourceRefused
from cormorant.rules.secrets import Secret
from cormorant.settings import load_settings
from cormorant.testing import in_line
from supervisors import Service, open_service
from tests.cli.app_place import KEY, AppPlace, indexer
from tests.cli.test_import_indexers import Page

pytestmark = pytest.mark.slow("runs a service with its server")

QUICK = 'spacing = "0s"\npace = "0s"\n'


def source(place: AppPlace, name: str, kind: str = "torznab") -> str:
    url = place.playground.url_of(name, "/api")
    return f'[sources.{name}]\nkind = "{kind}"\nurl = "{url}"\n{QUICK}'


@asynccontextmanager
async def serving(place: AppPlace, *, names: dict[str, str], clients: str = "sonarr") -> AsyncIterator[Service]:
    """The real service with these sources, each with its kind."""
    tables = "".join(source(place, name, kind) for name, kind in names.items())
    (place.folder / "data").mkdir()
    file = place.write(f"[clients.{clients}]\n{tables}")
    async with open_service(load_settings(file, {})) as service:
        yield service


def entries(app: Arr) -> dict[str, tuple[str, str]]:
    """What the app has: name, kind and address."""
    return {
        each["name"]: (each["implementation"], next(f["value"] for f in each["fields"] if f["name"] == "baseUrl"))
        for each in app.indexers.values()
    }


async def test_import_connect_and_the_apps_own_test_go_through_the_running_service(tmp_path: Path) -> None:
    sites = [indexer("attic"), indexer("post", kind="newznab"), indexer("hall", shelves=("music",))]
    sonarr = Arr(app=APPS["sonarr"], key=KEY)
    by_hand = sonarr.keep("Attic by hand", "https://attic.invalid")
    prowlarr = Prowlarr(key=KEY, entries=[ProwlarrEntry(indexer=each) for each in sites])
    async with open_playground(prowlarr, sonarr) as playground:
        place = AppPlace(tmp_path, playground)
        async with serving(place, names={}):
            imported = await place.run("import", "prowlarr", playground.url_of("prowlarr"))
            for name in ("attic", "post", "hall"):
                assert (await place.run_plain("sources", "test", name)).code == 0
            connected = await place.run("connect", "sonarr", playground.url_of("sonarr"))
            again = await place.run("connect", "sonarr", playground.url_of("sonarr"))
            had = entries(sonarr)
            gone = await place.run("disconnect", "sonarr", playground.url_of("sonarr"))

    assert (imported.code, connected.code, again.code, gone.code) == (0, 0, 0, 0), connected.out
    assert had == {
        "Attic by hand": ("Torznab", "https://attic.invalid"),
        "Cormorant: attic": ("Torznab", f"{place.gate}/gate/attic"),
        "Cormorant: post": ("Newznab", f"{place.gate}/gate/post"),
    }
    assert "it has nothing for Sonarr, by its own word" in connected.out
    assert "warning: Sonarr still asks these past the gate: Attic by hand" in connected.out
    assert again.out.count("up to date") == 2
    assert set(sonarr.indexers) == {by_hand}
    key = (tmp_path / "data" / "keys" / "client-sonarr.key").read_text().strip()
    assert not any(secret in said.out + said.err for said in (connected, again, gone) for secret in (key, KEY))


async def test_all_together_replaces_one_for_each(tmp_path: Path) -> None:
    radarr = Arr(app=APPS["radarr"], key=KEY)
    async with open_playground(indexer("attic"), indexer("cellar"), radarr) as playground:
        place, url = AppPlace(tmp_path, playground), playground.url_of("radarr")
        async with serving(place, names={"attic": "torznab", "cellar": "torznab"}, clients="radarr"):
            single = await place.run("connect", "radarr", url)
            looked = await place.facts("connect", "radarr", url, "--combined", "--dry-run")
            together = await place.facts("connect", "radarr", url, "--combined")

    assert single.code == 0, single.out
    assert {each["became"] for each in looked["indexers"]} == {"would be added", "would be removed"}
    assert {each["name"]: each["became"] for each in together["indexers"]} == {
        "Cormorant": "added",
        "Cormorant: attic": "removed",
        "Cormorant: cellar": "removed",
    }
    assert entries(radarr) == {"Cormorant": ("Torznab", f"{place.gate}/gate/combined")}


async def test_a_name_that_is_taken_is_left_alone_and_a_moved_gate_is_followed(tmp_path: Path) -> None:
    lidarr = Arr(app=APPS["lidarr"], key=KEY)
    lidarr.keep("Cormorant: attic", "https://tracker.invalid")
    moved = lidarr.keep("Cormorant: cellar", "http://old-place:7979/gate/cellar")
    async with open_playground(indexer("attic"), indexer("cellar"), lidarr) as playground:
        place, url = AppPlace(tmp_path, playground), playground.url_of("lidarr")
        async with serving(place, names={"attic": "torznab", "cellar": "torznab"}, clients="lidarr"):
            facts = await place.facts("connect", "lidarr", url)

    assert {each["name"]: each["became"] for each in facts["indexers"]} == {
        "Cormorant: attic 2": "added",
        "Cormorant: cellar": "up to date",
    }
    assert facts["goes_direct"] == ["Cormorant: attic"]
    assert entries(lidarr)["Cormorant: cellar"] == ("Torznab", f"{place.gate}/gate/cellar")
    assert lidarr.indexers[moved]["id"] == moved


async def test_what_the_app_refuses_is_told_in_its_words_and_the_rest_is_done(tmp_path: Path) -> None:
    sonarr = Arr(app=APPS["sonarr"], key=KEY)
    async with open_playground(indexer("attic"), indexer("hall", fails_every=1), sonarr) as playground:
        place = AppPlace(tmp_path, playground)
        async with serving(place, names={"attic": "torznab", "hall": "torznab"}):
            ended = await place.run("connect", "sonarr", playground.url_of("sonarr"))

    assert ended.code == 1
    assert "Cormorant: hall   hall    refused  Sonarr says: " in ended.out
    assert "1 refused: mend what Sonarr says" in ended.out
    assert set(entries(sonarr)) == {"Cormorant: attic"}


async def test_what_stands_in_the_way_is_told_before_anything_is_changed(tmp_path: Path) -> None:
    sonarr, radarr = Arr(app=APPS["sonarr"], key=KEY), Arr(app=APPS["radarr"], key=KEY)
    async with open_playground(indexer("attic"), sonarr, radarr, Page()) as playground:
        place, url = AppPlace(tmp_path, playground), playground.url_of("sonarr")
        told: dict[str, Any] = {"no source": await place.run("connect", "sonarr", url)}
        place.write(f"[clients.sonarr]\n{source(place, 'attic')}")
        told["not running"] = await place.run("connect", "sonarr", url)
        told["wrong key"] = await place.run("connect", "sonarr", url, key="wrong")
        told["another app"] = await place.run("connect", "sonarr", playground.url_of("radarr"))
        told["a web page"] = await place.run("connect", "sonarr", playground.url_of("page"))
        told["no database"] = await place.run("connect", "radarr", playground.url_of("radarr"))
        told["elsewhere"] = await place.run("connect", "sonarr", "http://sonarr:8989")
        told["not us"] = await place.run("connect", "sonarr", url, "--gate", playground.url_of("sonarr"))
        told["unreachable"] = await place.run("disconnect", "sonarr", "http://127.0.0.1:1")
        told["nothing"] = await place.run("disconnect", "sonarr", url)

    words = {
        "no source": "there are no sources yet that an app could search",
        "not running": f"Cormorant does not answer at {place.gate}, where Sonarr would look for it; start it with",
        "wrong key": "Sonarr: it does not accept this key; look in Sonarr under Settings, General",
        "another app": "what is there is Radarr and not Sonarr; check the address, or the command",
        "a web page": "answers with a web page, so it is not the API of Sonarr",
        "no database": "`cormorant run` makes it at its first start",
        "elsewhere": "Sonarr runs elsewhere (sonarr) and Cormorant listens on this machine alone; set web.listen",
        "not us": "is not Cormorant; name its address with --gate",
        "unreachable": "http://127.0.0.1:1 cannot be reached",
        "nothing": "Sonarr has nothing of ours; nothing was changed",
    }
    assert {name: words[name] in each.err + each.out for name, each in told.items()} == dict.fromkeys(words, True)
    assert (told["elsewhere"].code, told["nothing"].code, told["not running"].code) == (2, 0, 1)
    assert sonarr.indexers == radarr.indexers == {}


async def test_the_stand_in_hides_keys_and_keeps_them_and_wants_no_aggregate(tmp_path: Path) -> None:
    sonarr = Arr(app=APPS["sonarr"], key=KEY)
    number = sonarr.keep("One", "https://one.invalid")
    next(each for each in sonarr.indexers[number]["fields"] if each["name"] == "apiKey")["value"] = "s3cret"
    async with open_playground(sonarr) as playground:
        transport = Transport(written=[playground.address])
        url = playground.url_of("sonarr")
        api = JsonApi(app="Sonarr", url=url, key=Secret(KEY), transport=transport, offload=in_line)
        [shown] = await api.get("/api/v3/indexer")
        await api.change("PUT", f"/api/v3/indexer/{number}", shown)
        aggregate = shown | {"name": "All", "fields": [{"name": "baseUrl", "value": "http://j/torznab/all"}]}
        with pytest.raises(SourceRefused, match="all endpoint is not supported"):
            await api.change("POST", "/api/v3/indexer", aggregate)
        await api.change("POST", "/api/v3/indexer?forceSave=true", aggregate)

    assert next(each["value"] for each in shown["fields"] if each["name"] == "apiKey") == MASKED
    kept = next(each["value"] for each in sonarr.indexers[number]["fields"] if each["name"] == "apiKey")
    assert kept == "s3cret"
    assert "All" in entries(sonarr)

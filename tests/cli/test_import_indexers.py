"""`cormorant import`: the indexers of Prowlarr and Jackett become sources, once, and no secret moves."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from cormorant.playground import open_playground
from cormorant.playground.arr import APPS, Arr
from cormorant.playground.http import StandInRequest, StandInResponse, as_html
from cormorant.playground.prowlarr import Jackett, Prowlarr, ProwlarrEntry
from tests.cli.app_place import KEY, AppPlace, indexer


@define
class Page:
    """A web page, whatever is asked."""

    name: str = "page"
    asked: list[StandInRequest] = field(factory=list)

    async def answer(self, asked: StandInRequest) -> StandInResponse:
        return as_html("Welcome!")


def prowlarr(*names: str, **habits: Any) -> Prowlarr:
    return Prowlarr(key=KEY, entries=[ProwlarrEntry(indexer=indexer(name, **habits)) for name in names])


@asynccontextmanager
async def place_with(folder: Path, *sites: Any) -> AsyncIterator[AppPlace]:
    async with open_playground(*sites) as playground:
        yield AppPlace(folder, playground)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "data" / "cormorant.db")) as connection:
        return connection.execute(
            "SELECT name, kind, url, key FROM sources WHERE NOT is_removed ORDER BY name"
        ).fetchall()


def steps(facts: Any) -> dict[str, str]:
    return {each["title"]: each["step"] for each in facts["indexers"]}


@pytest.mark.slow("makes a database on disk")
async def test_each_indexer_becomes_a_source_at_prowlarrs_address_with_prowlarrs_key(tmp_path: Path) -> None:
    app = Prowlarr(
        key=KEY,
        entries=[
            ProwlarrEntry(indexer=indexer("attic", is_private=True), title="The Attic (API)"),
            ProwlarrEntry(indexer=indexer("post", kind="newznab")),
            ProwlarrEntry(indexer=indexer("wreck"), is_enabled=False),
        ],
    )
    async with place_with(tmp_path, app) as place:
        url = place.playground.url_of("prowlarr")
        ended = await place.run("import", "prowlarr", f"{url}/")
        tested = await place.run_plain("sources", "test", "post")

    assert ended.code == 0, ended.err
    assert rows(tmp_path) == [
        ("post", "newznab", f"{url}/2/api", KEY),
        ("the-attic-api", "torznab", f"{url}/1/api", KEY),
    ]
    assert "The Attic (API)  add   the-attic-api  torznab  private" in ended.out
    assert "Wreck            skip                 torznab           it is switched off there" in ended.out
    assert "2 added, 0 brought up to date" in ended.out
    assert KEY not in ended.out + ended.err
    assert tested.code == 0, tested.err


@pytest.mark.slow("makes a database on disk")
async def test_again_adds_nothing_and_another_key_reaches_every_source(tmp_path: Path) -> None:
    app = prowlarr("attic", "cellar")
    async with place_with(tmp_path, app) as place:
        words = ("import", "prowlarr", place.playground.url_of("prowlarr"))
        first = await place.facts(*words)
        second = await place.facts(*words)
        app.key = "another-key-now"
        app.entries = app.entries[:1]
        third = await place.facts(*words, key=app.key)

    assert steps(first) == {"Attic": "add", "Cellar": "add"}
    assert steps(second) == {"Attic": "keep", "Cellar": "keep"}
    assert (steps(third), third["gone"]) == ({"Attic": "update"}, ["cellar"])
    assert [(name, key) for name, _, _, key in rows(tmp_path)] == [("attic", "another-key-now"), ("cellar", KEY)]


@pytest.mark.slow("makes a database on disk")
async def test_what_was_removed_by_hand_comes_back_with_what_it_spent(tmp_path: Path) -> None:
    async with place_with(tmp_path, prowlarr("attic")) as place:
        words = ("import", "prowlarr", place.playground.url_of("prowlarr"))
        await place.facts(*words, "--limits", "default")
        await place.run_plain("sources", "test", "attic")
        await place.run_plain("sources", "remove", "attic")
        again = await place.run(*words)
        listed = await place.run_plain("sources", "list")

    assert "Attic     add again  attic   torznab  default  it was here before, what was spent still counts" in again.out
    assert listed.out.splitlines()[1].split()[:4] == ["attic", "torznab", place.playground.address[7:], "1"]


@pytest.mark.slow("makes a database on disk")
async def test_a_name_that_is_taken_and_an_address_of_the_file_are_respected(tmp_path: Path) -> None:
    async with place_with(tmp_path, prowlarr("attic", "cellar", "loft")) as place:
        url = place.playground.url_of("prowlarr")
        place.write(f'[sources.mine]\nurl = "{url}/2/api"\n[sources.attic]\nurl = "http://elsewhere/api"\n')
        facts = await place.facts("import", "prowlarr", url, "--only", "attic", "--only", "Cellar", "--dry-run")

    assert [(each["source"], each["step"], each["why"]) for each in facts["indexers"]] == [
        ("attic-2", "add", ""),
        ("mine", "skip", "it stands in the settings file, which is not changed"),
    ]
    assert not (tmp_path / "data").exists()


@pytest.mark.slow("makes a database on disk")
async def test_jackett_lists_its_indexers_with_its_key_alone(tmp_path: Path) -> None:
    app = Jackett(key=KEY, indexers=[indexer("attic", is_private=True), indexer("quay")])
    async with place_with(tmp_path, app) as place:
        url = place.playground.url_of("jackett")
        facts = await place.facts("import", "jackett", url)
        wrong = await place.run("import", "jackett", url, key="wrong")
        tested = await place.run_plain("sources", "test", "quay")

    assert [(each["source"], each["limits"]) for each in facts["indexers"]] == [
        ("attic", "private"),
        ("quay", "default"),
    ]
    assert rows(tmp_path)[1][2] == f"{url}/api/v2.0/indexers/quay/results/torznab/api"
    assert (wrong.code, wrong.err) == (
        1,
        "cormorant: Jackett: it does not accept this key; look at the top of Jackett's page\n",
    )
    assert tested.code == 0, tested.err


@pytest.mark.slow("runs seven commands")
async def test_what_is_not_prowlarr_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    async with place_with(tmp_path, prowlarr("attic"), Page(), Arr(app=APPS["sonarr"], key=KEY)) as place:
        url_of = place.playground.url_of
        wrong_key = await place.run("import", "prowlarr", url_of("prowlarr"), key="wrong")
        web_page = await place.run("import", "prowlarr", url_of("page"))
        jackett = await place.run("import", "jackett", url_of("page"))
        nobody = await place.run("import", "prowlarr", "http://127.0.0.1:1")
        unknown = await place.run("import", "prowlarr", url_of("prowlarr"), "--only", "Atic")
        no_address = await place.run("import", "prowlarr", "prowlarr:9696")
        no_address_of_jackett = await place.run("import", "jackett", "jackett:9117")
        limits = await place.run("import", "prowlarr", url_of("prowlarr"), "--limits", "nope")

    assert (
        wrong_key.err == "cormorant: Prowlarr: it does not accept this key; look in Prowlarr under Settings, General\n"
    )
    assert "answers with a web page, so it is not the API of Prowlarr; check the address" in web_page.err
    assert "answers with a web page, so it is not the API of Jackett; check the address" in jackett.err
    assert "http://127.0.0.1:1 cannot be reached" in nobody.err
    assert "--only: Prowlarr has no indexer called 'Atic'; did you mean Attic?" in unknown.err
    assert "such as http://prowlarr:9696" in no_address.err
    assert "such as http://jackett:9117" in no_address_of_jackett.err
    assert '--limits: there are no limits called "nope"' in limits.err
    assert [each.code for each in (wrong_key, web_page, jackett, nobody, unknown, no_address, limits)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        2,
    ]
    assert not (tmp_path / "data").exists()

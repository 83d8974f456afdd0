"""`cormorant clients` on real databases."""

from __future__ import annotations

import re

import pytest

from actors import SystemClock
from actors.environment import Environment
from cormorant.cli.console.database_session import with_database
from cormorant.rules.search.limits import Lane, SourceLimits
from cormorant.rules.secrets import Secret
from cormorant.services.app_connections import client_key
from cormorant.settings import load_settings
from storage import access
from storage.access import digest_of
from storage.search import source_states, sources
from storage.search.source_states import ReservationRequest
from tests.cli.source_place import SourcePlace

pytestmark = pytest.mark.slow("opens databases")


def test_an_app_that_was_added_is_listed_and_of_its_key_only_a_digest_is_kept(each_place: SourcePlace) -> None:
    added = each_place.run("clients", "add", "sonarr", "--priority", "background", "--share", "25%", "--hold", "10s")
    listed = each_place.run("clients", "list")

    key = added.out.splitlines()[1].strip()
    assert added.out.startswith("sonarr is added. Its key is shown this once;")
    assert "URL http://127.0.0.1:7979/gate/combined" in added.out
    assert re.search(r"^sonarr +background +25% +10s +0 +0 +by command +-$", listed.out, re.MULTILINE)
    [record] = each_place.write(access.all_clients)
    assert record.key_digest == digest_of(key)
    assert key not in listed.out + str(record)


def test_the_same_for_programs_with_what_was_spent(source_place: SourcePlace) -> None:
    source_place.add("attic")
    key = source_place.facts("clients", "add", "sonarr")["key"]
    now = SystemClock().now()

    def spend(connection: object) -> None:
        limits = SourceLimits(spacing_s=0, pace_s=0, in_flight_max=9)
        attic = sources.find(connection, "attic")  # type: ignore[arg-type]  # it is a connection
        for lane in (Lane.QUERY, Lane.QUERY, Lane.GRAB):
            wanted = ReservationRequest(lane=lane, lease_s=60.0, consumer="sonarr")
            source_states.reserve(connection, attic.id, wanted, configured=limits, now=now)  # type: ignore[arg-type]  # as above

    source_place.write(spend)

    assert len(key) == 43
    assert source_place.facts("clients", "list") == {
        "clients": [
            {
                "name": "sonarr",
                "priority": "completion",
                "share": 1.0,
                "hold_s": 60.0,
                "from_file": False,
                "queries_today": 2,
                "grabs_today": 1,
                "sources": [{"source": "attic", "queries_today": 2, "grabs_today": 1}],
            }
        ]
    }


def test_an_app_of_the_settings_file_is_shown_and_not_touched(source_place: SourcePlace) -> None:
    (source_place.folder / "config.toml").write_text('[clients.radarr]\nshare = "50%"\n')
    first = source_place.run("clients", "add", "radarr")
    source_place.run("clients", "add", "sonarr")
    ended = [
        source_place.run("clients", *words) for words in (("remove", "radarr"), ("add", "sonarr"), ("remove", "x"))
    ]

    assert [each.code for each in (first, *ended)] == [1, 1, 1, 1]
    assert "there is a client 'radarr' already; change [clients.radarr] in the settings file" in first.err
    assert "the client 'radarr' is one of the settings file; take [clients.radarr] out of it" in ended[0].err
    assert "there is a client 'sonarr' already" in ended[1].err
    assert "there is no client 'x'; there are sonarr" in ended[2].err
    assert re.search(r"^radarr .* \S*config.toml +-$", source_place.run("clients", "list").out, re.MULTILINE)
    assert source_place.run("clients", "remove", "sonarr").out.startswith("sonarr is removed; its key and its links")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["Sonarr"], 'NAME: "Sonarr" cannot be a name'),
        (["sonarr", "--share", "200%"], "is not a share"),
        (["sonarr", "--hold", "90s"], "1m 30s is out of range; allowed: 0s to 1m 20s"),
        (["sonarr", "--priority", "rss"], "'rss' is not one of"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_made(source_place: SourcePlace, words: list[str], told: str) -> None:
    ended = source_place.run("clients", "add", *words)

    assert ended.code == 2
    assert told in ended.err
    assert not (source_place.folder / "sources.db").exists()


def test_without_any_app_the_list_says_how_to_add_one(source_place: SourcePlace) -> None:
    source_place.write(lambda _: None)

    assert "no clients yet; add one: cormorant clients add NAME" in source_place.run("clients", "list").out


def test_the_key_of_an_app_that_was_removed_does_not_come_back(source_place: SourcePlace) -> None:
    source_place.add("attic")
    settings = load_settings(source_place.folder / "config.toml", source_place.environment())

    def key_of_radarr() -> Secret:
        return with_database(settings, lambda at: client_key(Environment(settings, database=at), "radarr"))

    first, again = key_of_radarr(), key_of_radarr()
    source_place.run("clients", "remove", "radarr")
    after = key_of_radarr()

    assert first == again
    assert after != first
    [record] = source_place.write(access.all_clients)
    assert record.key_digest == digest_of(after.reveal())

"""`cormorant sources` and `cormorant explain` on real databases, with an indexer on loopback."""

from __future__ import annotations

import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.bounds import WAIT_S
from tests.cli.program import Program
from tests.cli.source_place import KEY, WRONG_KEY, SourcePlace

pytestmark = pytest.mark.slow("opens databases and asks a server")


def test_a_source_that_was_added_is_listed_with_its_host_and_without_its_key(each_place: SourcePlace) -> None:
    added = each_place.add("attic", "--limits", "private", "--per-day", "300", "--key", KEY)
    listed = each_place.run("sources", "list")

    assert added.out.startswith(f"attic is added: torznab at 127.0.0.1:{each_place.indexer.port}\n")
    assert re.search(
        rf"^attic +torznab +127.0.0.1:{each_place.indexer.port} +0/60 +0/300 +0/50 +open$", listed.out, re.MULTILINE
    )
    facts = each_place.facts("sources", "list")
    assert facts["sources"][0]["has_key"] is True
    assert KEY not in added.out + listed.out + str(facts)
    assert each_place.stored_key("attic") == KEY


def test_without_any_source_the_list_says_how_to_add_one(source_place: SourcePlace) -> None:
    source_place.write(lambda _: None)

    assert "no sources yet; add one: cormorant sources add NAME URL" in source_place.run("sources", "list").out


@pytest.mark.parametrize("way", ["file", "standard input", "- as file"])
def test_the_key_need_not_stand_on_the_command_line(source_place: SourcePlace, tmp_path: Path, way: str) -> None:
    (tmp_path / "key").write_text(f" {KEY}\n")
    words = {"file": ["--key-file", str(tmp_path / "key")], "standard input": [], "- as file": ["--key-file", "-"]}[way]
    typed = "" if way == "file" else f"{KEY}\n"

    ended = source_place.run("sources", "add", "attic", "http://a.example/api", *words, typed=typed)

    assert ended.code == 0, ended.err
    assert source_place.stored_key("attic") == KEY


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["attic", "ftp://a.example/"], "URL: it is not the address of a site"),
        (["attic", "http://a.example/api?apikey=geheim"], "URL: a ? or # stands in it"),
        (["attic", ""], "URL: it is empty"),
        (["Attic", "http://a.example/"], 'NAME: "Attic" cannot be a name'),
        (["all", "http://a.example/"], 'NAME: "all" cannot be a name here'),
        (["attic", "http://a.example/", "--limits", "lavish"], '--limits: there are no limits called "lavish"'),
        (["attic", "http://a.example/", "--per-day", "0"], "0 is out of range; allowed: 1 to 1000000"),
        (["attic", "http://a.example/", "--per-hour=-3"], "-3 is out of range"),
        (["attic", "http://a.example/", "--spacing", "soon"], '"soon" is not a duration'),
        (["attic", "http://a.example/", "--reset", "25:00 UTC"], "25:00 UTC"),
        (["attic", "http://a.example/", "--proxy", "geheim@"], "--proxy: it is not the address of a proxy"),
        (["attic", "http://a.example/", "--key", "x", "--key-file", "-"], "give --key or --key-file, not both"),
        (["attic", "http://a.example/", "--key", "geheim und mehr"], "the key: it is no single word"),
        (["attic", "http://a.example/", "--kind", "gopher"], "'gopher' is not one of 'torznab', 'newznab'"),
    ],
)
def test_what_cannot_be_added_is_refused_without_repeating_a_secret(
    source_place: SourcePlace, words: list[str], told: str
) -> None:
    ended = source_place.run("sources", "add", *words)

    assert ended.code == 2
    assert told in ended.err
    assert "geheim" not in ended.err


def test_a_name_and_an_address_are_there_once(source_place: SourcePlace) -> None:
    source_place.add("attic")

    again = source_place.run("sources", "add", "attic", "http://b.example/api")
    renamed = source_place.run("sources", "add", "loft", f"{source_place.indexer.url('attic')}/")

    assert (again.code, renamed.code) == (1, 1)
    assert again.err.startswith("cormorant: there is a source 'attic' already; choose another name")
    assert renamed.err == "cormorant: this address is in use already as 'attic'; one account has one source\n"


def test_a_source_that_comes_back_goes_on_from_what_was_spent(each_place: SourcePlace) -> None:
    each_place.add("attic", "--per-day", "1")
    each_place.facts("sources", "test", "attic")
    each_place.run("sources", "remove", "attic")

    back = each_place.add("loft", "--per-day", "1", at="attic")

    told = "it was here before and goes on from what was spent (queries in the last 24 hours: 1); it waits for the limit per"
    assert told in back.out
    assert each_place.listed("loft")["is_open"] is False
    assert each_place.run("sources", "test", "loft").code == 1
    assert each_place.indexer.times_asked("attic") == 1


def test_a_test_tells_what_the_source_can_do_and_keeps_it(each_place: SourcePlace) -> None:
    each_place.add("attic", "--key", KEY)
    assert each_place.listed("attic")["caps_at"] is None

    ended = each_place.run("sources", "test", "attic")

    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[:4] == [
        "attic answers: Attic",
        "  searches    search, tv",
        "  page size   100",
        "  categories  2: 5000 TV",
    ]
    assert each_place.indexer.asked == [("attic", {"t": "caps", "apikey": KEY})]
    listed = each_place.listed("attic")
    assert datetime.now(UTC) - datetime.fromisoformat(listed["caps_at"]) < timedelta(seconds=WAIT_S)
    assert listed["queries_today"] == 1
    assert listed["gates"] == []


def test_a_wrong_key_stops_the_source_until_it_has_another(source_place: SourcePlace) -> None:
    source_place.indexer.answers["attic"] = WRONG_KEY
    source_place.add("attic", "--key", KEY)

    refused = source_place.run("sources", "test", "attic")
    again = source_place.run("sources", "test", "attic")

    assert (refused.code, again.code) == (1, 1)
    assert "it does not accept our key (HTTP 200, code 100, Incorrect user credentials); it is stopped" in refused.err
    assert refused.err.endswith("cormorant sources remove attic, then add it with the right key\n")
    assert "attic may not be asked now and was not: waits for new credentials" in again.err
    assert source_place.listed("attic")["state"].startswith("stopped: it refused our credentials")
    assert source_place.indexer.times_asked("attic") == 1

    source_place.run("sources", "remove", "attic")
    assert source_place.add("attic", "--key", "another").out.count("it is open") == 1


def test_reset_forgets_refused_credentials_and_nothing_that_was_spent(source_place: SourcePlace) -> None:
    source_place.indexer.answers["attic"] = WRONG_KEY
    source_place.add("attic")
    source_place.run("sources", "test", "attic")

    told = source_place.run("sources", "reset", "attic").out

    assert told.endswith("what was spent stays spent; it is open\n")
    assert source_place.listed("attic")["queries_today"] == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [("<html>log in</html>", "it answered with a web page instead of XML"), ("\x00\x01nonsense", "attic: ")],
)
def test_garbage_is_told_in_one_line(source_place: SourcePlace, answer: str, told: str) -> None:
    source_place.indexer.answers["attic"] = answer
    source_place.add("attic")

    ended = source_place.run("sources", "test", "attic")

    assert ended.code == 1
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert source_place.listed("attic")["failures_in_a_row"] == 1


def test_nobody_at_the_address_is_told_in_one_line(source_place: SourcePlace) -> None:
    source_place.run("sources", "add", "attic", "http://127.0.0.1:1/api")

    ended = source_place.run("sources", "test", "attic")

    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "http://127.0.0.1:1 cannot be reached" in ended.err


def test_a_paused_source_is_not_asked_until_it_is_resumed(each_place: SourcePlace) -> None:
    each_place.add("attic")

    paused = each_place.run("sources", "pause", "attic")
    refused = each_place.run("sources", "test", "attic")
    state = each_place.listed("attic")["state"]
    resumed = each_place.run("sources", "resume", "attic")
    again = each_place.run("sources", "resume", "attic")

    assert paused.out.startswith("attic is paused until cormorant sources resume attic, for every process")
    assert refused.code == 1
    assert "may not be asked now and was not: waits for the end of its pause: it was paused by hand" in refused.err
    assert each_place.indexer.asked == []
    assert state == "paused: it was paused by hand; resume it"
    assert resumed.out == "attic is no longer paused; it is open\n"
    assert again.out == "attic was not paused; it is open\n"


def test_a_pause_may_have_an_end(source_place: SourcePlace) -> None:
    source_place.add("attic")

    facts = source_place.facts("sources", "pause", "attic", "--for", "2h")
    listed = source_place.listed("attic")

    until = datetime.fromisoformat(facts["until"])
    assert timedelta(hours=2, seconds=-WAIT_S) < until - datetime.now(UTC) <= timedelta(hours=2)
    assert listed["opens_at"] == facts["until"]
    assert re.fullmatch(r"paused until [\d: -]+", listed["state"])


@pytest.mark.parametrize("verb", ["test", "pause", "resume", "reset", "remove"])
def test_an_unknown_source_is_told_with_those_that_there_are(source_place: SourcePlace, verb: str) -> None:
    source_place.add("attic")

    ended = source_place.run("sources", verb, "loft")

    assert ended.code == 1
    assert ended.err == "cormorant: there is no source 'loft'; there are attic\n"


def test_a_source_of_the_settings_file_is_known_before_any_service_has_run(source_place: SourcePlace) -> None:
    written = f'[sources.attic]\nurl = "{source_place.indexer.url("attic")}"\nkey = "{KEY}"\n'
    (source_place.folder / "config.toml").write_text(written)
    source_place.write(lambda _: None)

    listed = source_place.listed("attic")
    tested = source_place.run("sources", "test", "attic")

    assert (listed["origin"], listed["state"]) == ("configured", "open")
    assert tested.code == 0, tested.err
    assert source_place.listed("attic")["queries_today"] == 1
    assert source_place.run("sources", "pause", "attic").code == 0


def test_a_source_of_the_settings_file_is_changed_only_there(source_place: SourcePlace) -> None:
    url = source_place.indexer.url("attic")
    (source_place.folder / "config.toml").write_text(f'[sources.attic]\nurl = "{url}"\n')
    source_place.write(lambda _: None)

    removed = source_place.run("sources", "remove", "attic")
    same_name = source_place.run("sources", "add", "attic", "http://b.example/api")
    same_address = source_place.run("sources", "add", "loft", url)

    assert (removed.code, same_name.code, same_address.code) == (1, 1, 1)
    assert "config.toml; it cannot be removed by command: take [sources.attic] out of that file" in removed.err
    assert "config.toml has a source attic already; change it there" in same_name.err
    assert "config.toml has this address already as attic" in same_address.err


def test_a_preset_of_the_settings_file_can_be_named(source_place: SourcePlace) -> None:
    (source_place.folder / "config.toml").write_text("[limits.slow]\nper_hour = 7\n")

    source_place.add("attic", "--limits", "slow", "--grabs-per-day", "3", "--reserve-interactive", "25%")

    limits = source_place.listed("attic")["limits"]["holding"]
    assert (limits["per_hour"], limits["grabs_per_day"], limits["reserve_interactive"]) == (7, 3, 0.25)


def test_explain_shows_the_gates_in_order_and_when_each_opens(each_place: SourcePlace) -> None:
    each_place.add("attic", "--spacing", "1000s", "--pace", "10h", "--per-hour", "1", "--reset", "03:30 UTC")
    each_place.run("sources", "test", "attic")

    told = each_place.run("explain", "attic").out
    facts = each_place.facts("explain", "attic", "--priority", "background")
    grab = each_place.facts("explain", "attic", "--grab")

    reasons = [line.split()[0] for line in told.splitlines()[4:]]
    every = "enabled stopped paused breaker cooldown in_flight spacing pace minute hour reset month"
    assert reasons == every.split()
    assert re.search(r"^a search of a person can go in 5\d min, at [\d: -]+$", told, re.MULTILINE)
    assert re.search(r"^hour +[\d: -]+ +1 of 1 queries per hour are spent$", told, re.MULTILINE)
    assert [gate["gate"] for gate in facts["gates"]] == ["spacing", "pace", "hour"]
    assert facts["spent"][0] | {"since": ""} == {"lane": "query", "per": "hour", "count": 1, "limit": 1, "since": ""}
    assert facts["opens_at"] < facts["gates"][1]["opens_at"]
    assert facts["lines"][-1].startswith("goes at ")
    assert [gate["gate"] for gate in grab["gates"]] == ["spacing"]


def test_explain_knows_which_limits_the_site_stated_itself(source_place: SourcePlace) -> None:
    answer = '<rss xmlns:n="http://www.newznab.com/DTD/2010/feeds/attributes/"><channel>{}</channel></rss>'
    limits = '<n:apilimits apicurrent="1" apimax="40" grabcurrent="0" grabmax="9"/>'
    source_place.indexer.answers["attic:search"] = answer.format(limits)
    source_place.add("attic", "--per-day", "300")
    source_place.run("search", "anything")

    told = source_place.run("explain", "attic").out

    assert re.search(
        r"^day +open +1 of 40 spent, counted back from now \(the site says so; 300 are", told, re.MULTILINE
    )
    assert source_place.facts("explain", "attic")["limits"]["learned"]["grabs_per_day"] == 9


def test_a_running_service_takes_a_new_source_in(source_place: SourcePlace) -> None:
    folder, url = source_place.folder, source_place.url
    with Program("-m", "cormorant", "run", cwd=folder, CORMORANT_STORAGE__URL=url) as program:
        program.line_with("ready in")

        source_place.add("attic")

        assert "attic" in program.line_with("source.added")
        assert source_place.run("sources", "test", "attic").code == 0
        program.send(signal.SIGTERM)
        assert program.end().code == 0

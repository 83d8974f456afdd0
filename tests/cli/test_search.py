"""`cormorant search` on real databases: what was found, why a site waits, and that no limit is broken."""

from __future__ import annotations

import json
import re

import pytest
from sqlalchemy import Connection

from cormorant.playground.slskd import SlskdStandIn
from cormorant.rules.jobs.states import JobState
from cormorant.rules.watch.soulseek import PeerFile, PeerResponse
from storage.jobs import reports
from tests.cli.job_place import enqueue
from tests.cli.source_place import KEY, WRONG_KEY, SourcePlace, feed, item
from tests.cli.terminal import seen_of
from tests.stand_ins.threads import served_by_thread

pytestmark = pytest.mark.slow("opens databases and asks a server")


def two_sites(place: SourcePlace) -> None:
    """Two sites that share a find."""
    place.indexer.answers["attic:search"] = feed(item("Old Show", 1, seeders=3), item("New Show", 2, seeders=8))
    place.indexer.answers["loft:search"] = feed(item("New Show", 2, seeders=5), item("My Show", 3, seeders=1))
    place.add("attic", "--key", KEY)
    place.add("loft", "--key", KEY)


def test_what_several_sites_found_is_shown_once_and_the_best_seeded_first(each_place: SourcePlace) -> None:
    two_sites(each_place)

    ended = each_place.run("search", "some", "show")

    assert ended.code == 0, ended.err
    head, *rows = ended.out.splitlines()
    assert head.split() == ["SIZE", "AGE", "SEEDERS", "SOURCE", "TITLE"]
    assert [row.split("  ")[-1].strip() for row in rows] == ["New Show", "Old Show", "My Show"]
    assert re.search(r"2\.0 GB .* 8  (attic, loft|loft, attic)  New Show$", ended.out, re.MULTILINE)
    told = sorted(ended.err.splitlines())
    assert [re.sub(r"\d\.\d s", "_", line) for line in told] == [
        "attic  found  2 results in _",
        "loft   found  2 results in _",
    ]
    assert each_place.indexer.asked[0][1]["q"] == "some show"
    assert KEY not in ended.out + ended.err


def test_programs_get_one_document_without_links(source_place: SourcePlace) -> None:
    two_sites(source_place)

    ended = source_place.run("search", "show", "--json", "--limit", "2", "--category", "5000", "--kind", "tv")

    facts = json.loads(ended.out)
    assert [(each["source"], each["status"]) for each in sorted(facts["sources"], key=lambda each: each["source"])] == [
        ("attic", "found"),
        ("loft", "found"),
    ]
    assert facts["results"] == []
    assert source_place.indexer.asked[0][1] | {"apikey": ""} == {
        "t": "tvsearch",
        "q": "show",
        "cat": "5000",
        "extended": "1",
        "apikey": "",
    }
    plain = source_place.facts("search", "show", "--limit", "2")
    assert [each["title"] for each in plain["results"]] == ["New Show", "Old Show"]
    assert "link" not in plain["results"][0]
    assert KEY not in str(plain)


def test_peers_are_searched_through_slskd(source_place: SourcePlace) -> None:
    songs = tuple(PeerFile(filename=f"@@x\\Music\\A1\\New\\0{number} Song.flac", size_bytes=10**6) for number in (1, 2))
    stand_in = SlskdStandIn(
        peers=[PeerResponse(username="peer", files=songs)],
        answers_every_s=0.0,
        silence_max_s=0.1,
    )
    with served_by_thread(stand_in) as url:
        written = f'[sources.slskd]\nkind = "slskd"\nurl = "{url}"\nkey = "{stand_in.key}"\n'
        (source_place.folder / "config.toml").write_text(written)
        ended = source_place.run("search", "a1 new", "--source", "slskd")

    assert ended.code == 0, ended.err
    assert re.search(r"2\.0 MB .* slskd +New \[flac\] \(2 files\) from peer$", ended.out, re.MULTILINE)
    assert re.fullmatch(r"slskd  found  1 result in \d+\.\d s\n", ended.err)
    assert stand_in.searches == {}


def test_the_same_words_again_cost_nothing(source_place: SourcePlace) -> None:
    two_sites(source_place)
    source_place.run("search", "show", "--source", "attic")

    again = source_place.run("search", "Show", "--source", "attic", "--limit", "1")

    assert again.err == "attic  found  2 results kept from an earlier search\n"
    assert again.out.endswith("1 more: --limit 2\n")
    assert source_place.indexer.times_asked("attic") == 1
    assert source_place.indexer.times_asked("loft") == 0


def test_one_site_that_fails_does_not_hide_the_others(source_place: SourcePlace) -> None:
    two_sites(source_place)
    source_place.indexer.answers["loft:search"] = "<html>log in</html>"

    ended = source_place.run("search", "show")

    assert ended.code == 0
    assert "loft   failed  it answered with a web page instead of XML" in ended.err
    assert "Old Show" in ended.out


def test_when_no_site_answers_the_code_is_1(source_place: SourcePlace) -> None:
    source_place.indexer.answers["attic"] = WRONG_KEY
    source_place.add("attic", "--key", KEY)

    ended = source_place.run("search", "show")
    again = source_place.run("search", "show")

    assert (ended.code, again.code) == (1, 1)
    assert ended.out == "nothing found\n"
    assert "attic  failed  it does not accept our key (HTTP 200, code 100" in ended.err
    assert "attic  refused  it refused our credentials (it does not accept our key" in again.err
    assert source_place.indexer.times_asked("attic") == 1


def test_a_limit_holds_from_one_search_to_the_next(each_place: SourcePlace) -> None:
    each_place.add("attic", "--per-hour", "1")
    each_place.run("search", "one")

    ended = each_place.run("search", "two")

    assert ended.code == 1
    assert re.fullmatch(
        r"attic  not asked  it opens in 5\d min and --max-wait is 30s: 1 of 1 queries per hour are spent\n", ended.err
    )
    assert each_place.indexer.times_asked("attic") == 1


def test_a_paused_site_is_left_out_at_once(source_place: SourcePlace) -> None:
    source_place.add("attic")
    source_place.run("sources", "pause", "attic")

    ended = source_place.run("search", "show", "--max-wait", "10h")

    assert ended.err == "attic  not asked  nobody knows when it opens: it was paused by hand; resume it\n"


def test_a_site_that_opens_soon_is_waited_for(source_place: SourcePlace) -> None:
    source_place.add("attic", "--spacing", "1s")
    source_place.run("search", "one")

    facts = source_place.facts("search", "two")

    assert facts["sources"][0]["status"] == "found"
    first_at, second_at = source_place.indexer.asked_at
    assert second_at - first_at >= 1.0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["show"], 2, "there is no site to search yet; add one: cormorant sources add NAME URL, or [sources.NAME] in"),
        (["show", "--source", "loft"], 2, "there is no site to search yet"),
        ([" "], 2, "WORDS: there are none"),
        ([], 2, "Missing argument 'WORDS...'"),
        (["x" * 10_000], 2, "query: it has 10,000 characters; 1,000 are allowed"),
        (["show", "--category", "-1"], 2, "-1 is not in the range"),
        (["show", "--max-wait", "soon"], 2, '"soon" is not a duration'),
        (["show", "--limit", "0"], 2, "0 is not in the range"),
    ],
)
def test_what_cannot_be_searched_is_told(source_place: SourcePlace, words: list[str], code: int, told: str) -> None:
    ended = source_place.run("search", *words)

    assert ended.code == code
    assert told in ended.err


def test_an_unknown_site_is_told_with_those_that_there_are(source_place: SourcePlace) -> None:
    source_place.add("attic")

    ended = source_place.run("search", "show", "--source", "loft")

    assert ended.code == 1
    assert ended.err == "cormorant: there is no source 'loft'; there are attic\n"


def test_a_search_claims_no_jobs(source_place: SourcePlace) -> None:
    source_place.add("attic")
    job_id = source_place.write(lambda connection: enqueue(connection, "search"))

    source_place.run("search", "show")

    def state(connection: Connection) -> JobState | None:
        job = reports.show(connection, job_id)
        return None if job is None else job.state

    assert source_place.write(state) is JobState.PENDING


def test_a_terminal_shows_why_a_site_waits_and_ctrl_c_ends_it_cleanly(source_place: SourcePlace) -> None:
    source_place.add("attic", "--spacing", "10h")
    source_place.add("loft")
    source_place.indexer.slow_s["loft"] = 1000.0
    source_place.run("sources", "test", "attic")

    shown = on_a_terminal(source_place, "search", "show", "--max-wait", "20h", enough=rb"for [1-9]\d* s", code=130)

    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    assert re.search(r"attic +waits +3\d{4} s, until [\d: -]+: the last request ended", plain)
    assert re.search(r"loft +asked +for [1-9]\d* s", plain)
    assert "cormorant: interrupted; the search was cancelled" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")
    loft = source_place.listed("loft")
    assert (loft["queries_today"], loft["gates"], loft["failures_in_a_row"]) == (1, [], 0)
    assert source_place.indexer.times_asked("attic") == 1


def test_a_terminal_shows_the_results_under_the_sites_within_its_width(source_place: SourcePlace) -> None:
    long = "日本" * 60
    source_place.indexer.answers["attic:search"] = feed(item(long, 1, seeders=3), item("\x1b[2Jodd", 2, seeders=1))
    source_place.add("attic")

    shown = on_a_terminal(source_place, "search", "show")

    *_, first, second = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line) for line in shown.splitlines()]
    assert re.search(r"attic +\x1b\[32mfound", shown)
    assert "日本" in first
    assert sum(2 if character in "日本" else 1 for character in first) <= 80
    assert first.endswith("…")
    assert "odd" in second


def on_a_terminal(place: SourcePlace, *words: str, enough: bytes | None = None, code: int = 0) -> str:
    """What a person sees."""
    env = place.environment() | {"TERM": "xterm"}
    return seen_of(*words, cwd=place.folder, env=env, enough=enough, code=code).replace("\r\n", "\n")

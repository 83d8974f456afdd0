"""Settings in tables by name: what the file names, what the environment refines, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import time
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cormorant.rules.errors import SettingsError
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.keys import secrets_in
from cormorant.rules.settings.settings import SearchSettings
from cormorant.rules.settings.sources import LimitSettings, ReserveSettings, SourceSettings
from cormorant.rules.units import TimeOfDay
from cormorant.settings import load_settings

NONE: Mapping[str, str] = {}
REDACTED = '[sources.redacted]\nurl = "http://prowlarr:9696/1/api"\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text)
    return file


def problems_of(file: Path, environ: Mapping[str, str] = NONE) -> list[str]:
    with pytest.raises(SettingsError) as refusal:
        load_settings(file, environ)
    return [problem.replace(str(file), "config.toml") for problem in refusal.value.problems]


def test_the_file_names_sources_and_limits(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("k2\n")
    file = write(
        tmp_path,
        '[limits.private]\nspacing = "10s"\nreserve.interactive = "20%"\n'
        '[sources.redacted]\nurl = "http://prowlarr:9696/1"\nkey = { env = "K1" }\nlimits = "private"\n'
        'per_day = 300\nreset = "00:00 UTC"\ntimeout = "20s"\n'
        '[sources.nzb-geek]\nkind = "newznab"\nurl = "https://nzb.example"\nkey = { file = "key.txt" }\n'
        'enabled = false\nproxy = "http://me:pw@gate:3128"\nreserve = { interactive = "50%" }\n',
    )

    settings = load_settings(file, {"K1": "k1"})

    assert settings.limits == {"private": LimitSettings(spacing_s=10.0, reserve=ReserveSettings(interactive=0.2))}
    assert settings.sources == {
        "redacted": SourceSettings(
            url="http://prowlarr:9696/1",
            key=Secret("k1"),
            limits="private",
            per_day=300,
            reset=TimeOfDay(time(0)),
            timeout_s=20.0,
        ),
        "nzb-geek": SourceSettings(
            kind="newznab",
            url="https://nzb.example",
            key=Secret("k2"),
            enabled=False,
            proxy=Secret("http://me:pw@gate:3128"),
            reserve=ReserveSettings(interactive=0.5),
        ),
    }
    assert {Secret("k1"), Secret("k2"), Secret("pw")} <= set(secrets_in(settings))


def test_the_environment_refines_what_the_file_names(tmp_path: Path) -> None:
    file = write(tmp_path, f"{REDACTED}per_day = 5\n[sources.cross-seed]\n[limits.private]\n")
    environ = {
        "CORMORANT_SOURCES__REDACTED__PER_DAY": "300",
        "CORMORANT_SOURCES__REDACTED__RESET": "3:30 Europe/Berlin",
        "CORMORANT_SOURCES__REDACTED__KEY": "hunter2",
        "CORMORANT_SOURCES__CROSS_SEED__URL": "http://cross",
        "CORMORANT_SOURCES__CROSS_SEED__ENABLED": "no",
        "CORMORANT_LIMITS__PRIVATE__RESERVE__INTERACTIVE": "25%",
    }

    settings = load_settings(file, environ)

    redacted, crossing = settings.sources["redacted"], settings.sources["cross-seed"]
    assert (redacted.per_day, redacted.reset) == (300, TimeOfDay(time(3, 30), "Europe/Berlin"))
    assert redacted.key == Secret("hunter2")
    assert (crossing.url, crossing.enabled) == ("http://cross", False)
    assert settings.limits["private"].reserve.interactive == 0.25


def test_a_table_that_only_the_environment_names_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, REDACTED)
    environ = {
        "CORMORANT_SOURCES__RDACTED__KEY": "hunter2",
        "CORMORANT_LIMITS__ZZ__RESERVE__INTERACTIVE": "25%",
        "CORMORANT_SOURCES__REDACTED__PERDAY": "3",
    }

    assert problems_of(file, environ) == [
        (
            "CORMORANT_LIMITS__ZZ__RESERVE__INTERACTIVE: the file has no table [limits.zz]; write it there, "
            "the environment only refines it"
        ),
        (
            "CORMORANT_SOURCES__RDACTED__KEY: the file has no table [sources.rdacted]; write it there, "
            "the environment only refines it; did you mean sources.redacted?"
        ),
        "CORMORANT_SOURCES__REDACTED__PERDAY: there is no such setting; did you mean CORMORANT_SOURCES__REDACTED__PER_DAY?",
    ]


def test_a_file_that_cannot_be_read_does_not_make_every_variable_of_its_tables_wrong(tmp_path: Path) -> None:
    problems = problems_of(write(tmp_path, "[sources.redacted"), {"CORMORANT_SOURCES__REDACTED__PER_DAY": "3"})

    assert [problem.split(",")[0] for problem in problems] == ["config.toml"]


@pytest.mark.parametrize("name", ["Red", "1st", "-red", "red.acted", "réd", "", "a b", "a" * 41])
@pytest.mark.parametrize("table", ["sources", "limits"])
def test_a_wrong_name_is_told_once_with_the_remedy(tmp_path: Path, table: str, name: str) -> None:
    file = write(tmp_path, f'[{table}."{name}"]\nspacing = "1s"')

    problems = problems_of(file, {f"CORMORANT_{table}__{name}__PER_DAY".upper(): "1"} if name == "Red" else NONE)

    assert problems == [
        (
            f'config.toml: {table}.{name}: "{name}" cannot be a name; '
            "write 1 to 40 lower-case letters, digits, - and _, a letter first"
        )
    ]


def test_no_source_is_called_all_but_limits_may_be(tmp_path: Path) -> None:
    file = write(tmp_path, '[sources.all]\nurl = "http://x"\n[limits.all]\nper_day = 1')

    assert problems_of(file) == [
        'config.toml: sources.all: "all" cannot be a name here, it has a meaning of its own; choose another'
    ]


def test_names_that_are_one_in_the_environment_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, '[sources.a-b]\nurl = "http://x"\n[sources.a_b]\nurl = "http://y"')

    assert problems_of(file) == [
        (
            "config.toml: sources.a_b: sources.a-b is called the same in the environment, where - is written _; "
            "rename one of them"
        )
    ]


def test_everything_wrong_in_tables_by_name_is_told_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "[limits.mine]\nper_hour = 0\n[limits]\nother = 5\n"
        '[sources.a]\nurl = "ftp://host"\nlimits = "nope"\nreset = "25:00 UTC"\nperday = 3\nreserve = "20%"\n'
        'kind = "gopher"\nin_flight = true\n'
        '[sources.b]\nurl = "https://Host:443/x/"\nreset = "0:00 Europe/Berln"\n'
        '[sources.c]\nurl = "https://host/x"\nproxy = "gate"\nreserve.interactive = "95%"\n'
        "[sources.d]\n",
    )

    problems = problems_of(file, {"CORMORANT_SOURCES__A__PER_DAY": "0", "CORMORANT_SOURCES__B__LIMITS": "none"})

    assert sorted(problem.split("; ")[0] for problem in problems) == [
        "CORMORANT_SOURCES__A__PER_DAY: 0 is out of range",
        'CORMORANT_SOURCES__B__LIMITS: there are no limits called "none"',
        "config.toml: limits.mine.per_hour: 0 is out of range",
        "config.toml: limits.other: it is not a table of settings",
        "config.toml: sources.a.in_flight: true is not a whole number",
        'config.toml: sources.a.kind: "gopher" is not one of the choices',
        'config.toml: sources.a.limits: there are no limits called "nope"',
        "config.toml: sources.a.perday: there is no such setting",
        "config.toml: sources.a.reserve: it is not a table of settings",
        'config.toml: sources.a.reset: "25:00 UTC" is not a time of day with its zone',
        "config.toml: sources.a.url: it is not the address of a site",
        'config.toml: sources.b.reset: "Europe/Berln" is not a time zone',
        "config.toml: sources.c.proxy: it is not the address of a proxy",
        "config.toml: sources.c.reserve.interactive: 95% is out of range",
        "config.toml: sources.c.url: sources.b has the same address, so that one site would be counted as two",
        "config.toml: sources.d.url: the source has no address",
    ]


def test_a_name_that_is_unknown_only_because_its_table_is_wrong_is_not_told(tmp_path: Path) -> None:
    file = write(tmp_path, f'[limits]\nmine = 5\n{REDACTED}limits = "mine"\n[sources]\nother = 3')

    problems = problems_of(file, {"CORMORANT_SOURCES__OTHER__PER_DAY": "3"})

    assert [problem.split(": ")[1] for problem in problems] == ["limits.mine", "sources.other"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("sources = 5", "sources: it is not a table of settings; write [sources] and its settings below"),
        (
            f'{REDACTED}limits = "privat"\n[limits.mine]',
            (
                'sources.redacted.limits: there are no limits called "privat"; write [limits.NAME] for them, '
                "or one of: default, mine, private, slskd, spotify"
            ),
        ),
        (
            f'{REDACTED}[sources.other]\nurl = "HTTP://Prowlarr:9696/1/api/"',
            (
                "sources.other.url: sources.redacted has the same address, so that one site would be counted "
                "as two; leave out sources.redacted or sources.other"
            ),
        ),
        (
            "[sources.redacted]\nper_day = 3",
            (
                'sources.redacted.url: the source has no address; write one like "http://prowlarr:9696/1/api", '
                "or enabled = false"
            ),
        ),
    ],
)
def test_a_mistake_is_told_once_with_its_remedy(tmp_path: Path, table: str, problem: str) -> None:
    assert problems_of(write(tmp_path, table)) == [f"config.toml: {problem}"]


def test_no_address_is_fine_for_a_source_that_is_off_and_another_kind_makes_no_other_site(tmp_path: Path) -> None:
    fine = '[sources.a]\nurl = "http://x"\n[sources.c]\nenabled = false'
    twice = fine + '\n[sources.b]\nurl = "http://x"\nkind = "newznab"'

    assert list(load_settings(write(tmp_path, fine), NONE).sources) == ["a", "c"]
    with pytest.raises(SettingsError, match="sources.a has the same address"):
        load_settings(write(tmp_path, twice), NONE)


def test_the_search_has_its_own_table_and_older_names(tmp_path: Path) -> None:
    file = write(tmp_path, '[search]\nslots = 3\nwindow = "0s"\nhistory_keep = "1d"')

    search = load_settings(file, {"CACHE_ENABLED": "false", "CACHE_TTL_SECONDS": "60"}).search

    assert search == SearchSettings(
        slots=3, window_s=0.0, history_keep_s=86_400.0, cache_enabled=False, cache_ttl_s=60.0
    )
    assert problems_of(write(tmp_path, '[search]\nslots = 1001\nwindow = "2s"')) == [
        "config.toml: search.slots: 1001 is out of range; allowed: 1 to 1000",
        "config.toml: search.window: 2s is out of range; allowed: 0s to 1s",
    ]


MARK = "Hunter2"
SECRETS = st.text("abcXYZ059 :/@?#%&='\\{}[]\"é\t\n", max_size=30).flatmap(
    lambda around: st.sampled_from([MARK + around, around + MARK, around + MARK + around])
)
SHAPES = st.sampled_from(
    [
        "{}",
        "http://me:{}@gate:1080",
        "http://{}@gate",
        "ftp://{}",
        "gate:{}",
        "https://host/api?apikey={}",
        "https://host/{}#",
        "ftp://host/{}",
    ]
)
WAYS = st.sampled_from(
    [
        "{} = {}",
        "{} = [{}]",
        "{} = {{ value = {} }}",
        "{} = {{ env = 5, file = {} }}",
        '{} = {{ env = "REFERENCE" }} # {}',
        '{} = {{ file = "secret.txt" }} # {}',
    ]
)
PLACED = st.tuples(st.sampled_from(["key", "proxy", "url"]), SECRETS, SHAPES, WAYS, st.booleans())
MISTAKES = st.sampled_from(["", "per_day = 0", "nothing = 1", 'limits = "x"', "reset = 3", 'kind = "x"', "reserve = 1"])


@pytest.mark.slow("a hundred files")
@given(places=st.lists(PLACED, unique_by=lambda placed: placed[0], max_size=3), mistake=MISTAKES)
def test_no_secret_of_a_source_is_ever_told(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[str, str, str, str, bool]], mistake: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines, environ = ["[sources.redacted]", mistake], dict[str, str]()
    for key, secret, shape, way, is_variable in places:
        value = shape.replace("{}", secret)
        if is_variable:
            environ[f"CORMORANT_SOURCES__REDACTED__{key.upper()}"] = value
            environ[f"CORMORANT_SOURCES__READCTED__{key.upper()}"] = value
        else:
            lines.append(way.format(key, json.dumps(value)))
        environ["REFERENCE"] = value
        (folder / "secret.txt").write_text(value)

    try:
        source = load_settings(write(folder, "\n".join(lines)), environ).sources["redacted"]
        told = repr(evolve(source, url=""))
    except SettingsError as refusal:
        told = f"{refusal} {refusal!r} {refusal.problems}"

    assert MARK not in told

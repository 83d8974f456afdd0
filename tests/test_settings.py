"""Settings from a file and the environment: what wins, what is refused, and that all of it is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import field, frozen

from cormorant.rules.errors import SettingsError
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.fields import Alias, choice, duration, flag, named, number, path, secret, share, size
from cormorant.rules.settings.service import PlaygroundSettings
from cormorant.rules.settings.settings import Settings, StorageSettings
from cormorant.settings import load, load_settings

UNITS = 'write numbers with units (ms, s, m, h, d, w), such as "10s" or "1h 30m"'
NONE: Mapping[str, str] = {}


@frozen(kw_only=True)
class HostSettings:
    """A table under a name of the user's choice."""

    key: Secret = secret("Key.")  # noqa: RUF009  # an attrs field is made, not a value
    folder: str = path("hosts", "Folder.")
    per_day: int = number(100, "Requests.", low=1, high=1000)


@frozen(kw_only=True)
class TickSettings:
    """Every kind of setting that later parts need."""

    budget_s: float = duration(8.0, "Budget.", low_s=0.1, high_s=60.0, aliases=(Alias("TICK_BUDGET_MS", "ms"),))
    jitter: float = share(0.2, "Jitter.", aliases=(Alias("TICK_JITTER_PCT", "%", 100),))
    body_bytes: int = size(1_000_000, "Body.", low_bytes=1, high_bytes=10**9)
    persist: bool = flag(True, "Persist.", aliases=(Alias("PERSIST_JOBS"),))  # noqa: FBT003  # a default
    order: str = choice("old", "Order.", choices=("old", "new"))


@frozen(kw_only=True)
class Future:
    """Settings as they will be one day."""

    tick: TickSettings = field(factory=TickSettings)
    hosts: Mapping[str, HostSettings] = named(HostSettings)


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text)
    return file


def problems_of(file: Path, environ: Mapping[str, str] = NONE) -> list[str]:
    with pytest.raises(SettingsError) as refusal:
        load_settings(file, environ)
    return [problem.replace(str(file), "config.toml") for problem in refusal.value.problems]


def test_an_empty_file_gives_the_defaults_with_data_beside_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "")

    assert load_settings(file, NONE) == Settings(data=str(tmp_path / "data"))


def test_the_file_sets_what_it_names(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nstatement_timeout = "1m 30s"\nconnections = 7\n[log]\nformat = "json"')

    settings = load_settings(file, NONE)

    assert settings.storage == StorageSettings(statement_timeout_s=90.0, connections=7)
    assert settings.log.format == "json"


def test_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nhold = "1s"\nconnections = 7')
    environ = {"CORMORANT_STORAGE__HOLD": "2s", "CORMORANT_DATA": "elsewhere"}

    settings = load_settings(file, environ)

    assert settings.storage == StorageSettings(hold_s=2.0, connections=7)
    assert settings.data == str(tmp_path / "elsewhere")


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    file = write(tmp_path, '[log]\nlevel = "debug"')

    assert load_settings(file, {"CORMORANT_LOG__LEVEL": ""}).log.level == "debug"


def test_an_older_name_is_accepted_and_our_own_wins(tmp_path: Path) -> None:
    file = write(tmp_path, "")

    older = load_settings(file, {"WORKER_ID": "worker-1"})
    both = load_settings(file, {"WORKER_ID": "worker-1", "CORMORANT_SERVICE__WORKER_ID": "worker-2"})

    assert (older.service.worker_id, both.service.worker_id) == ("worker-1", "worker-2")


def test_bare_numbers_in_older_names_count_in_their_unit(tmp_path: Path) -> None:
    environ = {"TICK_BUDGET_MS": "2500", "TICK_JITTER_PCT": "0.25", "PERSIST_JOBS": "False"}

    future = load(Future, write(tmp_path, ""), environ)

    assert future.tick == TickSettings(budget_s=2.5, jitter=0.25, persist=False)


def test_a_wrong_value_in_an_older_name_is_told_with_that_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refusal:
        load(Future, write(tmp_path, ""), {"TICK_BUDGET_MS": "90000", "TICK_JITTER_PCT": "much"})

    assert refusal.value.problems[0] == "TICK_BUDGET_MS: 1m 30s is out of range; allowed: 100ms to 1m"
    assert refusal.value.problems[1].startswith('TICK_JITTER_PCT: "much" is not a share; ')


def test_tables_under_chosen_names_are_checked_like_all_others(tmp_path: Path) -> None:
    good = '[hosts.red]\nper_day = 5\nkey = "k"\n[tick]\nbody = "5 MB"\n'
    bad = "[hosts.red]\nper_day = 0\nperday = 5\n[hosts]\nblue = 3\n"

    future = load(Future, write(tmp_path, good), NONE)
    with pytest.raises(SettingsError) as refusal:
        load(Future, write(tmp_path, bad), NONE)

    red = HostSettings(key=Secret("k"), folder=str(tmp_path / "hosts"), per_day=5)
    assert future == Future(tick=TickSettings(body_bytes=5_000_000), hosts={"red": red})
    assert [problem.removeprefix(str(tmp_path)) for problem in refusal.value.problems] == [
        "/config.toml: hosts.red.per_day: 0 is out of range; allowed: 1 to 1000",
        "/config.toml: hosts.red.perday: there is no such setting; did you mean hosts.red.per_day?",
        "/config.toml: hosts.blue: it is not a table of settings; write [hosts.blue] and its settings below",
    ]


def test_everything_wrong_is_told_at_once_each_with_place_value_and_what_is_allowed(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'level = "debug"\ntime_zone = "Europe/Berln"\n'
        '[storage]\nstatment_timeout = "9s"\nstatement_timeout = 10\nconnections = 0\n'
        '[service]\nworker_id = 5\nstop_total = "1h"\n'
        '[log]\nformat = "xml"\nring = true\n',
    )

    problems = problems_of(file, {"CORMORANT_LOG__LEVEL": "loud", "CORMORANT_STORAGE_URL": "x"})

    assert sorted(problems) == [
        'CORMORANT_LOG__LEVEL: "loud" is not one of the choices; allowed: debug, info, warning, error',
        "CORMORANT_STORAGE_URL: there is no such setting; did you mean CORMORANT_STORAGE__URL?",
        "config.toml: level: there is no such setting; did you mean log.level?",
        'config.toml: log.format: "xml" is not one of the choices; allowed: logfmt, json',
        "config.toml: log.ring: true is not a whole number; allowed: 1 to 1000000",
        "config.toml: service.stop_total: 1h is out of range; allowed: 1s to 15m",
        "config.toml: service.worker_id: 5 is not text; put it in quotes",
        "config.toml: storage.connections: 0 is out of range; allowed: 1 to 100",
        "config.toml: storage.statement_timeout: 10 is not a duration; " + UNITS + "; allowed: 100ms to 10m",
        "config.toml: storage.statment_timeout: there is no such setting; did you mean storage.statement_timeout?",
        'config.toml: time_zone: "Europe/Berln" is not a time zone; did you mean Europe/Berlin?',
    ]


def test_broken_toml_is_told_with_line_and_column_beside_what_is_wrong_in_the_environment(tmp_path: Path) -> None:
    file = write(tmp_path, 'data = "x"\nlog = = 3\n')

    problems = problems_of(file, {"CORMORANT_STORAGE__CONNECTIONS": "x"})

    assert problems == [
        "config.toml, line 2, column 7: not valid TOML: Invalid value",
        'CORMORANT_STORAGE__CONNECTIONS: "x" is not a whole number; allowed: 1 to 100',
    ]


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b'data = "\xff"')

    assert problems_of(file)[0].startswith("config.toml: not valid TOML: 'utf-8' codec can't decode")


def test_a_file_past_the_limit_is_refused(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "#" * 1_000_001)) == [
        "config.toml: not valid TOML: it has more than 1000000 bytes"
    ]


def test_a_missing_file_is_told_with_the_remedy_and_nothing_is_created(tmp_path: Path) -> None:
    problems = problems_of(tmp_path / "config.toml")

    assert len(problems) == 1
    assert "there is no such file" in problems[0]
    assert "--config" in problems[0]
    assert list(tmp_path.iterdir()) == []


def test_a_value_where_a_table_belongs_is_told_once_even_when_the_environment_sets_something_in_it(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "storage = 5")

    problems = problems_of(file, {"CORMORANT_STORAGE__HOLD": "1s"})

    assert problems == ["config.toml: storage: it is not a table of settings; write [storage] and its settings below"]


def test_an_address_where_a_table_belongs_is_not_shown(tmp_path: Path) -> None:
    file = write(tmp_path, 'storage = "postgresql://me:hunter2@db/x"')

    assert "hunter2" not in problems_of(file)[0]


def test_what_is_wrong_in_the_file_is_told_although_the_environment_wins(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nhold = 5\nconnections = 0\n[log]\nlevel = "loud"')
    environ = {"CORMORANT_STORAGE__HOLD": "1s", "CORMORANT_LOG__LEVEL": "quiet"}

    problems = problems_of(file, environ)

    assert [problem.split(";")[0] for problem in problems] == [
        "config.toml: storage.hold: 5 is not a duration",
        "config.toml: storage.connections: 0 is out of range",
        'config.toml: log.level: "loud" is not one of the choices',
        'CORMORANT_LOG__LEVEL: "quiet" is not one of the choices',
    ]


def test_what_is_wrong_in_the_environment_is_told_beside_something_that_is_no_table(tmp_path: Path) -> None:
    file = write(tmp_path, "storage = 5")

    problems = problems_of(file, {"CORMORANT_STORAGE__CONNECTIONS": "0"})

    assert [problem.split(":")[0] for problem in problems] == ["config.toml", "CORMORANT_STORAGE__CONNECTIONS"]


def test_a_secret_that_is_out_of_reach_does_not_matter_when_the_environment_has_another(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nurl = { env = "DB" }')

    settings = load_settings(file, {"CORMORANT_STORAGE__URL": "postgresql://db/x"})

    assert settings.storage.url.reveal() == "postgresql://db/x"


@pytest.mark.parametrize("url", ["postgresql:/me:hunter2@db/x", "postgresql://me:hunter@2@db/x", "hunter2"])
def test_what_is_no_address_of_a_database_is_refused_without_being_shown(tmp_path: Path, url: str) -> None:
    in_file, in_environment = write(tmp_path, f'[storage]\nurl = "{url}"'), {"CORMORANT_STORAGE__URL": url}

    problems = problems_of(in_file) + problems_of(write(tmp_path, ""), in_environment)

    assert [problem.split(": ")[:2] for problem in problems] == [
        ["config.toml", "storage.url"],
        ["CORMORANT_STORAGE__URL", problems[1].split(": ")[1]],
    ]
    assert "hunter" not in "".join(problems)
    assert "; " in problems[0]


def test_settings_that_do_not_go_together_are_told_with_all_else_that_is_wrong(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        '[jobs]\nlock_timeout = "39.9s"\nconcurrency = 0\n',
    )

    problems = problems_of(file, {"CORMORANT_LOG__RING": "0"})

    assert problems == [
        "config.toml: jobs.concurrency: 0 is out of range; allowed: 1 to 1000",
        "CORMORANT_LOG__RING: 0 is out of range; allowed: 1 to 1000000",
        (
            "config.toml: jobs.lock_timeout: 39.9s is less than 2 times jobs.heartbeat (20s), so that a process that "
            "lives would count as dead; allowed: at least 40s"
        ),
    ]


@pytest.mark.parametrize(("written", "seconds"), [("1000", 1.0), ("300000", 300.0)])
def test_the_time_out_of_searches_through_slskd_has_a_range(tmp_path: Path, written: str, seconds: float) -> None:
    file = write(tmp_path, "")

    settings = load_settings(file, {"WATCHLIST_SLSKD_SEARCH_TIMEOUT_MS": written})

    assert settings.watchlist.slskd_search_timeout_s == seconds
    assert load_settings(file, NONE).watchlist.slskd_search_timeout_s == 60.0


@pytest.mark.parametrize("written", ["999", "300001"])
def test_a_time_out_of_searches_through_slskd_outside_its_range_is_refused(tmp_path: Path, written: str) -> None:
    [problem] = problems_of(write(tmp_path, ""), {"WATCHLIST_SLSKD_SEARCH_TIMEOUT_MS": written})

    assert problem.startswith("WATCHLIST_SLSKD_SEARCH_TIMEOUT_MS: ")
    assert problem.endswith("allowed: 1s to 5m")


def test_settings_that_just_go_together_are_accepted(tmp_path: Path) -> None:
    text = '[jobs]\nheartbeat = "20.3s"\nlock_timeout = "40.6s"'

    assert load_settings(write(tmp_path, text), NONE).jobs.lock_timeout_s == 40.6


def test_the_environment_may_end_a_conflict_in_the_file_or_make_one(tmp_path: Path) -> None:
    file = write(tmp_path, '[jobs]\nlock_timeout = "24s"')

    settled = load_settings(file, {"CORMORANT_JOBS__HEARTBEAT": "12s"})
    problems = problems_of(write(tmp_path, ""), {"CORMORANT_JOBS__LOCK_TIMEOUT": "24s"})

    assert settled.jobs.lock_timeout_s == 24.0
    assert problems[0].startswith("CORMORANT_JOBS__LOCK_TIMEOUT: 24s is less than 2 times jobs.heartbeat (20s)")


def test_a_conflict_with_a_setting_that_is_itself_wrong_is_not_told(tmp_path: Path) -> None:
    file = write(tmp_path, '[jobs]\nlock_timeout = "24s"\nheartbeat = "20"')

    assert [problem.split(": ")[1] for problem in problems_of(file)] == ["jobs.heartbeat"]


def test_a_secret_comes_from_text_a_variable_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("sqlite:///from-file\n")
    environ = {"DB": "sqlite:///from-env"}

    plain = load_settings(write(tmp_path, '[storage]\nurl = "sqlite:///plain"'), NONE)
    from_env = load_settings(write(tmp_path, '[storage]\nurl = { env = "DB" }'), environ)
    from_file = load_settings(write(tmp_path, '[storage]\nurl = { file = "key.txt" }'), NONE)

    revealed = [settings.storage.url.reveal() for settings in (plain, from_env, from_file)]
    assert revealed == [f"sqlite:///{tmp_path}/{name}" for name in ("plain", "from-env", "from-file")]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{ env = "DB" }', "the environment variable DB is not set; set it to the secret"),
        ('{ file = "key.txt" }', "the file FOLDER/key.txt cannot be read: No such file or directory"),
        ('{ file = "empty.txt" }', "the file FOLDER/empty.txt is empty"),
        ('{ file = "binary.txt" }', "the file FOLDER/binary.txt is not text of at most 10000 bytes"),
        ('{ vault = "hunter2" }', "it is not a secret; write one line"),
        ('{ env = "DB", file = "hunter2" }', "it is not a secret; write one line"),
        ("[12345678]", "it is not a secret; write one line"),
        ('"hunter2\\nhunter2"', "it is not a secret; write one line"),
    ],
)
def test_a_secret_that_cannot_be_had_is_told_without_its_value(tmp_path: Path, written: str, told: str) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "binary.txt").write_bytes(b"\xffhunter2")
    file = write(tmp_path, f"[storage]\nurl = {written}")

    problem = problems_of(file)[0]

    assert problem.startswith(f"config.toml: storage.url: {told.replace('FOLDER', str(tmp_path))}")
    assert "hunter2" not in problem
    assert "12345678" not in problem


def test_a_variable_that_the_file_names_may_begin_like_ours(tmp_path: Path) -> None:
    file = write(tmp_path, '[storage]\nurl = { env = "CORMORANT_DATABASE" }')

    settings = load_settings(file, {"CORMORANT_DATABASE": "postgresql://x"})

    assert settings.storage.url.reveal() == "postgresql://x"


def test_secrets_do_not_show_in_the_settings(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[storage]\nurl = "postgresql://me:hunter2@db/x"'), NONE)

    assert "hunter2" not in f"{settings} {settings!r} {settings.database_url} {settings.storage.url:>10}"


def test_variables_that_kubernetes_injects_are_not_ours(tmp_path: Path) -> None:
    environ = {
        "CORMORANT_SERVICE_HOST": "10.0.0.1",
        "CORMORANT_SERVICE_PORT": "80",
        "CORMORANT_SERVICE_PORT_HTTP": "80",
        "CORMORANT_PORT": "tcp://10.0.0.1:80",
        "CORMORANT_PORT_80_TCP_ADDR": "10.0.0.1",
        "CORMORANT_CONFIG": "config.toml",
    }

    assert load_settings(write(tmp_path, ""), environ) == load_settings(write(tmp_path, ""), NONE)


def test_settings_made_in_code_are_held_to_the_same_ranges() -> None:
    with pytest.raises(ValueError, match="connections: 0 is out of range; allowed: 1 to 100"):
        StorageSettings(connections=0)


def test_the_database_is_a_file_in_the_data_folder_unless_an_address_is_set() -> None:
    assert Settings(data="/srv/birds").database_url == Secret("sqlite:////srv/birds/cormorant.db")
    assert Settings(storage=StorageSettings(url=Secret("postgresql://x"))).database_url == Secret("postgresql://x")


@pytest.mark.parametrize("url", ["sqlite:////srv/x.db", "sqlite://", "sqlite:///:memory:", "postgresql:///x"])
def test_an_address_without_a_relative_file_stays_as_it_is(tmp_path: Path, url: str) -> None:
    settings = load_settings(write(tmp_path, ""), {"CORMORANT_STORAGE__URL": url})

    assert settings.database_url == Secret(url)


def test_an_address_of_an_odd_file_is_made_absolute_and_keeps_its_kind(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[storage]\nurl = "sqlite+pysqlite:///a%3Fb/50%25.db"'), NONE)

    assert settings.storage.url.reveal() == f"sqlite+pysqlite:///{tmp_path}/a%3Fb/50%25.db"


def test_the_shipped_file_is_valid_and_opens_the_playground_and_changes_no_other_default() -> None:
    shipped = Path(__file__).parents[1] / "config.toml"

    assert load_settings(shipped, NONE) == Settings(
        data=str(shipped.parent / "data"), playground=PlaygroundSettings(enabled=True)
    )


def test_a_playground_keeps_to_this_machine_and_to_a_database_of_its_own(tmp_path: Path) -> None:
    file = write(tmp_path, '[playground]\nenabled = true\nlisten = "0.0.0.0:7980"\n[storage]\nurl = "sqlite:///x.db"')

    assert [problem.split(";")[0] for problem in problems_of(file)] == [
        "config.toml: playground.enabled: the playground has a database of its own, and storage.url names another",
        "config.toml: playground.listen: other machines could reach 0.0.0.0:7980",
    ]

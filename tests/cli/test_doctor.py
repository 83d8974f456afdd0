"""`cormorant doctor`: what it finds, what it advises, and that it changes nothing."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cormorant.cli.console.preflight import mode_problems
from cormorant.cli.doctor_checks import DoctorStatus, clock_check, disk_check
from cormorant.settings import load_settings
from tests.cli.program import cormorant

NOW = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("free_bytes", "status"),
    [
        (10**9, DoctorStatus.OK),
        (10**9 - 1, DoctorStatus.WARN),
        (10**8, DoctorStatus.WARN),
        (10**8 - 1, DoctorStatus.FAIL),
        (0, DoctorStatus.FAIL),
    ],
)
def test_little_room_is_a_warning_and_no_room_a_failure(free_bytes: int, status: DoctorStatus) -> None:
    check = disk_check(free_bytes)

    assert check.status is status
    assert bool(check.remedy) is (status is not DoctorStatus.OK)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("apart_s", "status"),
    [
        (0, DoctorStatus.OK),
        (2, DoctorStatus.OK),
        (2.1, DoctorStatus.WARN),
        (60, DoctorStatus.WARN),
        (60.1, DoctorStatus.FAIL),
    ],
)
def test_clocks_apart_are_a_warning_and_then_a_failure(apart_s: float, status: DoctorStatus, sign: int) -> None:
    check = clock_check(NOW + sign * timedelta(seconds=apart_s), NOW, NOW)

    assert check.status is status


def test_a_slow_answer_is_no_skew() -> None:
    asked_at, answered_at = NOW, NOW + timedelta(seconds=30)

    assert clock_check(NOW + timedelta(seconds=29), asked_at, answered_at).status is DoctorStatus.OK


@pytest.mark.slow("starts the program, which loads everything")
def test_all_is_well_in_a_fresh_folder_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")

    ended = cormorant("doctor", cwd=tmp_path)

    assert ended.code == 0, ended.out + ended.err
    names = [line.split()[1] for line in ended.out.splitlines() if not line.startswith(" ")]
    assert names == ["settings", "data", "modes", "disk", "database", "versions"]
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.slow("starts the program, which loads everything")
def test_what_is_wrong_is_told_with_code_1(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        'data = "config.toml"\n[storage]\nurl = "postgresql://me:hunter2@127.0.0.1:1/x"'
    )

    ended = cormorant("doctor", cwd=tmp_path)

    assert ended.code == 1, ended.out
    assert ended.out.count("FAIL") == 2
    assert "move it away, or set data to another path" in ended.out
    assert "hunter2" not in ended.out


@pytest.mark.slow("starts the program, which loads everything")
def test_an_odd_password_is_not_told_either(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[storage]\nurl = "postgresql://me:hun/ter2@127.0.0.1:1/x?sslpassword=ter2"')

    ended = cormorant("doctor", cwd=tmp_path)

    assert ended.code == 1, ended.out
    assert "postgresql://me:***@127.0.0.1:1/x?***" in ended.out
    assert "ter2" not in ended.out + ended.err


@pytest.mark.slow("starts the program, which loads everything")
def test_what_run_refuses_in_the_settings_is_told_here_too(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[service]\nstop_total = "24s"')

    ended = cormorant("doctor", cwd=tmp_path)

    assert ended.code == 2
    assert "service.stop_total: 24s is less than the parts of the service may take to stop" in ended.out


@pytest.mark.slow("starts the program, which loads everything")
def test_unusable_settings_are_all_told_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('data = ""\n[log]\nlevel = "loud"')

    ended = cormorant("doctor", cwd=tmp_path)

    assert ended.code == 2
    assert ended.out.count("FAIL  settings") == 2


@pytest.mark.slow("starts the program, which loads everything")
def test_programs_get_the_same_as_json(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "config.toml").write_text("")

    ended = cormorant("doctor", "--json", cwd=tmp_path, CORMORANT_STORAGE__URL=postgres_url)

    answer = json.loads(ended.out)
    assert answer["ok"] is True
    assert {check["name"]: check["status"] for check in answer["checks"]} == dict.fromkeys(
        ["settings", "data", "modes", "disk", "database", "schema", "clock", "versions"], "ok"
    )


@pytest.mark.slow("starts the program, which loads everything")
def test_files_with_keys_that_other_users_can_open_are_told_with_the_command(tmp_path: Path) -> None:
    config, data = tmp_path / "config.toml", tmp_path / "data"
    config.write_text(
        '[sources.attic]\nkind = "torznab"\nurl = "http://attic.test/api"\nkey = "hunter2hunter2"\nlimits = "private"\n'
    )
    config.chmod(0o640)
    data.mkdir(mode=0o755)
    (data / "holiday.jpg").touch()
    (data / "cormorant.db").touch(mode=0o644)

    ended = cormorant("doctor", cwd=tmp_path)

    assert "warn  modes     other users can open data (mode 0755)\n" in ended.out
    assert f"-> chmod 700 {data}" in ended.out
    assert "other users can read the keys in config.toml (mode 0640)" in ended.out
    assert "-> chmod 600 config.toml" in ended.out
    assert "the next start corrects the modes of data/cormorant.db (0644)" in ended.out
    assert (config.stat().st_mode & 0o777, data.stat().st_mode & 0o777) == (0o640, 0o755)


@pytest.mark.slow("starts the program, which loads everything")
def test_a_key_in_the_address_of_a_feed_counts_as_a_key(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[feeds.x]\nurl = "https://x.test/rss?passkey=0123456789abcdef"\n')
    config.chmod(0o644)

    ended = cormorant("doctor", cwd=tmp_path)

    assert "other users can read the keys in config.toml (mode 0644)" in ended.out


def test_no_command_shuts_out_a_process_that_is_not_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = tmp_path / "config.toml", tmp_path / "data"
    config.write_text('[web]\nkey = "hunter2hunter2hunter2"\n')
    config.chmod(0o640)
    data.mkdir()
    data.chmod(0o777)
    settings = load_settings(config, {})
    monkeypatch.setattr(os, "geteuid", lambda: 987_654_321)

    by_group = mode_problems(settings, str(config))
    config.chmod(0o644)
    by_all = mode_problems(settings, str(config))

    assert [each.remedy for each in by_group] == [
        f'as root: chown uid 987654321 {data}; for several users set data_mode = "0660"'
    ]
    assert by_all[1].remedy == f"as root: chmod o-rwx {config}"

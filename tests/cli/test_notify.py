"""`cormorant notify test`, and addresses that are refused when the settings are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cormorant.cli import main
from cormorant.rules.errors import SettingsError
from cormorant.settings import load_settings
from tests.notifying.phone import ringing

SLOW = pytest.mark.slow("loads Apprise, a second")


@SLOW
def test_each_address_is_told_and_none_is_shown(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    with ringing() as phone:
        phone.refused = "/second"
        config.write_text(f'[notify]\napprise = ["{phone.address}", "{phone.address}/second"]\n')

        ended = CliRunner().invoke(main, ["notify", "test", "--config", str(config), "--json"])

    first, second = json.loads(ended.stdout)["addresses"]
    assert ended.exit_code == 1
    assert [told["title"] for told in phone.told] == ["Cormorant: a test"]
    assert first == {"address": 1, "service": "json", "told": True, "problem": None}
    assert "500" in second["problem"]
    assert "hunter2hunter2" not in ended.output
    assert "hook-secret" not in ended.output


def test_without_an_address_there_is_nobody_to_tell(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")

    ended = CliRunner().invoke(main, ["notify", "test", "--config", str(config)])

    assert ended.exit_code == 2
    assert "set notify.apprise" in ended.output


@SLOW
def test_bad_settings_of_notifications_are_told_at_once_and_without_secrets(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[notify]\napprise = "jsn://hunter2@x tgram://hunter2 ntfy://fine"\nquiet = "22:00-07:00 Europe/Berln"\n'
    )

    with pytest.raises(SettingsError) as caught:
        load_settings(config, {})

    told = "\n".join(caught.value.problems)
    assert "notify.apprise: address 1: Apprise knows no service jsn://" in told
    assert "address 2: Apprise cannot read the rest of a tgram:// address" in told
    assert "address 3" not in told
    assert "Europe/Berlin" in told
    assert "hunter2" not in told


def test_a_kind_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[notify]\non = ["handed-ovr"]\n')

    with pytest.raises(SettingsError, match=r"notify.on: .handed-ovr. is nothing that can be told.*handed-over"):
        load_settings(config, {})


@SLOW
def test_addresses_may_come_from_a_file_one_in_each_line(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    (tmp_path / "addresses").write_text("json://127.0.0.1/a\njson://127.0.0.1/b\n")
    config.write_text('[notify]\napprise = { file = "addresses" }\n')

    assert load_settings(config, {}).notify.apprise.reveal() == "json://127.0.0.1/a json://127.0.0.1/b"

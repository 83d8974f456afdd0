"""`cormorant init`: a first settings file, asked for or given, and never over another."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cormorant.cli import Commands, main
from cormorant.cli.first_settings import FirstSettings, time_zone_here
from cormorant.settings import load_settings
from tests.cli.program import Ended


def init(folder: Path, *words: str, typed: str = "") -> Ended:
    ended = CliRunner().invoke(main, ["init", "--config", str(folder / "config.toml"), *words], input=typed)
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    return Ended(ended.exit_code, ended.stdout, ended.stderr)


def test_nothing_is_asked_when_it_is_told_so_and_the_file_can_be_used(tmp_path: Path) -> None:
    ended = init(tmp_path, "--yes", "--time-zone", "Europe/Berlin")

    assert ended.code == 0
    assert ended.out.splitlines()[-3:] == [
        "  cormorant sources add NAME URL    a site to search",
        "  cormorant clients add sonarr      an app that searches, and its key",
        "  cormorant run",
    ]
    settings = load_settings(tmp_path / "config.toml", {})
    assert (settings.data, settings.time_zone) == (str(tmp_path / "data"), "Europe/Berlin")
    assert settings.web.listen == "127.0.0.1:7979"
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


def test_what_is_not_given_is_asked_for_again_until_it_is_right(tmp_path: Path) -> None:
    ended = init(tmp_path, "--data", "kept", typed="somewhere\n127.0.0.1:8080\n\n\n")

    assert ended.code == 0
    assert "it is not an address to listen on" in ended.err
    assert "Folder for what is kept" not in ended.err
    settings = load_settings(tmp_path / "config.toml", {})
    assert (settings.web.listen, settings.time_zone) == ("127.0.0.1:8080", time_zone_here())
    assert settings.data == str(tmp_path / "kept")


def test_a_server_for_other_machines_gets_a_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    ended = init(tmp_path, "--yes", "--listen", "0.0.0.0:7979")

    file = tmp_path / "data" / "keys" / "web.key"
    assert f"with the key in {file}" in ended.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_settings(tmp_path / "config.toml", {}).web.key.reveal() == file.read_text().strip()
    assert file.read_text().strip() not in ended.out


def test_a_file_that_is_there_is_left_alone_and_kept_when_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# mine")

    refused = init(tmp_path, "--yes")
    assert (tmp_path / "config.toml").read_text() == "# mine"
    ended = [init(tmp_path, "--yes", "--force") for _ in range(2)]

    assert (refused.code, [each.code for each in ended]) == (2, [0, 0])
    assert "config.toml is there already and is left as it is; --force writes a new one" in refused.err
    assert (tmp_path / "config.toml.old").read_text() == "# mine"
    assert {each.name for each in tmp_path.iterdir()} == {"config.toml", "config.toml.old", "config.toml.old1"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--listen", "7979"], "listen: it is not an address to listen on"),
        (["--time-zone", "Nowhere/Land"], "time zone: "),
        (["--data", " "], "data: it is empty"),
        (["--prowlarr", "ftp://geheim"], "prowlarr: it is not the address of a site"),
        ([], "there is nobody to ask; give --yes"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path: Path, words: list[str], told: str) -> None:
    ended = init(tmp_path, *words, *(["--yes"] if words else []))

    assert ended.code == 2
    assert told in ended.err
    assert "geheim" not in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "there is no folder" in init(tmp_path / "nowhere", "--yes").err


def test_any_name_of_a_folder_can_be_written(tmp_path: Path) -> None:
    name = 'a "folder" \\ ü {data}'
    (tmp_path / "config.toml").write_text(FirstSettings(data=name, listen="127.0.0.1:1").text())

    assert load_settings(tmp_path / "config.toml", {}).data == str(tmp_path / name)


def test_the_same_for_programs(tmp_path: Path) -> None:
    facts = json.loads(init(tmp_path, "--yes", "--json", "--time-zone", "UTC").out)

    file = str(tmp_path / "config.toml")
    expected = {"written": file, "data": "data", "listen": "127.0.0.1:7979", "time_zone": "UTC"}
    assert facts == expected | {"key_file": None, "former": None}


def test_the_indexers_of_prowlarr_are_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("import")
    @click.argument("words", nargs=-1)
    @click.option("--config")
    def stand_in(words: tuple[str, ...], config: str) -> None:
        click.echo(f"taken over: {words} into {load_settings(config, {}).web.listen}")

    found = Commands.get_command
    monkeypatch.setattr(Commands, "get_command", lambda *each: stand_in if each[-1] == "import" else found(*each))

    ended = init(tmp_path, "--yes", "--prowlarr", "http://127.0.0.1:9696")

    assert ended.code == 0
    assert "taken over: ('prowlarr', 'http://127.0.0.1:9696') into 127.0.0.1:7979" in ended.out

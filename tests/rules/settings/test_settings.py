"""What can be set: which settings go together, and that at every bound there is a service or a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from cormorant.rules.addresses import sqlite_file
from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.keys import known_settings, variable_of
from cormorant.rules.settings.settings import (
    JobSettings,
    Settings,
    SettingsConflict,
)
from cormorant.settings import load_settings
from supervisors import open_service
from supervisors.service import ServiceState
from tests.bounds import WAIT_S

BOUNDS = [
    (known.key, known.setting.kind.write(bound))
    for known in known_settings(Settings())
    for bound in (known.setting.low, known.setting.high)
    if bound is not None
]


@pytest.mark.slow("starts the service on a real file")
@pytest.mark.parametrize(("key", "value"), BOUNDS)
async def test_at_each_bound_of_each_setting_the_service_starts_or_a_reason_is_given_before(
    tmp_path: Path, key: str, value: str
) -> None:
    (tmp_path / "config.toml").write_text(
        '[limits.name]\n[sources.name]\nurl = "http://name"\n[clients.name]\n[web]\nlisten = "127.0.0.1:0"\n'
        '[saved.name]\nquery = "name"\n[profiles.name]\n[prices.name]\ntitle = "name"\nsearch = ["shop"]\n'
        '[sources.shop]\nkind = "prices"\nurl = "http://shop"\nquery = "q={title}"\nfields.price = "price"\n'
        '[feeds.name]\nurl = "http://name"\n[targets.name]\nurl = "http://name"\n'
    )
    (tmp_path / "data").mkdir()
    state, problems = None, list[str]()

    try:
        opened = open_service(load_settings(tmp_path / "config.toml", {variable_of(key): value}))
    except SettingsError as refusal:
        problems += refusal.problems
    else:
        with trio.fail_after(WAIT_S):
            async with opened as service:
                state = (await service.status()).state

    assert state is ServiceState.READY or len(problems) == 1
    assert all(key in problem or variable_of(key) in problem for problem in problems)
    assert all("; allowed: at least " in problem for problem in problems)


def test_settings_made_in_code_must_go_together_too() -> None:
    with pytest.raises(SettingsConflict, match=r"jobs.lock_timeout: 1s is less than 2 times") as refusal:
        Settings(jobs=JobSettings(lock_timeout_s=1.0))

    assert [conflict.keys for conflict in refusal.value.conflicts] == [("jobs.lock_timeout", "jobs.heartbeat")]


@pytest.mark.parametrize("folder", ["/srv/q?x", "/srv/p%41#x y", "sqlite:///x", "/srv/\\", "/srv/caf\udce9"])
def test_an_odd_folder_is_found_again_in_the_address_of_the_database(folder: str) -> None:
    address = Settings(data=folder).database_url.reveal()

    assert sqlite_file(address) == f"{folder}/cormorant.db"

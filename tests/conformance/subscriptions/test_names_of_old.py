"""The settings that programs of old have for their schedulers: by their names, with their defaults, in their units."""

from __future__ import annotations

from pathlib import Path

import pytest

from cormorant.rules.errors import SettingsError
from cormorant.rules.settings.watch import SubscriptionSettings
from cormorant.settings import load_settings

OLD = {
    "MAX_CONCURRENT_CHECKS": "7",
    "MAX_CONCURRENT_DOMAINS": "4",
    "JOB_MISFIRE_GRACE_TIME": "120",
    "JOB_MAX_INSTANCES": "1",
    "JOB_COALESCE": "True",
    "DOMAIN_REQUEST_DELAY": "2.5",
    "CHECK_TIMEOUT": "45",
    "PERSIST_JOBS": "true",
    "JOB_STORE_PATH": "./data/scheduler",
}


def loaded(tmp_path: Path, environ: dict[str, str]) -> SubscriptionSettings:
    (tmp_path / "config.toml").touch()
    return load_settings(tmp_path / "config.toml", environ).subscriptions


def test_without_them_the_defaults_are_those_of_old(tmp_path: Path) -> None:
    found = loaded(tmp_path, {})

    assert (found.max_concurrent_checks, found.max_concurrent_domains) == (5, 3)
    assert (found.misfire_grace_s, found.max_instances, found.coalesce) == (300.0, 1, True)
    assert (found.domain_request_delay_s, found.check_timeout_s, found.persist) == (1.0, 30.0, True)


def test_all_of_them_are_understood(tmp_path: Path) -> None:
    found = loaded(tmp_path, OLD)

    assert (found.max_concurrent_checks, found.max_concurrent_domains) == (7, 4)
    assert (found.misfire_grace_s, found.max_instances, found.coalesce) == (120.0, 1, True)
    assert (found.domain_request_delay_s, found.check_timeout_s, found.persist) == (2.5, 45.0, True)
    assert found.store_path == "./data/scheduler"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("MAX_CONCURRENT_CHECKS", "0", "0 is out of range; allowed: 1 to 100"),
        ("MAX_CONCURRENT_DOMAINS", "many", "is not a whole number"),
        ("JOB_MAX_INSTANCES", "2", "2 is out of range; allowed: 1 to 1"),
        ("JOB_COALESCE", "false", "it cannot be switched off; take it out"),
        ("PERSIST_JOBS", "no", "it cannot be switched off; take it out"),
        ("CHECK_TIMEOUT", "0", "out of range"),
        ("DOMAIN_REQUEST_DELAY", "-1", "DOMAIN_REQUEST_DELAY"),
        ("JOB_MISFIRE_GRACE_TIME", "soon", "JOB_MISFIRE_GRACE_TIME"),
    ],
)
def test_what_cannot_be_is_told_under_the_name_that_was_used(tmp_path: Path, name: str, value: str, told: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        loaded(tmp_path, {name: value})

    [problem] = refusal.value.problems
    assert problem.startswith(f"{name}: ")
    assert told in problem

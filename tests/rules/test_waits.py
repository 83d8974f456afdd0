"""Who may wait for whom has no circles."""

from __future__ import annotations

from itertools import product

from cormorant.rules.supervision import ROLES, may_wait_for


def test_no_two_roles_may_wait_for_each_other() -> None:
    both = [(a, b) for a, b in product(ROLES, ROLES) if may_wait_for(a, b) and may_wait_for(b, a)]

    assert both == []


def test_everyone_may_wait_for_storage_and_storage_for_nobody() -> None:
    others = [role for role in ROLES if role != "storage"]

    assert all(may_wait_for(role, "storage") for role in others)
    assert not any(may_wait_for("storage", role) for role in ROLES)


def test_programs_that_embed_us_are_not_restricted_but_for_asking_oneself() -> None:
    assert may_wait_for("their actor", "dispatcher")
    assert may_wait_for("dispatcher", "their actor")
    assert not may_wait_for("their actor", "their actor")

"""The gateway's options: what is seen of them."""

from __future__ import annotations

import pytest

from storage.engine.options import StorageOptions


@pytest.mark.parametrize("password", ["hunter2", "hun/ter2", "hun ter2", "hun@ter2"])
def test_options_are_printed_without_any_part_of_the_password(password: str) -> None:
    printed = repr(StorageOptions(url=f"postgresql://me:{password}@db/birds"))

    assert "ter2" not in printed
    assert "postgresql:" in printed

"""The examples for embedding programs run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "embedding.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_each_example_of_the_embedding_page_runs(number: int) -> None:
    example = compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec")

    exec(example, {"__name__": "example"})  # noqa: S102 - the page is ours, and running it is the test

    assert "assert " in EXAMPLES[number]


def test_the_page_has_an_example_for_each_kit() -> None:
    text = "\n".join(EXAMPLES)

    assert all(name in text for name in ("Supervisor(", "served_by(", "open_service("))

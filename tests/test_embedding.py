"""The examples for embedding programs run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("embedding.md", "jobs.md", "searching.md")
EXAMPLES = {
    page: re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL) for page in PAGES
}


@pytest.mark.slow("whole programs, some of them for a simulated hour")
@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page in PAGES for number in range(1, len(EXAMPLES[page]) + 1)]
)
def test_each_example_runs(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an empty folder, as a reader has it
    source = EXAMPLES[page][number - 1]
    example = compile(source, f"{page}, example {number}", "exec")

    exec(example, {"__name__": "example"})  # noqa: S102 - the page is ours, and running it is the test

    assert "assert " in source


def test_the_pages_have_an_example_for_each_kit() -> None:
    text = "\n".join(example for page in PAGES for example in EXAMPLES[page])

    assert all(name in text for name in ("Supervisor(", "served_by(", "open_service(", "enqueue("))

"""How fast does feedparser read a Torznab reply? `run_feedparser.py work SETTINGS`: the file, and how often."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import feedparser  # type: ignore[import-untyped] # installed by the bench, in an environment of its own


def work(settings: dict[str, Any]) -> dict[str, Any]:
    document = Path(settings["file"]).read_bytes()
    found = feedparser.parse(document)
    began = time.process_time()
    for _ in range(settings["times"]):
        feedparser.parse(document)
    seconds = time.process_time() - began
    if len(found.entries) != settings["items"]:
        sys.exit(f"{len(found.entries)} of {settings['items']} items were found")
    return {"seconds": seconds, "version": f"feedparser {feedparser.__version__}"}


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[2]))))

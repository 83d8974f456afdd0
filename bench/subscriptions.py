"""What does a due subscription cost, in a table of a thousand and of a million? And how fast is a feed read?

*Ours* is a claim of a hundred and the end of each check with its record. The goal in microseconds is the time of the
database: what passes in statements, without COMMIT; what Python does around them is shown beside it. APScheduler's SQLAlchemy store
writes each job in a transaction of its own, and has no records: beside it ours is told with COMMIT alike, one by one, and as the
gateway does it when many end together, a hundred at once. Both wait for the disk. Feeds are read beside plain feedparser.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

# Run as a file, Python would look here first and take `bench/storage.py` for the package `storage`.
sys.path[0] = str(Path(__file__).parent.parent)

from bench._race import ContestantFailed, run, sync_ms  # noqa: E402 - see above
from bench._report import Goal, Options, Row, finish, read_options  # noqa: E402 - see above
from bench.peers.install import PeerMissing, Program, have  # noqa: E402 - see above
from cormorant.clients.feed_documents import read_feed  # noqa: E402 - see above

SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000)
PEER_ROWS = 10_000
DUE = 100
ITEMS = 50


def due_rows(options: Options, rows: list[Row], goals: list[Goal]) -> list[tuple[float, float]]:
    """Our cost at each size; what one costs with COMMIT where the peer is raced, together and one by one, in each round."""
    program = Program([sys.executable, "-m", "bench.ours.due_rows"])
    sizes, rounds, samples = (QUICK_SIZES, 3, 5) if options.quick else (SIZES, 7, 10)
    with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
        files = [f"{folder}/{size}.db" for size in sizes]
        chosen = {"files": files, "rows": sizes, "rounds": rounds, "samples": samples}
        found: list[list[tuple[float, float, float, float]]] = run(program, "measure", chosen)
    kinds = ("  with what Python does around it", "  with COMMIT, a hundred at once", "  with COMMIT, one by one")
    for size, told in zip(sizes, zip(*found, strict=True), strict=True):
        for place, kind in enumerate((f"due row of {size:,}: claim and end", *kinds)):
            rows.append(Row(kind, "us", [each[place] for each in told]))
    small, large = [each[0][0] for each in found], [each[-1][0] for each in found]
    growth = statistics.median(last / first for first, last in zip(small, large, strict=True))
    goals.append(Goal("subscriptions.us_per_due_row", statistics.median(large), "<=", 25.0))
    goals.append(Goal("subscriptions.growth_1k_to_1m", growth, "<=", 2.0))
    return [each[sizes.index(PEER_ROWS)][2:] for each in found]


def beside_apscheduler(ours: list[tuple[float, float]], rows: list[Row], goals: list[Goal]) -> None:
    """The same in APScheduler's store, round by round."""
    program, theirs, version = have("apscheduler"), [], ""
    for _ in ours:
        with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
            chosen = {"file": f"{folder}/peer.db", "rows": PEER_ROWS, "due": DUE}
            run(program, "prepare", chosen)
            found = run(program, "work", chosen)
            theirs.append(found["seconds"] / DUE * 1e6)
            version = found["version"]
    print(version)
    rows.append(Row(f"APScheduler: due row of {PEER_ROWS:,}, with COMMIT", "us", theirs))
    for place, kind, least in ((0, "together", 20.0), (1, "one_by_one", 1.0)):
        ratio = statistics.median(theirs) / statistics.median(each[place] for each in ours)
        goals.append(Goal(f"subscriptions.vs_apscheduler_{kind}", ratio, ">=", least))


def document() -> bytes:
    """A feed as a blog has it."""
    items = "".join(
        f"""<item><title>Entry {number} &amp; more</title><link>https://blog.example.org/{number}</link>
<guid isPermaLink="false">tag:blog.example.org,2026:{number}</guid><pubDate>Mon, 16 Nov 2026 05:{number:02}:00 +0000</pubDate>
<description>&lt;p&gt;{"Words about something. " * 20}&lt;/p&gt;</description>
<enclosure url="https://blog.example.org/{number}.mp3" length="123456" type="audio/mpeg" /></item>
"""
        for number in range(ITEMS)
    )
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>Blog</title>{items}</channel></rss>'.encode()


def feeds_read(options: Options, rows: list[Row]) -> None:
    """Feeds a second of processor time."""
    program, times = have("feedparser"), 5 if options.quick else 20
    body, ours, theirs, version = document(), [], [], ""
    assert len(read_feed(body).entries) == ITEMS
    with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
        file = Path(folder) / "feed.xml"
        file.write_bytes(body)
        for _ in range(3):
            found = run(program, "work", {"file": str(file), "times": times, "items": ITEMS})
            theirs.append(times / found["seconds"])
            version = found["version"]
            began = time.process_time()
            for _ in range(10 * times):
                read_feed(body)
            ours.append(10 * times / (time.process_time() - began))
    print(version)
    rows.append(Row(f"feeds of {ITEMS} entries read: ours", "feeds/s of processor", ours))
    rows.append(Row("  feedparser", "feeds/s of processor", theirs))


def main(options: Options) -> int:
    """Measure, and judge."""
    rows: list[Row] = []
    goals: list[Goal] = []
    sync_before_ms = sync_ms()
    ours = due_rows(options, rows, goals)
    missing = 0
    try:
        beside_apscheduler(ours, rows, goals)
        feeds_read(options, rows)
    except (PeerMissing, ContestantFailed) as why:
        print(f"a peer is missing from this race: {why}")
        missing = 2
    rows.append(Row("fdatasync of a page, before and after", "ms", [sync_before_ms, sync_ms()]))
    return finish(options, rows, goals) or missing


if __name__ == "__main__":
    sys.exit(main(read_options(__doc__)))

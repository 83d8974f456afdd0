"""How fast is a page of 100 results read, beside feedparser? Both read the same bytes, in turns; processor time.

*Ours* gives typed results with every attribute; feedparser keeps only the last `torznab:attr` of an item.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

# Run as a file, Python would look here first and take `bench/storage.py` for the package `storage`.
sys.path[0] = str(Path(__file__).parent.parent)

from bench._race import ContestantFailed, run  # noqa: E402 - see above
from bench._report import Goal, Options, Row, finish, read_options  # noqa: E402 - see above
from bench.peers.install import PeerMissing, have  # noqa: E402 - see above
from cormorant.clients.torznab_items import TORZNAB, ItemReader  # noqa: E402 - see above
from cormorant.clients.torznab_replies import parse_page  # noqa: E402 - see above
from cormorant.rules.search.requests import SearchPage  # noqa: E402 - see above

ITEMS = 100
OURS_PER_THEIRS = 10

CATEGORIES = ("5000", "5040", "100005")
ATTRS = {
    "tvdbid": "12345",
    "files": "1",
    "grabs": "33",
    "seeders": "12",
    "peers": "15",
    "infohash": "9fb267cff5ae5603f07a347676ec3bf3e35f75e1",
    "minimumratio": "1",
    "minimumseedtime": "172800",
    "downloadvolumefactor": "0",
    "uploadvolumefactor": "1",
    "tag": "freeleech",
}


def item(number: int) -> str:
    """One item with all that Prowlarr writes into one."""
    link = f"http://prowlarr:9696/1/download?apikey=0123456789abcdef&amp;link=c29tZXRoaW5n{number}&amp;file=Some.Show"
    pairs = [*(("category", category) for category in CATEGORIES), *ATTRS.items()]
    attributes = "\n".join(f'<torznab:attr name="{name}" value="{value}" />' for name, value in pairs)
    categories = "\n".join(f"<category>{category}</category>" for category in CATEGORIES)
    return f"""<item>
<title>Some.Show.S01E{number:02}.1080p.WEB-DL.DD5.1.H.264-GROUP</title>
<description>Some.Show.S01E{number:02} in 1080p &amp; with subtitles</description>
<guid>https://indexer.example.org/details/{number:032x}</guid>
<prowlarrindexer id="1" type="private">Indexer</prowlarrindexer>
<comments>https://indexer.example.org/details/{number:032x}</comments>
<pubDate>Mon, 16 Nov 2026 05:{number % 60:02}:00 +0000</pubDate>
<size>1234567890</size>
<link>{link}</link>
{categories}
<enclosure url="{link}" length="1234567890" type="application/x-bittorrent" />
{attributes}
</item>
"""


def document() -> bytes:
    """A page of results."""
    items = "".join(item(number) for number in range(ITEMS))
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom" xmlns:torznab="{TORZNAB}"><channel><title>Indexer</title>
{items}</channel></rss>""".encode()


def ours_ms(body: bytes, *, times: int) -> float:
    """Milliseconds a page."""
    reader = ItemReader("https://indexer.example.org/api", secrets=("hunter2hunter2hunter2hunter2",))
    page = parse_page(body, reader, {})
    assert isinstance(page, SearchPage)
    assert len(page.results) == ITEMS
    began = time.process_time()
    for _ in range(times):
        parse_page(body, reader, {})
    took_s = time.process_time() - began
    return took_s / times * 1000


def main(options: Options) -> int:
    """Race, round by round."""
    rounds, times = (5, 5) if options.quick else (15, 20)
    version = ""
    ours: list[float] = []
    theirs: list[float] = []
    try:
        program = have("feedparser")
        with tempfile.TemporaryDirectory(prefix="cormorant-bench-") as folder:
            file = Path(folder) / "page.xml"
            file.write_bytes(document())
            ours_ms(document(), times=times)
            for _ in range(rounds):
                found = run(program, "work", {"file": str(file), "times": times, "items": ITEMS})
                version = found["version"]
                theirs.append(found["seconds"] / times * 1000)
                ours.append(ours_ms(document(), times=times * OURS_PER_THEIRS))
    except (PeerMissing, ContestantFailed) as why:
        print(f"feedparser is missing from this race: {why}")
        return 2
    print(version)
    # Round by round: what slows the machine down slows both.
    ratio = statistics.median(their / our for our, their in zip(ours, theirs, strict=True))
    rows = [Row("ours", "ms of processor/page", ours), Row("feedparser", "ms of processor/page", theirs)]
    return finish(options, rows, [Goal("torznab.parse_vs_feedparser", ratio, ">=", 20.0)])


if __name__ == "__main__":
    sys.exit(main(read_options(__doc__)))

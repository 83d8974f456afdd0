"""Snapshots of schemas: writing one, and building a database from it. `python -m tests.upgrades.snapshots` writes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, MetaData, create_mock_engine

from storage.engine.columns import EPOCH, to_micros
from storage.engine.schema import MIGRATIONS_TABLE, Migration
from storage.migrations import MIGRATIONS, SCHEMA_VERSION
from storage.tables import METADATA

FOLDER: Final = Path(__file__).parent
ADDRESSES: Final = {"sqlite": "sqlite://", "postgresql": "postgresql+psycopg://"}
VERSIONS: Final = sorted({int(path.name[1:5]) for path in FOLDER.glob("v*.sql")})
"""The versions that have a snapshot, oldest first."""
END: Final = ";\n\n"


def snapshot_file(version: int, dialect: str) -> Path:
    """The file of a snapshot."""
    return FOLDER / f"v{version:04}.{dialect}.sql"


def build(connection: Connection, version: int) -> None:
    """Make the tables of a version in an empty database, as its code made them."""
    for statement in snapshot_file(version, connection.dialect.name).read_text(encoding="utf-8").split(END):
        if statement.strip():
            connection.exec_driver_sql(statement)


def written(dialect: str, tables: MetaData = METADATA, steps: Sequence[Migration] = MIGRATIONS) -> str:
    """The statements with which this code makes a new database."""
    statements: list[str] = []

    def note(statement: Any, *_: Any, **__: Any) -> None:
        lines = str(statement.compile(dialect=engine.dialect)).strip().splitlines()
        statements.append("\n".join(line.rstrip() for line in lines))

    engine = create_mock_engine(ADDRESSES[dialect], note)
    MIGRATIONS_TABLE.create(engine, checkfirst=False)
    tables.create_all(engine, checkfirst=False)
    # Names and numbers of ours.
    rows = [f"({step.VERSION}, '{step.NAME}', {step.MIN_CODE_VERSION}, {to_micros(EPOCH)})" for step in steps]
    statements.append(f"INSERT INTO migrations (version, name, min_code_version, applied_at) VALUES {', '.join(rows)}")  # noqa: S608 - see above
    return END.join([*_ordered(statements), ""]).rstrip("\n") + "\n"


def _ordered(statements: Iterable[str]) -> Iterator[str]:
    """The statements, with the indexes of a table by name: SQLAlchemy gives them in any order."""
    for is_index, group in groupby(statements, lambda each: each.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX"))):
        found = list(group)
        yield from sorted(found, key=lambda each: each.partition("INDEX ")[2]) if is_index else found


def write(*, replace: bool) -> None:
    """Write the snapshots of the current version."""
    for dialect in ADDRESSES:
        file = snapshot_file(SCHEMA_VERSION, dialect)
        if file.exists() and not replace:
            sys.exit(
                f"{file.name} is there already; change the tables in a new version, or use --replace before a release"
            )
        file.write_text(written(dialect), encoding="utf-8")


if __name__ == "__main__":
    write(replace="--replace" in sys.argv[1:])

"""What the tests of upgrades share: a made-up version, rows in every table, and descriptions of databases to compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec, module_from_spec
from typing import Any, Final, TypeVar

from alembic.operations import Operations
from attrs import evolve, frozen
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    NullPool,
    Text,
    create_engine,
    text,
)

import storage.tables
from cormorant.rules.events import Event
from storage.engine.schema import MIGRATIONS_TABLE, Migration
from storage.migrations import MIGRATIONS, SCHEMA_VERSION
from tests.storage.support import gateway, serving

T = TypeVar("T")
Described = dict[str, Any]
Rows = dict[str, list[dict[str, Any]]]


@frozen(kw_only=True)
class Step:
    """A step made up for a test."""

    VERSION: int
    NAME: str
    MIN_CODE_VERSION: int = 1
    upgrade: Callable[[Operations], None]
    TABLES: MetaData | None = None


def _label() -> Column[str]:
    return Column("label", Text, nullable=False, server_default=text("''"))


def add_label(op: Operations) -> None:
    """Give wants a column, fill it from another, and index it."""
    op.add_column("wants", _label())
    op.execute("UPDATE wants SET label = title || '!'")
    op.create_index("wants_label", "wants", ["label", "id"])


def tables_with_label() -> MetaData:
    """The tables as `storage/tables.py` would declare them for the made-up version: a second copy of that module, changed."""
    spec = find_spec(storage.tables.__name__)
    assert spec is not None
    assert spec.loader is not None
    changed = module_from_spec(spec)
    spec.loader.exec_module(changed)
    tables: MetaData = changed.METADATA
    wants = tables.tables["wants"]
    wants.append_column(_label())
    Index("wants_label", wants.c.label, wants.c.id)
    return tables


ADDED: Final = Step(VERSION=SCHEMA_VERSION + 1, NAME="synthetic", upgrade=add_label)
"""A version after the last real one."""
INITIAL: Final = Step(
    VERSION=MIGRATIONS[0].VERSION, NAME=MIGRATIONS[0].NAME, upgrade=MIGRATIONS[0].upgrade, TABLES=tables_with_label()
)
NEXT: Final[Sequence[Migration]] = (INITIAL, *MIGRATIONS[1:], ADDED)
"""The code of the made-up version."""


def next_with(change: Callable[[Operations], None], *, min_code_version: int = 1) -> Sequence[Migration]:
    """The code of a made-up version that makes another change."""
    return (*NEXT[:-1], evolve(ADDED, upgrade=change, MIN_CODE_VERSION=min_code_version))


async def opened(url: str, steps: Sequence[Migration] = MIGRATIONS, **options: Any) -> list[Event]:
    """Open a database with this code, and close it. Returns the events."""
    heard: list[Event] = []
    async with serving(gateway(url, emit=heard.append, migrations=steps, **options), with_notes=False):
        pass
    return heard


def connected(url: str, function: Callable[[Connection], T]) -> T:
    """Run a function in a transaction of its own, without any code of storage."""
    with _engine(url).begin() as connection:
        return function(connection)


def _engine(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


def fill(connection: Connection) -> None:
    """Add two rows to every table of ours: one with nothing but what is required, one with every column."""
    tables = MetaData()
    tables.reflect(connection)
    for table in tables.sorted_tables:
        if table.name != MIGRATIONS_TABLE.name:
            required = [column for column in table.columns if not column.nullable and column.server_default is None]
            key = [column for column in table.primary_key.columns if column not in required]
            connection.execute(table.insert(), {each.name: _value(each, 1) for each in (*required, *key)})
            connection.execute(table.insert(), {each.name: _value(each, 2) for each in table.columns})


def _value(column: Column[Any], number: int) -> Any:
    default = str(getattr(column.server_default, "arg", ""))
    match column.type:
        case Boolean():
            return number == 1
        case BigInteger():
            return 2**40 + number
        case Integer():
            return number
        case Float():
            return number / 3
        case _:
            json = {"[]": '["é"]', "{}": '{"é": 1}'}
            return next((value for empty, value in json.items() if empty in default), f"{column.name} é {number}")


def rows_of(connection: Connection) -> Rows:
    """All rows of all tables, by table."""
    tables = MetaData()
    tables.reflect(connection)
    return {
        name: sorted((dict(row) for row in connection.execute(table.select()).mappings()), key=repr)
        for name, table in tables.tables.items()
        if name != MIGRATIONS_TABLE.name
    }


def versions_of(connection: Connection) -> list[int]:
    """The versions that the database has recorded."""
    return list(connection.execute(text("SELECT version FROM migrations ORDER BY version")).scalars())


def schema_of(connection: Connection) -> Described:
    """Tables, columns, types, defaults, keys and indexes, as the database itself states them.

    The order of columns is not part of it: a column that was added later is the last one.
    """
    return _sqlite_schema(connection) if connection.dialect.name == "sqlite" else _postgres_schema(connection)


def _sqlite_schema(connection: Connection) -> Described:
    def asked(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.exec_driver_sql(statement)]

    schema: Described = {}
    for name, made in asked("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"):
        schema[f"{name} keeps its numbers"] = "AUTOINCREMENT" in made
        for _, column, *facts in asked(f"PRAGMA table_xinfo({name})"):
            schema[f"{name}.{column}"] = facts
        for _, index, *kind in asked(f"PRAGMA index_list({name})"):
            columns = [row[2] for row in asked(f"PRAGMA index_info({index})")]
            made_by = asked(f"SELECT sql FROM sqlite_master WHERE name = '{index}'")[0][0]  # noqa: S608 - its own names
            is_named = made_by is not None
            shown = index if is_named else f"of {','.join(columns)}"
            schema[f"{name} index {shown}"] = [*kind, columns, " ".join(made_by.split()) if is_named else None]
        schema[f"{name} refers to"] = asked(f"PRAGMA foreign_key_list({name})")
    return schema


_POSTGRES_FACTS: Final = """
SELECT c.relname || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attcollation,
                 pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT tablename || ' index ' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT conrelid::regclass || ' constraint ' || conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT relname || ' options', reloptions::text FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""


def _postgres_schema(connection: Connection) -> Described:
    return {str(row[0]): row[1] for row in connection.exec_driver_sql(_POSTGRES_FACTS)}

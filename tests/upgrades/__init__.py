"""Upgrades of databases that older code made, on SQLite and PostgreSQL.

`vNNNN.sqlite.sql` and `vNNNN.postgresql.sql` are snapshots: the statements with which the code of schema version NNNN made
a new database. The tests build a database of every snapshot, open it with the code of today, and compare the result with a
new database. So every released version is tried, although its code is gone.

To add a version:

1. Change the table in `storage/tables.py`, for new databases.
2. Write `storage/migrations/vNNNN_name.py` with the same change, for existing databases, and add it to `MIGRATIONS`. It has
   `VERSION`, `NAME`, `MIN_CODE_VERSION` and `upgrade(op)`, and no `TABLES`. It does not import `storage/tables.py`, whose
   tables change later.
3. Run `.venv/bin/python -m tests.upgrades.snapshots`. It writes the snapshots of the new version. It refuses to replace
   one. A snapshot of a released version is never changed: `--replace` is for a version that no release has yet.
4. Run `tests/upgrades`. If the step drops or renames a column or a table, name it in `LOST` of `test_upgrades.py`.

`test_synthetic.py` adds a made-up version after the last real one, so that upgrades are tried before there is a real one.
"""

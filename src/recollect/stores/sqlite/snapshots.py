"""Copies of a store as one file: written while the store is in use, and checked before they are used."""

import contextlib
import math
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from recollect.errors import StoreError
from recollect.stores.health import altered
from recollect.stores.rows import meta, refuse_newer
from recollect.stores.sqlite.database import Database, check_owner, name_of, translated
from recollect.stores.sqlite.health import TEXTS
from recollect.stores.sqlite.rows import Connection
from recollect.stores.sqlite.schema import MIGRATIONS

COUNTED = {"record": "records", "history": "history", "vector": "embeddings", "file": "files"}  # since schema 1


class CheckedFile(NamedTuple):
    """What a file holds that passed all checks: the id of its store, and how many parts of each kind."""

    identifier: str | None
    counts: dict[str, int]

    def name(self, path: Path) -> str:
        """The name of the store at a path, as its `contents` give it."""
        return name_of(self.identifier, path)


def write_snapshot(store: Path, target: Path) -> None:
    """Write one committed state of a store into the empty file `target`. The store is not migrated."""
    with contextlib.closing(Database(store, prepare=False)) as database:
        database.copy_into(target)


def check_snapshot(file: Path, shown: Path) -> CheckedFile:
    """Read a file that nobody writes to. StoreError says why it is not a whole store of a version that is known.

    `shown` is the path that errors name.
    """
    place = f"file:{quote(str(file.absolute()))}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    with translated(shown), contextlib.closing(Connection(place, flags=flags)) as connection:
        check_owner(connection, shown)
        refuse_newer(int(connection.pragma("user_version")), len(MIGRATIONS))
        _refuse_damage(connection, shown)
        counts = {kind: connection.execute(f"SELECT count(*) FROM {table}").get for kind, table in COUNTED.items()}
        return CheckedFile(meta(connection, "id"), counts)


def _refuse_damage(connection: Connection, shown: Path) -> None:
    """Raise StoreError for damaged pages or indexes, SQL that would run by itself, and texts that lost their hash."""
    rows: Any = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if rows != [("ok",)]:
        raise StoreError(f"{shown} is damaged: {rows[0][0]}", hint="recollect doctor")
    if name := connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1").get:
        raise StoreError(f"{shown} has a trigger or view {name!r}, which no store has", hint="use another backup")
    failure, _ = altered(connection.execute(TEXTS), f"{shown}: ", seconds=math.inf)
    if failure:
        raise StoreError(failure.message, hint=failure.mend)

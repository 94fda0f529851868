"""Rows of the file in SQLite's dialect: those that a filter admits, and the best of these."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import apsw
import numpy as np

from recollect.stores.rows import Condition, Dialect

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _tagged(tags: Sequence[str]) -> Condition:
    return " AND ".join(["row IN (SELECT row FROM tags WHERE tag = %s)"] * len(tags)) or "true", tags


DIALECT = Dialect(
    records="records",
    in_scopes="{}",
    tagged=_tagged,
    tag_facet="tags WHERE row IN (SELECT row FROM records WHERE {})",
    ends=("path IN (SELECT DISTINCT path FROM records WHERE path IS NOT NULL AND substr(path, -length(%s)) = %s)"),
    like="GLOB",
    wildcards=str.maketrans({"*": "*", "[": "[[]", "?": "[?]"}),  # the others occur in file names
    # Reads the index of all ids: 40 MB of a million records, which an index of the ends would make each add pay for.
    short="row IN (SELECT row FROM records WHERE substr(id, -8) >= %s AND substr(id, -8) < %s)",
)

_TRANSLATED = {
    "= ANY(%s::bytea[])": "IN (SELECT unhex(value) FROM json_each(?))",
    "= ANY(%s)": "IN (SELECT value FROM json_each(?))",
    ' COLLATE "C"': "",
    " ILIKE ": " LIKE ",
    "%s": "?",
}


@lru_cache(512)
def _translated(sql: str) -> str:
    for theirs, ours in _TRANSLATED.items():
        sql = sql.replace(theirs, ours)
    return sql


def _value(value: Any) -> Any:
    """A list as JSON, with bytes in hexadecimal."""
    return json.dumps(value, default=bytes.hex) if isinstance(value, list) else value


class Cursor(apsw.Cursor):
    """A cursor that also understands the statements that the SQL stores share."""

    def execute(self, statements: str, bindings: Any = None, **options: Any) -> Any:
        """Run a statement. One with `%s` is translated, and its lists become JSON."""
        if "%s" in statements:
            statements, bindings = _translated(statements), tuple(map(_value, bindings))
        return super().execute(statements, bindings, **options)

    def executemany(self, statements: str, sequenceofbindings: Any, **options: Any) -> Any:
        """Run a statement once for each row of values."""
        return super().executemany(_translated(statements), sequenceofbindings, **options)


class Connection(apsw.Connection):
    """A connection with such cursors."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cursor_factory = Cursor
        self.state: Any = None  # what was derived from the snapshot that it reads now

    @staticmethod
    def pipeline() -> contextlib.AbstractContextManager[None]:
        """Nothing: there is no server to wait for."""
        return contextlib.nullcontext()


def open_to_read(path: Path, *, immutable: bool = True) -> Connection:
    """A connection that only reads. With `immutable` it reads the file alone, without its log and without locks."""
    place = f"file:{quote(str(path.absolute()))}{'?immutable=1' if immutable else ''}"
    return Connection(place, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def sequence(connection: apsw.Connection) -> int:
    """The number of the last event in the history."""
    return int(connection.execute("SELECT ifnull(max(seq), 0) FROM history").get)


def integers(joined: Any) -> NDArray[np.int64]:
    """Numbers that SQLite joined with commas, which is the fastest way to read many of them."""
    return np.fromstring(joined, dtype=np.int64, sep=",") if joined else np.zeros(0, dtype=np.int64)

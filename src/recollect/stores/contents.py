"""All that a SQL store holds, read and written part by part."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from recollect.dataclass import dataclass
from recollect.errors import Overtaken, StoreError
from recollect.ranking import fold_hash
from recollect.stores.database import SqlKeywords
from recollect.stores.rows import Dialect, analyzer_of, meta, passage_hash, set_meta
from recollect.types import Scope
from recollect.types.parts import FIELDS, HEADS, MOVED_META, Part, StoreSnapshot
from recollect.types.records import passage_of

TABLES = {  # kinds whose fields are the columns of a table
    "space": "spaces", "history": "history", "file": "files", "root": "roots", "ingested": "ingested", "join": "joins",
    "note": "notes",
}  # fmt: skip

KEYS: Mapping[str, Mapping[str, str]] = {  # the columns of each kind's key, with their types
    "meta": {"key": "text"}, "space": {"fingerprint": "text"}, "record": {"id": "text"}, "history": {"seq": "bigint"},
    "vector": {"fingerprint": "text", "passage": "bytea"}, "file": {"path": "text"},
    "root": {"root": "text"}, "ingested": {"digest": "text"},
    "join": {"source": "text", "id": "text", "scope": "text"}, "note": {"key": "text"},
}  # fmt: skip

SCOPE = ("user", "agent", "session")  # the fields of a record's scope

_RECORD = {"user": '"user"', "purged": "length(passage) = 0"}


def selects(dialect: Dialect, vectors: str) -> Mapping[str, str]:
    """The statement that selects each kind, which can be continued with further conditions."""
    record = ", ".join(_RECORD.get(name, name) for name in FIELDS["record"])
    return {
        "meta": f"SELECT key, value FROM meta WHERE key IN {MOVED_META}",
        "record": f"SELECT {record} FROM {dialect.records} WHERE true",
        "vector": f"SELECT fingerprint, passage, vector FROM {vectors} WHERE true",
        **{kind: f"SELECT {', '.join(FIELDS[kind])} FROM {table} WHERE true" for kind, table in TABLES.items()},
    }


@dataclass(frozen=True)
class SqlSnapshot(StoreSnapshot):
    """Reads through one connection in one transaction."""

    connection: Any
    selects: Mapping[str, str]

    def counts(self) -> Mapping[str, int]:
        counts = ", ".join(f"(SELECT count(*) FROM ({self.selects[kind]}) AS every)" for kind in FIELDS)
        return dict(zip(FIELDS, self.connection.execute(f"SELECT {counts}").fetchone(), strict=True))

    def parts(self) -> Iterator[Part]:
        for kind in FIELDS:
            for row in self.rows(kind):
                yield part_of(kind, row)

    def heads(self, kind: str) -> Generator[tuple[Any, ...], None, None]:
        short = HEADS[kind] < len(FIELDS[kind])
        for row in self.rows(kind, short=short):
            yield tuple(row) if short else part_of(kind, row).values

    def rows(self, kind: str, *, short: bool = False) -> Iterator[Sequence[Any]]:
        """The rows of one kind, by rising key; `short` ones have the columns of `HEADS` alone."""
        yield from self.connection.execute(f"{self.select(kind, short=short)} ORDER BY {', '.join(KEYS[kind])}")

    def select(self, kind: str, *, short: bool) -> str:
        """The statement that selects a kind; `short`: the columns of `HEADS` alone."""
        columns, source = self.selects[kind].split(" FROM ", 1)
        return f"{', '.join(columns.split(', ')[: HEADS[kind]])} FROM {source}" if short else self.selects[kind]


def part_of(kind: str, row: Sequence[Any]) -> Part:
    """The part of a row of `selects`."""
    values = list(row)
    if kind == "record":
        values[5] = (
            () if values[5] == "[]" else tuple(json.loads(values[5]) if isinstance(values[5], str) else values[5])
        )
        values[18] = bool(values[18])
    elif kind == "history":
        values[4] = {} if values[4] == "{}" else json.loads(values[4])
    return Part(kind, tuple(values))


def scope_of(part: Part) -> Scope:
    """The scope of a record."""
    return Scope(*map(part.field, SCOPE))


def columns_of(part: Part) -> dict[str, Any]:
    """The columns of a record that is loaded; of a purged one the hashes are empty."""
    columns: dict[str, Any] = dict(zip(FIELDS["record"], part.values, strict=True))
    purged = columns.pop("purged")
    return {
        **columns,
        "tags": list(columns["tags"]),
        "time": columns["created_at"] if columns["happened_at"] is None else columns["happened_at"],
        "fold": b"" if purged else fold_hash(columns["text"]),
        "passage": b"" if purged else passage_hash(passage_of(columns["title"], columns["text"])),
    }


def load_meta(connection: Any, parts: Sequence[Part], keywords: SqlKeywords) -> None:
    """The language is that of the first records, and the space the first that searches use."""
    values = dict(part.values for part in parts)
    if "language" in values and connection.execute("SELECT 1 FROM records LIMIT 1").fetchone() is None:
        keywords.store_language(connection, analyzer_of(values["language"]))
    if "space" in values and meta(connection, "space") is None:
        set_meta(connection, "space", values["space"])


def update_meta(connection: Any, parts: Sequence[Part], keywords: SqlKeywords) -> None:
    """Set the language and the space that searches use."""
    for name, value in (part.values for part in parts):
        if name == "language":
            keywords.store_language(connection, analyzer_of(value))
        else:
            set_meta(connection, name, value)


def update_rows(connection: Any, parts: Sequence[Part], gone: Sequence[Part]) -> None:
    """Store parts of a kind that has a table of its own, in place of those with the same keys; delete others."""
    kind = (*parts, *gone)[0].kind
    same = " AND ".join(f"{column} = %s" for column in KEYS[kind])
    connection.cursor().executemany(f"DELETE FROM {TABLES[kind]} WHERE {same}", [part.key for part in (*parts, *gone)])
    if parts:
        insert_rows(connection, parts)


def refuse_newer_events(present: int, newest: int) -> None:
    """Refuse to update a store that has events after the number `newest`: somebody else has changed it."""
    if present > newest:
        raise Overtaken("the target was changed by another process at the same time", hint="run it again")


def check_dimensions(parts: Sequence[Part], dimensions: Mapping[str, int]) -> None:
    """Refuse vectors that do not fit into their space."""
    for fingerprint, _, vector in (part.values for part in parts):
        dimension = dimensions.get(fingerprint, 0)
        if len(vector) != 4 * dimension:
            raise StoreError(f"a vector of {fingerprint} has {len(vector) // 4} dimensions, its space {dimension}")


def insert_rows(connection: Any, parts: Sequence[Part]) -> None:
    """Insert parts of a kind that has a table of its own; those that exist stay as they are."""
    kind = parts[0].kind
    columns, values = ", ".join(FIELDS[kind]), ", ".join(["%s"] * len(FIELDS[kind]))
    insert = f"INSERT INTO {TABLES[kind]} ({columns}) VALUES ({values}) ON CONFLICT DO NOTHING"
    connection.cursor().executemany(insert, [part.values for part in parts])

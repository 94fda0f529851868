"""All that a SQL store holds, read and written part by part."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect.dataclass import dataclass
from recollect.errors import StoreError
from recollect.ranking import fold_hash
from recollect.stores.database import SqlKeywords
from recollect.stores.rows import Dialect, analyzer_of, meta, passage_hash, set_meta
from recollect.types.parts import FIELDS, MOVED_META, Part, Snapshot
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
class SqlSnapshot(Snapshot):
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

    def rows(self, kind: str) -> Iterator[Sequence[Any]]:
        """The rows of one kind, by rising key."""
        yield from self.connection.execute(f"{self.selects[kind]} ORDER BY {', '.join(KEYS[kind])}")


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

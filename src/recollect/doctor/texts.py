"""Whether texts and titles are what was stored: each record has hashes of its own beside them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apsw

from recollect.doctor.looking import LONGEST_S
from recollect.doctor.server import Server, TooLong
from recollect.ranking import fold_hash
from recollect.stores.rows import passage_hash
from recollect.types import Record

MOST_NAMED = 5
BATCH = 1_000
RESTORE = "restore the store from a backup; `recollect get ID` shows what is there now"
INDEX = "change its file (a blank line is enough) and run `recollect index` again, or restore the store from a backup"

# A purged record has an empty hash.
_SELECT = "SELECT id, kind, title, text, fold, passage FROM records WHERE passage <> x''"
_BATCHED = (
    "SELECT row, id, kind, title, text, fold, passage FROM records WHERE passage <> '' AND row > %s"
    f" ORDER BY row LIMIT {BATCH}"
)


class Altered(NamedTuple):
    """The records that are not what was stored, as (id, kind), and whether there was time to look at all."""

    records: list[tuple[str, str]]
    finished: bool

    @property
    def message(self) -> str:
        """How many they are, and their ids."""
        ids = ", ".join(record_id for record_id, _ in self.records[:MOST_NAMED])
        more = f" and {len(self.records) - MOST_NAMED:,} more" if len(self.records) > MOST_NAMED else ""
        count = f"{len(self.records):,} record{'' if len(self.records) == 1 else 's'}"
        return f"the text or title of {count} is not what was stored: {ids}{more}"

    @property
    def mend(self) -> str:
        """A part of a file can be had from the file; a fact only from a backup."""
        return INDEX if all(kind == "chunk" for _, kind in self.records) else RESTORE


def in_file(connection: apsw.Connection) -> Altered:
    """Compare the records of a store in a file."""
    return _compared(connection.execute(_SELECT))


def at_server(server: Server) -> Altered:
    """Compare the records of a store in PostgreSQL."""
    try:
        return _compared(_batches(server))
    except TooLong:
        return Altered([], finished=False)


def _batches(server: Server) -> Iterator[tuple[Any, ...]]:
    from recollect.stores.postgres.database import plain

    last = 0
    while rows := server.rows(_BATCHED, last):
        last = rows[-1][0]
        for _, key, kind, title, text, fold, passage in rows:
            yield plain(key), kind, plain(title), plain(text), bytes(fold), bytes(passage)


def _compared(rows: Iterable[Any]) -> Altered:
    end = time.monotonic() + LONGEST_S
    found: list[tuple[str, str]] = []
    for key, kind, title, text, fold, passage in rows:
        if time.monotonic() > end:
            return Altered(found, finished=False)
        if passage_hash(Record("", text, title=title).passage) != passage or _is_folded_otherwise(text, fold):
            found.append((key, kind))
    return Altered(found, finished=True)


def _is_folded_otherwise(text: str, fold: bytes) -> bool:
    """Whether the second hash differs. Other than ASCII may be folded in another way by another version of Python."""
    return text.isascii() and fold_hash(text) != fold

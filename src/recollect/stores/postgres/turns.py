"""Who writes the same in the same moment: what changes name, and how they take turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recollect.ranking import fold_hash
from recollect.stores.postgres.database import Connection
from recollect.types import Change, Forget, Put, Restore, Still, Supersede

TURNS = 0x52434C57
SLOTS = 256
"""The advisory locks of those who add the same text at once: few, for the server's table of locks is small."""


def take_turns(connection: Connection, changes: Iterable[Change]) -> None:
    """Wait for those who add the same texts; a transaction names all of its texts at once, the first time."""
    slots = sorted({int.from_bytes(fold[:8]) % SLOTS for fold in folds_of(changes)})
    if slots:
        connection.execute("SELECT pg_advisory_xact_lock(%s, slot) FROM unnest(%s::integer[]) AS slot", (TURNS, slots))


def folds_of(changes: Iterable[Change]) -> set[bytes]:
    """The texts that must not come twice."""
    return {fold_hash(change.record.text) for change in changes if isinstance(change, Put) and change.merge}


def ids_of(changes: Iterable[Change]) -> Iterator[str]:
    """The records that changes look at, as far as they name them."""
    for change in changes:
        match change:
            case Put():
                yield change.record.id
            case Supersede():
                yield from (change.id, change.by)
            case Forget() | Restore() | Still():
                yield change.id

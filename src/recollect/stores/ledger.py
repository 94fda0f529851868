"""The rules of every change in the SQL stores, and the steps that both write alike."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from recollect.dataclass import dataclass
from recollect.errors import Overtaken, SupersessionCycle, UnknownRecord, UsageError
from recollect.stores.rows import Condition, Dialect, from_row, micros
from recollect.types import (
    Change,
    ExpectUnchanged,
    Filter,
    Forget,
    MarkIngested,
    MarkUndo,
    Put,
    Record,
    Restore,
    SetFileState,
    SetFolderOptions,
    Supersede,
    now,
)

REPLACED = (  # the fields that are replaced when a record is put again under its id
    "text", "title", "kind", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
    "path", "lines", "origin", "author", "author_session", "place",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordState:
    """A record in the store, forgotten or not; of a purged one only the id is left."""

    record: Record
    forgotten: bool = False
    purged: bool = False


class Table(ABC):
    """The steps of changes in one transaction. `note` writes the history; the other steps do not."""

    dialect: ClassVar[Dialect]

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def by_id(self, key: str) -> Condition:
        """A condition on records and on events: those of the record with this id."""
        return "id = %s", [key]

    def by_row(self, row: int) -> Condition:
        """A condition on records and on events: those of the record in this row."""
        return "row = %s", [row]

    def look(self, key: str) -> RecordState | None:
        """The record with this id, locked until the transaction ends."""
        select = self.dialect.select.replace(" FROM", ", forgotten_at, passage FROM", 1)
        condition, values = self.by_id(key)
        row = self.connection.execute(f"{select} WHERE {condition}{self.dialect.lock}", values).fetchone()
        if row is None:
            return None
        *fields, forgotten, passage = row
        return RecordState(from_row(fields), forgotten is not None, not passage)

    def twin(self, record: Record) -> Record | None:
        """The live record of the same scope and kind with the same text."""
        condition, values = self.dialect.matching(Filter(scope=record.scope, kinds=(record.kind,)))
        sql = f"{self.dialect.select} WHERE {condition} AND fold = %s{self.dialect.lock}"
        same = map(from_row, self.connection.execute(sql, [*values, record.text_hash]))
        return next((other for other in same if other.scope == record.scope), None)

    @abstractmethod
    def insert(self, record: Record) -> None:
        """Store a record whose id is new."""

    @abstractmethod
    def replace(self, record: Record, before: Record) -> None:
        """Replace the record that has this id; it is no longer forgotten. Vectors that no record has any more go."""

    def supersede(self, key: str, by: str | None, at: datetime | None) -> None:
        """Set which record supersedes this one and since when; None for neither."""
        condition, values = self.by_id(key)
        update = f"UPDATE records SET superseded_by = %s, superseded_at = %s WHERE {condition}"
        self.connection.execute(update, [by, micros(at), *values])

    def hide(self, row: int) -> None:
        """Remove a record from every answer; its id stays in use."""
        condition, values = self.by_row(row)
        with self.connection.pipeline():
            self.unindex(row)
            update = f"UPDATE records SET forgotten_at = %s WHERE {condition}"
            self.connection.execute(update, [micros(now()), *values])

    @abstractmethod
    def unindex(self, row: int) -> None:
        """Remove a record from the indexes that are written with it."""

    @abstractmethod
    def drop_orphan(self, row: int, passage: bytes) -> None:
        """Delete the vectors of a text that a row had, if no record has it now: a text can be recovered from them."""

    def erase(self, row: int) -> None:
        """Delete the content of a purged record: of the record, of its history, and its vectors."""
        condition, values = self.by_row(row)
        (passage,) = self.connection.execute(f"SELECT passage FROM records WHERE {condition}", values).fetchone()
        with self.connection.pipeline():
            self.connection.execute(
                "UPDATE records SET text = '', title = '', category = NULL, tags = %s, source = NULL, path = NULL,"
                " first_line = NULL, last_line = NULL, author = NULL, author_session = NULL, place = NULL, fold = %s,"
                f" passage = %s WHERE {condition}",
                [[], b"", b"", *values],
            )
            self.connection.execute(f"UPDATE history SET detail = '{{}}' WHERE {condition}", values)
            self.drop_orphan(row, passage)

    def row(self, key: str) -> int:
        """The row of a record."""
        return int(self.connection.execute("SELECT row FROM records WHERE id = %s", (key,)).fetchone()[0])

    def last(self, key: str) -> int | None:
        """The number of the last event of a record."""
        condition, values = self.by_id(key)
        (last,) = self.connection.execute(f"SELECT max(seq) FROM history WHERE {condition}", values).fetchone()
        return None if last is None else int(last)

    @abstractmethod
    def note(self, key: str, action: str, detail: Mapping[str, Any]) -> None:
        """Write an event to the history."""

    def check_space(self, space: int) -> None:
        """Refuse vectors of a space that does not answer."""
        if self.connection.execute(ACTIVE_SPACE).fetchone() != (space,):
            raise Overtaken("the vectors of another model answer searches by now", hint="try again")


ACTIVE_SPACE = "SELECT space FROM spaces JOIN meta ON value = fingerprint WHERE key = 'space'"


def encoded(detail: Mapping[str, Any]) -> str:
    """The detail of an event as JSON."""
    return json.dumps(detail, default=datetime.isoformat, ensure_ascii=False)


def apply(table: Table, change: Change) -> list[Record]:
    """Make one change. Returns the record that was put, as it is now stored."""
    match change:
        case Put():
            return [_put(table, change)]
        case Supersede():
            _supersede(table, change)
        case Forget():
            _forget(table, change)
        case Restore():
            _restore(table, change)
        case ExpectUnchanged():
            if table.last(change.id) != change.seq:
                raise Overtaken(f"{change.id!r} was changed at the same time", hint="try again")
        case MarkUndo():
            table.note(change.id, "undo", {"undoes": change.seq, **change.writer.as_detail()})
        case _:
            _set_state(table.connection, change)
    return []


def _set_state(connection: Any, change: Change) -> None:
    match change:
        case SetFolderOptions(options=None):
            connection.execute("DELETE FROM roots WHERE root = %s", (change.root,))
        case SetFolderOptions():
            connection.execute(
                "INSERT INTO roots VALUES (%s, %s) ON CONFLICT (root) DO UPDATE SET told = excluded.told",
                (change.root, json.dumps(change.options, ensure_ascii=False)),
            )
        case SetFileState():
            connection.execute("DELETE FROM files WHERE path = %s", (change.path,))
            if (state := change.state) is not None:
                values = (state.path, state.root, state.mtime_ns, state.size, state.digest)
                connection.execute("INSERT INTO files VALUES (%s, %s, %s, %s, %s)", values)
        case MarkIngested():
            connection.execute(
                "INSERT INTO ingested VALUES (%s, %s) ON CONFLICT (digest) DO UPDATE SET at = excluded.at",
                (change.digest, micros(now())),
            )


def _put(table: Table, change: Put) -> Record:
    stored = table.look(change.record.id)
    if stored is not None:
        return _put_again(table, stored, change)
    twin = table.twin(change.record) if change.merge else None
    if twin is not None and change.record.provenance.distrust > twin.provenance.distrust:
        return twin  # a writer who is trusted less must not change what others wrote
    if twin is not None:
        return _put_again(table, RecordState(twin), replace(change, record=_merged(twin, change.record)))
    table.insert(change.record)
    table.note(change.record.id, "add", {})
    return change.record


def _put_again(table: Table, stored: RecordState, change: Put) -> Record:
    before, record = stored.record, change.record
    if before.scope != record.scope and not stored.purged:  # the history of an id, too, belongs to one scope
        raise id_taken(record.id)
    if before.kind == "chunk" and record.kind == "fact" and not stored.forgotten:
        raise id_of_a_chunk(record.id)
    if not change.any_writer and not stored.purged and record.provenance.distrust > before.provenance.distrust:
        return _repeated(stored, record)
    if stored.forgotten:
        table.replace(record, before)
        table.note(record.id, "add", {})
        return record
    changed = {name: getattr(before, name) for name in REPLACED if getattr(before, name) != getattr(record, name)}
    if not changed:
        return before
    edited = now() if {"text", "title"} & changed.keys() else before.edited_at
    after = replace(before, edited_at=edited, **{name: getattr(record, name) for name in changed})
    table.replace(after, before)
    table.note(after.id, "update", {"before": changed, **change.writer.as_detail()})
    return after


def id_taken(record_id: str) -> UsageError:
    """The refusal of an id that a record of another scope has."""
    message = f"the id {record_id!r} is taken by a record of another scope"
    return UsageError(message, hint="leave the id out, or use another")


def id_of_a_chunk(record_id: str) -> UsageError:
    """The refusal of a fact that would replace a chunk."""
    return UsageError(f"{record_id!r} is a chunk of an indexed file", hint="choose another id, or none")


def _repeated(stored: RecordState, record: Record) -> Record:
    """The stored record, if a writer who is trusted less only repeats its text: it must not change anything else."""
    before = stored.record
    if before.text_hash == record.text_hash and not stored.forgotten:
        return before
    raise UsageError(
        f"{before.id!r} has the origin {before.origin}, so a record of the origin {record.origin} cannot overwrite it",
        hint="leave the id out, or use another",
    )


def _merged(twin: Record, record: Record) -> Record:
    """Two records of the same fact as one: fields that the later one sets win, and tags are joined.

    The text is of the writer who is trusted more.
    """
    default = Record(id="", text="")
    fields = {
        name: getattr(record, name)
        for name in ("title", "category", "importance", "decay", "happened_at", "expires_at", "source")
        if getattr(record, name) != getattr(default, name)
    }
    if record.provenance.distrust < twin.provenance.distrust:
        fields |= record.provenance.as_dict()
    return replace(twin, tags=tuple(dict.fromkeys((*twin.tags, *record.tags))), **fields)


def _supersede(table: Table, change: Supersede) -> None:
    old, new = _require(table, change.id), _require(table, change.by)
    if old.superseded_by == new.id:
        return
    if old.superseded_by is not None:
        raise UsageError(
            f"{old.id!r} is already superseded by {old.superseded_by!r}",
            hint=f"supersede {old.superseded_by!r} instead",
        )
    if not old.scope.admits(new.scope):
        raise UsageError(
            f"{new.id!r} is not visible to everyone who can see {old.id!r}, so it cannot supersede it",
            hint="give the new record the scope of the old one, or a wider one",
        )
    if new.provenance.distrust > max(1, old.provenance.distrust):
        # A search that leaves out its origin would find neither of the two.
        raise UsageError(
            f"{new.id!r} has the origin {new.origin}, so it cannot supersede {old.id!r}, whose origin is {old.origin}",
            hint="if it is right, give it another origin first: recollect edit ID --origin user",
        )
    _refuse_cycle(table, old.id, new)
    at = change.at or min(max(new.time, old.time), now())
    table.supersede(old.id, new.id, at)
    table.note(old.id, "supersede", {"by": new.id, "from": at.isoformat(), **change.writer.as_detail()})
    table.note(new.id, "supersedes", {"id": old.id, **({"made": True} if change.made else {})})


def _refuse_cycle(table: Table, old: str, new: Record) -> None:
    chain = [new.id]
    successor = new.superseded_by
    while chain[-1] != old and successor is not None and successor not in chain:
        chain.append(successor)
        stored = table.look(successor)
        successor = stored.record.superseded_by if stored else None
    if old in chain:
        raise SupersessionCycle(
            f"{old!r} would come to supersede itself: {' → '.join([old, *chain])}",
            hint="add a new record with the text that holds now, and supersede by that",
        )


def _forget(table: Table, change: Forget) -> None:
    stored = table.look(change.id)
    if stored is None or (stored.forgotten and not change.purge):
        raise UnknownRecord(change.id)
    table.hide(row := table.row(change.id))
    if change.purge:
        table.erase(row)
    # The purge of a chunk always names its writer: indexing brings back what it has purged, and not what the user has.
    named = {"origin": change.writer.origin} if change.purge and stored.record.kind == "chunk" else {}
    table.note(change.id, "purge" if change.purge else "forget", named | change.writer.as_detail())


def _restore(table: Table, change: Restore) -> None:
    stored = table.look(change.id)
    if stored is None or (change.owner is not None and not change.owner.owns(stored.record.scope)):
        raise UnknownRecord(change.id)
    if stored.purged:
        raise UsageError(f"{change.id!r} was purged: nothing of it is left", hint="add it again")
    if stored.forgotten:
        table.replace(stored.record, stored.record)
        table.note(change.id, "restore", {"undid": "forget"})
    elif stored.record.superseded_by is not None:
        table.supersede(change.id, None, None)
        table.note(change.id, "restore", {"undid": "supersede", "by": stored.record.superseded_by})
    else:
        raise UsageError(f"{change.id!r} is neither forgotten nor superseded", hint="there is nothing to restore")


def _require(table: Table, key: str) -> Record:
    stored = table.look(key)
    if stored is None or stored.forgotten:
        raise UnknownRecord(key)
    return stored.record

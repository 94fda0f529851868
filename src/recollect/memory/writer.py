"""Changes to the store: add, edit, supersede, forget and undo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from recollect.errors import Forbidden, Overtaken, RecollectError, StoreError, UnknownRecord, UsageError
from recollect.memory.embeddings import Embeddings
from recollect.memory.history import line_numbers, since_purge
from recollect.memory.validation import make_fields, make_record, parse_id, parse_time
from recollect.types import (
    EVERYTHING,
    GLOBAL,
    Change,
    Event,
    ExpectUnchanged,
    Forget,
    MarkUndo,
    Progress,
    Put,
    Record,
    Records,
    Restore,
    Scope,
    Store,
    Supersede,
)

EDITABLE = (
    "text", "title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
)  # fmt: skip
INHERITED = ("title", "category", "tags", "importance", "decay")
"""Fields that a new text takes over from the record it supersedes."""

ATTEMPTS = 5
"""Tries at a change that other writers keep overtaking."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _retried(change: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Read and write again when another writer changed the record in between."""

    @wraps(change)
    def retry(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(Overtaken):
                return change(*args, **kwargs)
        return change(*args, **kwargs)

    return retry


@dataclass(frozen=True, slots=True)
class Writer:
    """Changes one store for one scope. A scoped `caller` can change only records that its scope owns.

    Vectors are saved after their records, so a refused record leaves no vector behind.
    """

    store: Store
    embeddings: Embeddings
    announce: Callable[[str], None]
    scope: Scope
    caller: Scope | None = None

    @property
    def _limit(self) -> Scope | None:
        """The scope whose records can be reached by id; None means all records."""
        return None if self.caller is None and self.scope == GLOBAL else self.scope

    def add(self, fields: Mapping[str, Any], supersedes: str | None = None) -> Record:
        """Store one record, which may supersede another."""
        return self._store(self._additions(fields, supersedes))[0]

    def add_many(self, records: Iterable[Mapping[str, Any]], progress: Progress | None) -> list[Record]:
        """Store many records. All are checked before the first is stored; an error says how many were stored."""
        if isinstance(records, str | bytes | Mapping):
            raise UsageError("records must be a list of objects", hint='[{"text": "…"}, {"text": "…"}]')
        groups = [self._numbered_additions(number, fields) for number, fields in enumerate(records, 1)]
        visible = self._visible_passages(change for group in groups for change in group)
        try:
            stored = self.store.records.apply(groups)
        except RecollectError as error:
            _explain_partial(error, len(groups))
            raise
        if self.embeddings.configured:
            try:
                self.embeddings.ensure([record.passage for record in stored], progress, visible=visible)
            except RecollectError as error:
                self._announce_missing(error)
        return stored

    @_retried
    def edit(self, record_id: str, fields: Mapping[str, Any]) -> Record:
        """Change fields of a fact in place; None clears a field."""
        unchanged = [
            ExpectUnchanged(event.id, event.seq) for event in self.store.records.history(parse_id(record_id))[-1:]
        ]
        (old,) = self.owned([record_id])
        if old.kind != "fact":
            raise _chunk_error(record_id)
        if unknown := fields.keys() - set(EDITABLE):
            raise UsageError(f"{min(unknown)!r} cannot be edited", hint=f"editable fields: {', '.join(EDITABLE)}")
        return self._store([*unchanged, Put(replace(old, **make_fields(fields)))])[0]

    def supersede(self, record_id: str, by: str | None, text: str | None, at: datetime | str | None) -> Record:
        """Replace one record by an existing one, or by a new text that inherits its other fields."""
        if (by is None) == (text is None):
            raise UsageError("a record is superseded by an id or by a new text", hint="give `by` or `text`, not both")
        moment = parse_time(at)
        (old,) = self.owned([record_id])
        if by is not None:
            self.require(by)
            self.store.records.apply([[Supersede(old.id, parse_id(by), moment)]])
            return self.require(by)
        inherited = {name: getattr(old, name) for name in INHERITED}
        new = make_record({**inherited, "text": text, "happened_at": moment}, old.scope)
        return self._store([Put(new), Supersede(old.id, new.id, moment, made=True)])[0]

    def forget(self, ids: Sequence[str], purge: bool) -> None:
        """Hide records from every answer, all of them or none; `purge` erases their content."""
        if self._limit is not None:
            self.owned(ids)
        self.store.records.apply([[Forget(parse_id(record_id), purge) for record_id in ids]])
        if purge and (warning := self.store.scrub()):
            self.announce(warning)

    @_retried
    def undo(self, record_id: str, seq: int | None = None) -> tuple[str, Record | None]:
        """Undo the last change to a record; returns the action undone and the record as it is now.

        `seq` is the number of that change in the history as this caller sees it.
        """
        key = parse_id(record_id)
        if not self.knows(key):
            raise UnknownRecord(key)
        if self.store.records.get([key]):
            self.owned([key])
        action, changes = reversal(self.store.records, key, self._limit, self._store_seq(key, seq))
        self._store(changes)
        return action, next(iter(self.store.records.get([key])), None)

    def _store_seq(self, key: str, line: int | None) -> int | None:
        """The store's number of a line of history; 0, which no line has, if the caller cannot see that line."""
        if line is None or self.caller is None:
            return line
        numbers = line_numbers(self.store.records, self.store.records.history(key), self.caller)
        return next((seq for seq, number in numbers.items() if number == line), 0)

    def owned(self, ids: Sequence[str]) -> list[Record]:
        """The records with these ids; an error if the caller must not change one of them."""
        records = [self.require(record_id) for record_id in ids]
        for record in records:
            if self.caller is not None and not self.caller.owns(record.scope):
                raise Forbidden(
                    f"{record.id!r} is shared with other scopes: you can read it but not change it",
                    hint="only a caller without a scope can change it",
                )
        return records

    def require(self, record_id: str) -> Record:
        """The visible record with this id; an error if there is none."""
        for record in self.store.records.get([parse_id(record_id)]):
            if self._limit is None or self._limit.admits(record.scope):
                return record
        raise UnknownRecord(record_id)

    def knows(self, record_id: str) -> bool:
        """Whether the caller may learn that this id exists; a scoped caller knows only its own forgotten records."""
        if self._limit is None:
            return True
        key = parse_id(record_id)
        alive = self.store.records.get([key])
        scope = alive[0].scope if alive else self.store.records.scope_of(key)
        if scope is None or not self._limit.admits(scope):
            return False
        return bool(alive) or self.caller is None or self.caller.owns(scope)

    def _store(self, changes: Sequence[Change]) -> list[Record]:
        """Apply changes in one transaction. If vectors cannot be computed, records are stored without them."""
        passages = [change.record.passage for change in changes if isinstance(change, Put)]
        save: Callable[[Sequence[str]], None] | None = None
        failure: RecollectError | None = None
        try:
            if passages and self.embeddings.configured:
                save = self.embeddings.prepare(passages, visible=self._visible_passages(changes))
        except StoreError:
            raise  # a store that cannot be read cannot be written either
        except RecollectError as error:
            failure = error
        stored = self.store.records.apply([changes])
        try:
            if save is not None:
                save([record.passage for record in stored])
        except RecollectError as error:
            failure = error
        if failure is not None:
            self._announce_missing(failure)
        return stored

    def _announce_missing(self, error: RecollectError) -> None:
        self.announce(f"stored without vectors: {error.message}")

    def _visible_passages(self, changes: Iterable[Change]) -> set[str] | None:
        """For a scoped caller: passages of visible records whose text is the same as a new one's."""
        if self.caller is None:
            return None
        folds = [change.record.text_hash for change in changes if isinstance(change, Put)]
        duplicates = self.store.joins.by_text(folds, replace(EVERYTHING, any_scope=False, scope=self.caller))
        return {record.passage for record in duplicates.values()}

    def _additions(self, fields: Mapping[str, Any], supersedes: str | None) -> list[Change]:
        record = make_record(fields, self.scope)
        named = fields.get("id") is not None
        if self.caller is not None and record.scope != self.caller:
            raise Forbidden("a record cannot be stored for another scope", hint="leave the scope out")
        if self.caller is not None and (record.kind != "fact" or record.path is not None):
            raise Forbidden("only the owner of the store can index files", hint="leave out kind, path and lines")
        if named and record.kind == "fact" and self._is_visible_chunk(record.id):
            raise UsageError(f"{record.id!r} is a chunk of an indexed file", hint="choose another id, or none")
        changes: list[Change] = [Put(record, merge=not named and supersedes is None)]
        if supersedes is not None:
            if self._limit is not None:
                self.owned([supersedes])
            changes.append(Supersede(parse_id(supersedes), record.id, made=True))
        return changes

    def _numbered_additions(self, number: int, record: Mapping[str, Any]) -> list[Change]:
        """The changes for one of many records; an error in it names its number."""
        try:
            fields = dict(record) if isinstance(record, Mapping) else record
            supersedes = fields.pop("supersedes", None) if isinstance(fields, dict) else None
            return self._additions(fields, supersedes)
        except UsageError as error:
            kind = Forbidden if isinstance(error, Forbidden) else UsageError
            raise kind(f"record {number}: {error.message}", hint=f"{error.hint} (nothing was stored)") from error

    def _is_visible_chunk(self, key: str) -> bool:
        records = self.store.records.get([key])
        visible = bool(records) and (self.caller is None or self.caller.admits(records[0].scope))
        return visible and records[0].kind == "chunk"


def reversal(records: Records, key: str, caller: Scope | None, seq: int | None = None) -> tuple[str, Sequence[Change]]:
    """The last change to a record that still stands, and the changes that undo it.

    A `caller` can undo only changes to its own records. With `seq`, a later change in the history is an error.
    """
    events = _events(records, key, caller)
    if not events:
        raise UnknownRecord(key)
    target = _last_standing(events)
    if target is None:
        raise UsageError(f"{key!r} has no change left to undo", hint="see its history")
    if seq is not None and target.seq != seq:
        raise Overtaken(f"{key!r} has been changed again since", hint="see its history")
    action, changes = _reversed(records, target, caller)
    return action, [ExpectUnchanged(key, events[-1].seq), *changes, MarkUndo(key, target.seq)]


def _events(records: Records, key: str, caller: Scope | None) -> Sequence[Event]:
    """A record's history. What happened before a purge may have been another scope's, so no caller sees it."""
    events = records.history(key)
    return events if caller is None else since_purge(events)


def _last_standing(events: Sequence[Event]) -> Event | None:
    """The last event that has not been undone and is not itself an undo."""
    undone: set[int] = set()
    for before, event in zip([None, *events][-2::-1], reversed(events), strict=False):
        if event.action == "undo":
            undone |= {int(event.detail["undoes"]), before.seq if before else 0}
        elif event.seq not in undone:
            return event
    return None


def _reversed(records: Records, last: Event, caller: Scope | None) -> tuple[str, Sequence[Change]]:
    key = last.id
    match last.action:
        case "add" | "update" if _alive(records, key).kind != "fact":
            raise _chunk_error(key)
        case "add":
            return "add", [Forget(key)]
        case "update":
            return "update", [Put(replace(_alive(records, key), **_previous_values(last.detail.get("before", {}))))]
        case "forget":
            return "forget", [Restore(key, caller)]
        case "supersede":
            restored, forgotten = _unsuperseded(records, key, str(last.detail["by"]), caller)
            return "supersede", [*restored, *forgotten]
        case "supersedes" if _last_supersession(records, str(last.detail["id"])) == key:
            old = str(last.detail["id"])
            restored, forgotten = _unsuperseded(records, old, key, caller)
            lines = [event.seq for event in records.history(old) if event.action == "supersede"]
            return "supersede", [*restored, MarkUndo(old, lines[-1]), *forgotten[:-1]]
    raise UsageError(f"the last change to {key!r} ({last.action}) cannot be undone", hint="see its history")


def _unsuperseded(records: Records, old: str, new: str, caller: Scope | None) -> tuple[list[Change], list[Change]]:
    """Changes that restore the old record, and those that forget the new one if it was made only to supersede it."""
    if caller is not None and not caller.owns(_alive(records, old).scope):
        raise Forbidden("the record that it superseded belongs to another scope and cannot be restored here")
    events = _events(records, new, caller)
    made = [event.action for event in events] == ["add", "supersedes"] and bool(events[-1].detail.get("made"))
    if not made or (caller is not None and not caller.owns(_alive(records, new).scope)):
        return [Restore(old, caller)], []
    seq = events[-1].seq
    return [ExpectUnchanged(new, seq), Restore(old, caller)], [Forget(new), MarkUndo(new, seq)]


def _last_supersession(records: Records, key: str) -> str:
    """The record by which this one was superseded, if that is the last change to it."""
    last = _last_standing(records.history(key))
    return str(last.detail.get("by", "")) if last and last.action == "supersede" else ""


def _alive(records: Records, key: str) -> Record:
    for record in records.get([key]):
        return record
    raise UnknownRecord(key)


def _previous_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that an edit replaced, converted from the JSON of the history."""
    read: dict[str, Callable[[Any], Any]] = {
        "tags": tuple, "lines": tuple, "happened_at": parse_time, "expires_at": parse_time,
    }  # fmt: skip
    return {name: read[name](value) if value is not None and name in read else value for name, value in values.items()}


def _chunk_error(key: str) -> UsageError:
    return UsageError(f"{key!r} is a chunk of an indexed file", hint="edit the file, and index it")


def _explain_partial(error: RecollectError, total: int) -> None:
    """Add to an error how many of several records were stored before it."""
    if error.applied:
        message = f"the first {error.applied:,} of {total:,} records were stored, the rest was not: {error.message}"
        again = f"go on with record {error.applied + 1:,}, or give all again: the same id or text is not stored twice"
        error.explain(message, f"{error.hint}; then {again}")

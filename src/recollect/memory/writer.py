"""What is done to the store on a caller's word: add, edit, supersede, forget, undo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from recollect.errors import Forbidden, Overtaken, RecollectError, StoreError, UnknownRecord, UsageError
from recollect.memory.embeddings import Embedding, Keep
from recollect.memory.history import line_numbers, since_purge
from recollect.memory.validation import make_fields, make_record, parse_id, parse_time
from recollect.ranking import fold_hash
from recollect.types import (
    EVERYTHING,
    GLOBAL,
    Change,
    Event,
    Forget,
    Progress,
    Put,
    Record,
    Records,
    Restore,
    Scope,
    Still,
    Store,
    Supersede,
    Undid,
)

EDITABLE = (
    "text", "title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
)  # fmt: skip
"""What may be said anew of a fact."""

ATTEMPTS = 5
"""At a change that others keep overtaking."""


_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Remembering:
    """Writes to one store for one scope; with a scoped `caller`, it changes nothing that is not that scope's own.

    Vectors are kept after their records are stored: what is refused leaves nothing behind.
    """

    store: Store
    embedding: Embedding
    announce: Callable[[str], None]
    scope: Scope
    caller: Scope | None = None

    @property
    def _limit(self) -> Scope | None:
        """The scope whose records can be reached by id; None is all of them."""
        return None if self.caller is None and self.scope == GLOBAL else self.scope

    def add(self, said: Mapping[str, Any], supersedes: str | None = None) -> Record:
        """Store one record, in the place of another where that is said."""
        return self._stored(self._put(said, supersedes))[0]

    def add_many(self, records: Iterable[Mapping[str, Any]], progress: Progress | None) -> list[Record]:
        """Store many; all are checked before the first is stored. An error says how many were stored before it."""
        if isinstance(records, str | bytes | Mapping):
            raise UsageError("many records are a list of them", hint='[{"text": "…"}, {"text": "…"}]')
        groups = [self._numbered(number, said) for number, said in enumerate(records, 1)]
        seen = self._seen(change for group in groups for change in group)
        try:
            stored = self.store.records.apply(groups)
        except RecollectError as error:
            _count_stored(error, len(groups))
            raise
        if self.embedding.configured:
            with self._announced():
                self.embedding.ensure([record.passage for record in stored], progress, seen=seen)
        return stored

    def edit(self, record_id: str, said: Mapping[str, Any]) -> Record:
        """Change what is said of a fact, in place; None clears a field. What it was before stays in its history."""
        return _persistently(partial(self._edit, record_id, said))

    def _edit(self, record_id: str, said: Mapping[str, Any]) -> Record:
        seen = [Still(event.id, event.seq) for event in self.store.records.history(parse_id(record_id))[-1:]]
        (old,) = self.own([record_id])
        if old.kind != "fact":
            raise UsageError(f"{record_id!r} is part of a file, which it mirrors", hint="edit the file, and index it")
        if unknown := said.keys() - set(EDITABLE):
            raise UsageError(f"{min(unknown)!r} cannot be edited", hint=f"there are {', '.join(EDITABLE)}")
        return self._stored([*seen, Put(replace(old, **make_fields(said)))])[0]

    def supersede(self, record_id: str, by: str | None, text: str | None, at: datetime | str | None) -> Record:
        """Let one record take another's place: an existing one, or a new one that inherits what the old one was."""
        if (by is None) == (text is None):
            raise UsageError("a record is superseded by an id or by a new text", hint="give `by` or `text`, not both")
        moment = parse_time(at)
        (old,) = self.own([record_id])
        if by is not None:
            self.require(by)
            self.store.records.apply([[Supersede(old.id, parse_id(by), moment)]])
            return self.require(by)
        kept = {name: getattr(old, name) for name in ("title", "category", "tags", "importance", "decay")}
        new = make_record({**kept, "text": text, "happened_at": moment}, old.scope)
        return self._stored([Put(new), Supersede(old.id, new.id, moment, made=True)])[0]

    def forget(self, ids: Sequence[str], purge: bool) -> None:
        """Take records out of every answer, all or none."""
        if self._limit is not None:
            self.own(ids)
        self.store.records.apply([[Forget(parse_id(record_id), purge) for record_id in ids]])
        if purge and (left := self.store.scrub()):
            self.announce(left)

    def undo(self, record_id: str, seq: int | None = None) -> tuple[str, Record | None]:
        """Take back the last thing that happened to a record; what it was, and the record as it stands now.

        `seq` is the number that the caller's history gives the line.
        """
        return _persistently(partial(self._undo, parse_id(record_id), seq))

    def _undo(self, key: str, seq: int | None = None) -> tuple[str, Record | None]:
        if not self.knows(key):
            raise UnknownRecord(key)
        if self.store.records.get([key]):
            self.own([key])
        undone, changes = reversal(self.store.records, key, self._limit, self._seq(key, seq))
        self._stored(changes)
        return undone, next(iter(self.store.records.get([key])), None)

    def _seq(self, key: str, line: int | None) -> int | None:
        """The store's number of a line that the caller named; 0, which no line has, where they see no such line."""
        if line is None or self.caller is None:
            return line
        numbers = line_numbers(self.store.records, self.store.records.history(key), self.caller)
        return next((seq for seq, number in numbers.items() if number == line), 0)

    def own(self, ids: Sequence[str]) -> list[Record]:
        """The records with these ids, which must be the caller's to change."""
        records = [self.require(record_id) for record_id in ids]
        for record in records:
            if self.caller is not None and not self.caller.owns(record.scope):
                raise Forbidden(
                    f"{record.id!r} is shared with others: it can be read here, not changed",
                    hint="only one who is not bound to a scope may change it",
                )
        return records

    def require(self, record_id: str) -> Record:
        """The record with this id, or an error where there is none that may be seen."""
        found = self.store.records.get([parse_id(record_id)])
        for record in found:
            if self._limit is None or self._limit.admits(record.scope):
                return record
        raise UnknownRecord(record_id)

    def knows(self, record_id: str) -> bool:
        """Whether a record is there to be told of; one that is forgotten, behind the wall, to whom it belongs."""
        if self._limit is None:
            return True
        key = parse_id(record_id)
        alive = self.store.records.get([key])
        whose = alive[0].scope if alive else self.store.records.scope_of(key)
        if whose is None or not self._limit.admits(whose):
            return False
        return bool(alive) or self.caller is None or self.caller.owns(whose)

    def _is_chunk(self, key: str) -> bool:
        """Whether the id is that of a chunk, as far as the caller may know."""
        found = self.store.records.get([key])
        return bool(found) and found[0].kind == "chunk" and (self.caller is None or self.caller.admits(found[0].scope))

    def _stored(self, changes: Sequence[Change]) -> list[Record]:
        """Make changes as one; the records put, as they now stand, have vectors if these can be had now."""
        keep: Keep | RecollectError = _nothing
        passages = [change.record.passage for change in changes if isinstance(change, Put)]
        if passages and self.embedding.configured:
            try:
                keep = self.embedding.prepare(passages, seen=self._seen(changes))
            except StoreError:
                raise  # what cannot be read cannot be written either
            except RecollectError as error:
                keep = error
        stored = self.store.records.apply([changes])
        with self._announced():
            if isinstance(keep, RecollectError):
                raise keep
            keep([record.passage for record in stored])
        return stored

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        """Records are stored; where their vectors are not, that is said, and a search or `embed` computes them."""
        try:
            yield
        except RecollectError as error:
            self.announce(f"stored without vectors: {error.message}")

    def _seen(self, changes: Iterable[Change]) -> set[str] | None:
        """Behind the wall: the passages of visible records that say the same as what is to be stored."""
        if self.caller is None:
            return None
        folds = [fold_hash(change.record.text) for change in changes if isinstance(change, Put)]
        found = self.store.joins.by_text(folds, replace(EVERYTHING, any_scope=False, scope=self.caller))
        return {record.passage for record in found.values()}

    def _put(self, said: Mapping[str, Any], supersedes: str | None) -> list[Change]:
        record = make_record(said, self.scope)
        if self.caller is not None and record.scope != self.caller:
            raise Forbidden("a record cannot be stored for another scope", hint="leave the scope out")
        if self.caller is not None and (record.kind != "fact" or record.path is not None):
            raise Forbidden("files are mirrored by the owner of the store alone", hint="leave out kind, path and lines")
        if said.get("id") is not None and record.kind == "fact" and self._is_chunk(record.id):
            raise UsageError(f"{record.id!r} is part of a file, which it mirrors", hint="another id, or none")
        changes: list[Change] = [Put(record, merge=said.get("id") is None and supersedes is None)]
        if supersedes is not None:
            if self._limit is not None:
                self.own([supersedes])
            changes.append(Supersede(parse_id(supersedes), record.id, made=True))
        return changes

    def _numbered(self, number: int, said: Mapping[str, Any]) -> list[Change]:
        """What one of many records asks for; a mistake in it is named by its number."""
        try:
            fields = dict(said) if isinstance(said, Mapping) else said
            supersedes = fields.pop("supersedes", None) if isinstance(fields, dict) else None
            return self._put(fields, supersedes)
        except UsageError as error:
            kind = Forbidden if isinstance(error, Forbidden) else UsageError
            raise kind(f"record {number}: {error.message}", hint=f"{error.hint} (nothing was stored)") from error


def _count_stored(error: RecollectError, total: int) -> None:
    """Say how many of several records were stored before an error."""
    if error.applied:
        message = f"the first {error.applied:,} of {total:,} records were stored, the rest was not: {error.message}"
        again = f"go on with record {error.applied + 1:,}, or give all again: the same id or text is not stored twice"
        error.explain(message, f"{error.hint}; then {again}")


def _nothing(passages: Sequence[str]) -> None:
    """Keeps no vectors: there is no embedder, or nothing to embed."""


def _persistently(work: Callable[[], _Done]) -> _Done:
    """Read and write again where somebody else wrote in between."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Overtaken):
            return work()
    return work()


MADE_FOR_IT = ["add", "supersedes"]
"""All that happened to a record which was stored only to take another's place."""


def reversal(records: Records, key: str, caller: Scope | None, seq: int | None = None) -> tuple[str, Sequence[Change]]:
    """What happened last and was not taken back, and the changes that do so; a `caller` changes its own alone.

    With `seq`, only that line of the history: where another has come after it, that is an error.
    """
    events = _lines(records, key, caller)
    if not events:
        raise UnknownRecord(key)
    target = standing(events)
    if target is None:
        raise UsageError(f"nothing that happened to {key!r} is left to undo", hint="see its history")
    if seq is not None and target.seq != seq:
        raise Overtaken(f"something else has happened to {key!r} since", hint="see its history")
    undone, changes = _reversed(records, target, caller)
    return undone, [Still(key, events[-1].seq), *changes, Undid(key, target.seq)]


def _lines(records: Records, key: str, caller: Scope | None) -> Sequence[Event]:
    """A record's history; what came before a purge is no part of it for a `caller`, who may not have been the same."""
    events = records.history(key)
    return events if caller is None else since_purge(events)


def standing(events: Sequence[Event]) -> Event | None:
    """The last event that was not taken back, and is not itself the taking back of another."""
    past: set[int] = set()
    for before, event in zip([None, *events][-2::-1], reversed(events), strict=False):
        if event.action == "undo":
            past |= {int(event.detail["undoes"]), before.seq if before else 0}
        elif event.seq not in past:
            return event
    return None


def _reversed(records: Records, last: Event, caller: Scope | None) -> tuple[str, Sequence[Change]]:
    key = last.id
    match last.action:
        case "add" | "update" if _alive(records, key).kind != "fact":
            raise UsageError(f"{key!r} is part of a file, which it mirrors", hint="edit the file, and index it")
        case "add":
            return "add", [Forget(key)]
        case "update":
            return "update", [Put(replace(_alive(records, key), **_before(last.detail.get("before", {}))))]
        case "forget":
            return "forget", [Restore(key, caller)]
        case "supersede":
            new = str(last.detail["by"])
            lifted, forgotten = _lifted(records, key, new, caller)
            return "supersede", [*lifted, *forgotten]
        case "supersedes" if _last(records, str(last.detail["id"])) == ("supersede", key):
            old = str(last.detail["id"])
            lifted, forgotten = _lifted(records, old, key, caller)
            lines = [event.seq for event in records.history(old) if event.action == "supersede"]
            return "supersede", [*lifted, Undid(old, lines[-1]), *forgotten[:-1]]
    raise UsageError(f"the last that happened to {key!r} ({last.action}) cannot be undone", hint="see its history")


def _lifted(records: Records, old: str, new: str, caller: Scope | None) -> tuple[list[Change], list[Change]]:
    """The old record holds again; the new one goes, where it was made for nothing else and is the caller's too."""
    if caller is not None and not caller.owns(_alive(records, old).scope):
        raise Forbidden("it took the place of another's record, which is not the caller's to bring back")
    events = _lines(records, new, caller)
    made = [event.action for event in events] == MADE_FOR_IT and bool(events[-1].detail.get("made"))
    if not made or (caller is not None and not caller.owns(_alive(records, new).scope)):
        return [Restore(old, caller)], []
    line = events[-1].seq
    return [Still(new, line), Restore(old, caller)], [Forget(new), Undid(new, line)]


def _last(records: Records, key: str) -> tuple[str, str]:
    last = standing(records.history(key))
    return (last.action, str(last.detail.get("by", ""))) if last else ("", "")


def _alive(records: Records, key: str) -> Record:
    found = records.get([key])
    if not found:
        raise UnknownRecord(key)
    return found[0]


def _before(values: Mapping[str, Any]) -> dict[str, Any]:
    """What an edit replaced, as a record has it; history keeps it as JSON."""
    read: dict[str, Callable[[Any], Any]] = {
        "tags": tuple, "lines": tuple, "happened_at": parse_time, "expires_at": parse_time,
    }  # fmt: skip
    return {name: read[name](value) if value is not None and name in read else value for name, value in values.items()}

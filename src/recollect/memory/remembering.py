"""What is done to the store on a caller's word: add, edit, supersede, forget, undo."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from recollect.errors import Forbidden, Overtaken, RecollectError, StoreError, UnknownRecord, UsageError
from recollect.memory.embedding import Embedding
from recollect.memory.parsing import make_fields, make_record, parse_id, parse_time
from recollect.memory.undoing import reversal
from recollect.types import GLOBAL, Change, Forget, Progress, Put, Record, Scope, Still, Store, Supersede

EDITABLE = (
    "text", "title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
)  # fmt: skip
"""What may be said anew of a fact."""

ATTEMPTS = 5
"""At a change that others keep overtaking."""


_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class Remembering:
    """Writes to one store for one scope; `walled`, it changes nothing that is not this scope's own."""

    store: Store
    embedding: Embedding
    announce: Callable[[str], None]
    scope: Scope
    walled: bool = False

    def add(self, said: Mapping[str, Any], supersedes: str | None = None) -> Record:
        """Store one record, in the place of another where that is said."""
        record, changes = self._put(said, supersedes)
        self.embed_for_now([record.passage])
        return self.store.records.apply([changes])[0]

    def add_many(self, records: Iterable[Mapping[str, Any]], progress: Progress | None) -> list[Record]:
        """Store many; all are checked before the first is stored. An error says how many were stored before it."""
        if isinstance(records, str | bytes | Mapping):
            raise UsageError("many records are a list of them", hint='[{"text": "…"}, {"text": "…"}]')
        groups = [self._numbered(number, said) for number, said in enumerate(records, 1)]
        try:
            stored = self.store.records.apply(groups)
        except RecollectError as error:
            _count_stored(error, len(groups))
            raise
        try:
            self.embed_for_now([record.passage for record in stored], progress)
        except StoreError as error:
            message = f"all {len(stored):,} records were stored, but not all of their vectors: {error.message}"
            error.explain(message, f"{error.hint}; `recollect embed` computes the vectors that are missing")
            raise
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
        new = replace(old, **make_fields(said))
        self.embed_for_now([new.passage])
        return self.store.records.apply([[*seen, Put(new)]])[0]

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
        self.embed_for_now([new.passage])
        return self.store.records.apply([[Put(new), Supersede(old.id, new.id, moment, made=True)]])[0]

    def forget(self, ids: Sequence[str], purge: bool) -> None:
        """Take records out of every answer, all or none."""
        if self.walled or self.scope != GLOBAL:
            self.own(ids)
        self.store.records.apply([[Forget(parse_id(record_id), purge) for record_id in ids]])
        if purge and (left := self.store.scrub()):
            self.announce(left)

    def undo(self, record_id: str, seq: int | None = None) -> tuple[str, Record | None]:
        """Take back the last thing that happened to a record; what it was, and the record as it stands now."""
        return _persistently(partial(self._undo, parse_id(record_id), seq))

    def _undo(self, key: str, seq: int | None = None) -> tuple[str, Record | None]:
        if self.store.records.get([key]):
            self.own([key])
        owner = self.scope if self.walled or self.scope != GLOBAL else None
        undone, changes = reversal(self.store.records, key, owner, seq)
        self.embed_for_now([change.record.passage for change in changes if isinstance(change, Put)])
        self.store.records.apply([changes])
        return undone, next(iter(self.store.records.get([key])), None)

    def own(self, ids: Sequence[str]) -> list[Record]:
        """The records with these ids, which must be the caller's to change."""
        records = [self.require(record_id) for record_id in ids]
        for record in records:
            if self.walled and not self.scope.owns(record.scope):
                raise Forbidden(
                    f"{record.id!r} is shared with others: it can be read here, not changed",
                    hint="only one who is not bound to a scope may change it",
                )
        return records

    def require(self, record_id: str) -> Record:
        """The record with this id, or an error where there is none that may be seen."""
        found = self.store.records.get([parse_id(record_id)])
        everything = self.scope == GLOBAL and not self.walled
        for record in found:
            if everything or self.scope.admits(record.scope):
                return record
        raise UnknownRecord(record_id)

    def knows(self, record_id: str) -> bool:
        """Whether a record is there to be told of; one that is forgotten, to whom it belongs."""
        if self.scope == GLOBAL and not self.walled:
            return True
        key = parse_id(record_id)
        alive = self.store.records.get([key])
        whose = alive[0].scope if alive else self.store.records.scope_of(key)
        return whose is not None and (self.scope.admits(whose) if alive else self.scope.owns(whose))

    def _is_chunk(self, key: str) -> bool:
        found = self.store.records.get([key])
        return bool(found) and found[0].kind == "chunk"

    def embed_for_now(self, passages: Sequence[str], progress: Progress | None = None) -> None:
        """Vectors for new records if they can be had now; else a later search or `embed` catches up, and says so."""
        if self.embedding.configured:
            try:
                self.embedding.ensure(passages, progress)
            except StoreError:
                raise  # what cannot keep a vector cannot keep a record either
            except RecollectError as error:
                self.announce(f"stored without vectors: {error.message}")

    def _put(self, said: Mapping[str, Any], supersedes: str | None) -> tuple[Record, list[Change]]:
        record = make_record(said, self.scope)
        if self.walled and record.scope != self.scope:
            raise Forbidden("a record cannot be stored for another scope", hint="leave the scope out")
        if self.walled and (record.kind != "fact" or record.path is not None):
            raise Forbidden("files are mirrored by the owner of the store alone", hint="leave out kind, path and lines")
        if said.get("id") is not None and record.kind == "fact" and self._is_chunk(record.id):
            raise UsageError(f"{record.id!r} is part of a file, which it mirrors", hint="another id, or none")
        changes: list[Change] = [Put(record, merge=said.get("id") is None and supersedes is None)]
        if supersedes is not None:
            if self.walled or self.scope != GLOBAL:
                self.own([supersedes])
            changes.append(Supersede(parse_id(supersedes), record.id, made=True))
        return record, changes

    def _numbered(self, number: int, said: Mapping[str, Any]) -> list[Change]:
        """What one of many records asks for; a mistake in it is named by its number."""
        try:
            fields = dict(said) if isinstance(said, Mapping) else said
            supersedes = fields.pop("supersedes", None) if isinstance(fields, dict) else None
            return self._put(fields, supersedes)[1]
        except UsageError as error:
            kind = Forbidden if isinstance(error, Forbidden) else UsageError
            raise kind(f"record {number}: {error.message}", hint=f"{error.hint} (nothing was stored)") from error


def _count_stored(error: RecollectError, total: int) -> None:
    """Say how many of several records were stored before an error."""
    if error.applied:
        message = f"the first {error.applied:,} of {total:,} records were stored, the rest was not: {error.message}"
        again = f"go on with record {error.applied + 1:,}, or give all again: the same id or text is not stored twice"
        error.explain(message, f"{error.hint}; then {again}")


def _persistently(work: Callable[[], _Done]) -> _Done:
    """Read and write again where somebody else wrote in between."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Overtaken):
            return work()
    return work()

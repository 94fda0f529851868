"""Changes to records: making and undoing them, and their history.

The store numbers the changes of all records in one sequence, which would reveal how much others write. A scoped caller
therefore sees only changes that concern its scope, numbered from 1 in each record's history.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from recollect.config.values import brief
from recollect.errors import Forbidden, Overtaken, RecollectError, UnknownRecord, Unreachable, UsageError
from recollect.memory.embeddings import Embeddings
from recollect.memory.naming import Naming
from recollect.memory.resemblance import restated
from recollect.memory.validation import (
    WRITER_FIELDS,
    check_edit,
    claimed,
    make_fields,
    make_record,
    parse_id,
    parse_time,
)
from recollect.stores.ledger import id_of_a_chunk
from recollect.types import EVERYTHING, Event, Progress, Provenance, Record, Records, Scope
from recollect.types.records import Change, ExpectUnchanged, Forget, MarkUndo, Put, Restore, Supersede

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.memory.closeness import ClosenessOf

EDITABLE = (
    "text", "title", "category", "tags", "importance", "decay", "happened_at", "expires_at", "source",
    *WRITER_FIELDS,
)  # fmt: skip
INHERITED = ("title", "category", "tags", "importance", "decay")  # by a new text from the record that it supersedes
ATTEMPTS = 5  # at a change that other writers keep overtaking
CHECKED = 1_000  # records of `add_many` whose ids are looked up together

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def retried(change: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Read and write again when another writer changed the record in between."""

    @wraps(change)
    def retry(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(Overtaken):
                return change(*args, **kwargs)
        return change(*args, **kwargs)

    return retry


class Writer(Naming):
    """The methods of `Memory` for changes to records. A scoped `caller` can change only records that its scope owns."""

    settings: Settings
    embeddings: Embeddings
    closeness: ClosenessOf
    announce: Callable[[str], None]
    provenance: Provenance

    def add(
        self,
        text: str,
        *,
        scope: Scope | Mapping[str, str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        session: str | None = None,
        supersedes: str | None = None,
        **fields: Any,
    ) -> Record:
        """Store a text and return its record.

        The same text in the same scope is stored once: adding it again updates the record. If another fact contradicts
        it meanwhile, as far as their vectors tell, a new record supersedes it instead, and the text is current again.
        If no vector can be computed now, the record is stored without one, which is announced; `embed` computes it.

        Args:
            text: The text, up to a million characters.
            scope: The scope of the record; or name its parts with `user`, `agent` and `session`.
            supersedes: The id of a record that the new one replaces.
            fields: Other fields of the record: id, kind, title, category, tags, importance, decay, created_at,
                happened_at, expires_at, source, path, lines, place; origin (user, file, agent, tool, web or import),
                author and author_session. Times are `datetime` objects or text such as `2026-03-14`; a span such as
                `2w` means two weeks ago, for `expires_at` in two weeks.

        Raises:
            UsageError: A field is unknown or wrong, or the id is of another scope, a chunk or a more trusted writer.
            UnknownRecord: There is no visible record with the id `supersedes`.
            Forbidden: A scoped caller names another scope.
        """
        named = {"text": text, "scope": scope, "user": user, "agent": agent, "session": session}
        changes = self._additions({**fields, **named, "supersedes": supersedes})
        stored = self._store([changes])[0]
        try:
            return self._store([again])[0] if (again := restated(self, stored, changes)) else stored
        except UsageError:  # another writer has just stated it again, too
            return self._store([changes])[0]

    def add_many(self, records: Iterable[Mapping[str, Any]], *, progress: Progress | None = None) -> list[Record]:
        """Store many records, each given as `{"text": …}` with the other arguments of `add` as keys.

        All are checked before the first is stored; an error names the wrong one, or how many were stored before it.
        """
        if isinstance(records, str | bytes | Mapping):
            raise UsageError("records must be a list of objects", hint='[{"text": "…"}, {"text": "…"}]')
        groups: list[Sequence[Change]] = []
        waiting = iter(records)
        while batch := list(itertools.islice(waiting, CHECKED)):
            ids = [
                fields["id"] for fields in batch if isinstance(fields, Mapping) and isinstance(fields.get("id"), str)
            ]
            chunks = self._chunks_among(ids)
            for number, fields in enumerate(batch, len(groups) + 1):
                try:
                    groups.append(self._additions(fields, chunks))
                except UsageError as error:
                    kind = Forbidden if isinstance(error, Forbidden) else UsageError
                    hint = f"{error.hint} (nothing was stored)"
                    raise kind(f"record {number}: {error.message}", hint=hint) from error
        try:
            return self._store(groups, progress)
        except RecollectError as error:
            if done := error.applied:
                message = f"the first {done:,} of {len(groups):,} records were stored, the rest was not"
                again = f"go on with record {done + 1:,}, or give all again: the same id or text is not stored twice"
                error.explain(f"{message}: {error.message}", f"{error.hint}; then {again}")
            raise

    @retried
    def edit(self, record_id: str, **fields: Any) -> Record:
        """Correct a fact in place and return it. None clears a field; the old values stay in its history.

        Editable are text, title, category, tags, importance, decay, happened_at, expires_at, source, and who wrote it:
        origin, author and author_session. A writer who is trusted less than the record's is refused. If not the record
        but the world has changed, use `supersede`, so that the old fact can still be found with `as_of`.
        """
        key = self.resolve(record_id)
        last = self.store.records.history(key)[-1:]
        (old,) = self._owned([key])
        if old.kind != "fact":
            raise _not_a_fact(old)
        if unknown := fields.keys() - set(EDITABLE):
            raise UsageError(f"{min(unknown)!r} cannot be edited", hint=f"editable fields: {', '.join(EDITABLE)}")
        values = make_fields(fields)
        claimed(values, self.provenance, self.caller)
        check_edit(old, values, self.provenance)
        unchanged = [ExpectUnchanged(event.id, event.seq) for event in last]
        return self._store([[*unchanged, Put(replace(old, **values), any_writer=True, writer=self.provenance)]])[0]

    def supersede(
        self, record_id: str, by: str | None = None, *, text: str | None = None, at: datetime | str | None = None
    ) -> Record:
        """Replace a record by a newer one, which is returned. The old one is left out of answers from then on.

        The newer one is an existing record (`by` its id), or a new `text`, which takes over the scope, title, category,
        tags, importance and decay of the old one. `at` is when it became true; by default the time of the new record.
        Raises `UsageError` if the old record is superseded already.
        """
        if (by is None) == (text is None):
            raise UsageError("a record is superseded by an id or by a new text", hint="give `by` or `text`, not both")
        moment = parse_time(at)
        (old,) = self._owned([record_id])
        if by is not None:
            new_id = self.require(by).id
            self.store.records.apply([[Supersede(old.id, new_id, moment, writer=self.provenance)]])
            return self.require(new_id)
        inherited = {name: getattr(old, name) for name in INHERITED}
        writer = self.provenance.as_dict()
        new = make_record({**inherited, **writer, "text": text, "happened_at": moment}, old.scope)
        return self._store([[Put(new), Supersede(old.id, new.id, moment, made=True, writer=self.provenance)]])[0]

    def forget(self, *ids: str, purge: bool = False) -> list[str]:
        """Hide records from every answer, all of them or none, and return their ids. `undo` brings one back.

        With `purge` their content is erased from the store, which cannot be undone.
        """
        keys = self._resolve_all(ids)
        if self._limit is not None:
            self._owned(keys)
        self.store.records.apply([[Forget(key, purge, self.provenance) for key in keys]])
        if purge and (warning := self.store.scrub()):
            self.announce(warning)
        return keys

    def undo(self, record_id: str, *, seq: int | None = None) -> tuple[str, Record | None]:
        """Undo the last change to a record: `add`, `update`, `supersede` or `forget`. A purge cannot be undone.

        An undo goes one change further back than the one before it, and brings a forgotten record back, whatever forgot
        it. A record that was forgotten because it had been made for a supersession supersedes the old one again. With
        `seq`, a number from its history, the change is undone only if it is still the last one. Returns the action that
        was undone and the record as it is now, or None if it is forgotten.
        """
        return self.undo_details(record_id, seq=seq)[:2]

    @retried
    def undo_details(self, record_id: str, *, seq: int | None = None) -> tuple[str, Record | None, list[str]]:
        """Undo the last change to a record, as `undo` does, and also return the ids of the records that this forgot."""
        key, records = self.resolve(record_id), self.store.records
        events = self._events(key) if self._knows(key) else []
        if not events:
            raise UnknownRecord(key)
        if records.get([key]):
            self._owned([key])
            target = _last_standing(events)
        else:
            target = next((event for event in reversed(events) if event.action in ("forget", "purge")), None)
        if target is None:
            raise UsageError(f"{key!r} has no change left to undo", hint=f"`recollect history {key}` shows its changes")
        if seq is not None:
            numbers = {} if self.caller is None else line_numbers(records, events, self.caller)
            if seq != (target.seq if self.caller is None else numbers.get(target.seq)):
                raise Overtaken(f"{key!r} has been changed again since", hint=f"`recollect history {key}` shows how")
        mark = MarkUndo(key, target.seq, self.provenance)
        changes = self._reversal(target)
        self._store([[ExpectUnchanged(key, events[-1].seq), *changes, *([] if mark in changes else [mark])]])
        action = "supersede" if target.action == "supersedes" else target.action
        forgotten = [change.id for change in changes if isinstance(change, Forget)]
        return action, next(iter(records.get([key])), None), forgotten

    def history(self, record_id: str) -> list[Event]:
        """Return every change to a record, oldest first, also of a forgotten one.

        Raises `UnknownRecord` if there never was such a record. For a scoped caller the events are numbered from 1.
        """
        key, records = self.resolve(record_id), self.store.records
        events = records.history(key)
        if not events or not self._knows(key):
            raise UnknownRecord(record_id)
        if self.caller is None:
            return events
        numbers = line_numbers(records, events, self.caller)
        superseded = [str(event.detail.get("id")) for event in events if event.action == "supersedes"]
        alive = {record.id for record in records.get(superseded)}
        visible = []
        for event in events:
            if event.seq in numbers and (event.action != "supersedes" or event.detail.get("id") in alive):
                detail = {name: value for name, value in event.detail.items() if name != "undoes"}
                if (undone := event.detail.get("undoes")) in numbers:
                    detail["undoes"] = numbers[undone]
                visible.append(replace(event, seq=numbers[event.seq], detail=detail))
        return visible

    def _owned(self, ids: Sequence[str]) -> list[Record]:
        records = [self.require(record_id) for record_id in ids]
        for record in records:
            if self.caller is not None and not self.caller.owns(record.scope):
                message = f"{record.id!r} is shared with other scopes: you can read it but not change it"
                raise Forbidden(message, hint="only a caller without a scope can change it")
        return records

    def _events(self, key: str) -> Sequence[Event]:
        events = self.store.records.history(key)
        return events if self._limit is None else since_purge(events)

    def _chunks_among(self, ids: Sequence[str]) -> set[str]:
        """The ids of chunks that the caller may see."""
        records = self.store.records.get([parse_id(key) for key in ids]) if ids else []
        visible = [old for old in records if self.caller is None or self.caller.admits(old.scope)]
        return {old.id for old in visible if old.kind == "chunk"}

    def _additions(self, fields: Mapping[str, Any], chunks: Collection[str] = ()) -> list[Change]:
        """The changes that add a record. One that has the id of a chunk is refused here or by the store."""
        if not isinstance(fields, Mapping):
            raise UsageError(f"a record must be an object, not {brief(fields)}", hint='{"text": "…"}')
        record = make_record({**fields, **claimed(fields, self.provenance, self.caller)}, self.scope)
        named, supersedes = fields.get("id") is not None, fields.get("supersedes")
        if self.caller is not None and record.scope != self.caller:
            raise Forbidden("a record cannot be stored for another scope", hint="leave the scope out")
        if self.caller is not None and (record.kind != "fact" or record.path is not None):
            raise Forbidden("only the owner of the store can index files", hint="leave out kind, path and lines")
        if record.kind == "fact" and record.id in chunks:
            raise id_of_a_chunk(record.id)
        changes: list[Change] = [Put(record, merge=not named and supersedes is None)]
        if supersedes is not None:
            old = self.resolve(supersedes)
            if self._limit is not None:
                self._owned([old])
            changes.append(Supersede(old, record.id, made=True, writer=record.provenance))
        return changes

    def _store(self, groups: Sequence[Sequence[Change]], progress: Progress | None = None) -> list[Record]:
        """Apply groups of changes and save vectors: a refused record leaves none behind.

        Vectors that a quick model computes are stored in the same transaction. Records whose vectors take longer, or
        cannot be computed, are stored first.

        For a scoped caller, only a vector of a visible record with the same text is used again: the time that embedding
        takes must not reveal what other scopes have stored.
        """
        records = [change.record for group in groups for change in group if isinstance(change, Put)]
        visible = None if self.caller is None else self._repeated(records, self.caller)
        embedded, vectors = list[str](), list[Change]()
        try:
            with contextlib.suppress(RecollectError):
                embedded, vectors = self.embeddings.ahead([record.passage for record in records], visible=visible)
        finally:  # an interrupted user has given the text, too
            stored, saved = self._apply(groups, vectors)
        if progress and saved:
            progress(len(embedded), len(embedded))
        rest = [record.passage for record in stored if not saved or record.passage not in embedded]
        if rest and self.embeddings.configured:
            try:
                self.embeddings.ensure(rest, progress, visible=visible)
            except RecollectError as error:
                self.announce(f"stored without vectors: {error.message}")
        return stored

    def _repeated(self, records: Sequence[Record], caller: Scope) -> set[str]:
        """The passages of new records that visible records have, too; none while some of those cannot be reached."""
        folds = [record.text_hash for record in records]
        with contextlib.suppress(Unreachable):
            same = self.store.joins.by_text(folds, replace(EVERYTHING, any_scope=False, scope=caller))
            return {record.passage for record in same.values()}
        return set()

    def _apply(self, groups: Sequence[Sequence[Change]], vectors: Sequence[Change]) -> tuple[list[Record], bool]:
        """Apply changes with vectors, or alone if another space answers by now. Returns whether vectors were saved."""
        if vectors:
            with contextlib.suppress(Overtaken):
                return self.store.records.apply([*groups, vectors]), True
        return self.store.records.apply(groups), False

    def _reversal(self, last: Event) -> Sequence[Change]:
        key = last.id
        match last.action:
            case "add" | "update" if self._alive(key).kind == "chunk":
                raise _not_a_fact(self._alive(key))
            case "add":
                return [Forget(key, writer=self.provenance)]
            case "update":
                return [Put(replace(self._alive(key), **values_before(last)), any_writer=True, writer=self.provenance)]
            case "forget":
                return [Restore(key, self._limit), MarkUndo(key, last.seq, self.provenance), *self._again(last)]
            case "supersede":
                return self._unsuperseded(key, str(last.detail["by"]), last.seq)
            case "supersedes":
                old = str(last.detail["id"])
                event = _last_standing(self.store.records.history(old))
                if event is not None and event.action == "supersede" and event.detail.get("by") == key:
                    return self._unsuperseded(old, key, event.seq)
        hint = f"`recollect history {last.detail.get('id', key)}` shows why"  # of a record that this one superseded
        raise UsageError(f"the last change to {key!r} ({last.action}) cannot be undone", hint=hint)

    def _again(self, forget: Event) -> list[Change]:
        """The supersession whose undo forgot a record, to be made again with it, if the old record is still current."""
        key, events = forget.id, {event.seq: event for event in self._events(forget.id)}
        undo = next((event for seq, event in events.items() if seq > forget.seq), forget)
        undone = events.get(undo.detail.get("undoes", 0), forget)
        if undone.action != "supersedes":
            return []
        old = next(iter(self.store.records.get([str(undone.detail["id"])])), None)
        if old is None or old.superseded_by is not None or not (self._limit is None or self._limit.owns(old.scope)):
            return []
        history = self.store.records.history(old.id)
        since = [event.detail["from"] for event in history if event.detail.get("by") == key and "from" in event.detail]
        return [Supersede(old.id, key, parse_time(since[-1] if since else None), made=True, writer=self.provenance)]

    def _unsuperseded(self, old: str, new: str, seq: int) -> list[Change]:
        """Restore the old record, and forget the new one if it was made only to supersede it."""
        limit = self._limit
        if limit is not None and not limit.owns(self._alive(old).scope):
            raise Forbidden("the record that it superseded belongs to another scope and cannot be restored here")
        changes: list[Change] = [Restore(old, limit), MarkUndo(old, seq, self.provenance)]
        events = self._events(new)
        standing = _standing(events)
        first, *others = [event.action for event in standing] or [""]
        made = (first, *set(others)) == ("add", "supersedes") and bool(standing[-1].detail.get("made"))
        if made and (limit is None or limit.owns(self._alive(new).scope)):
            forget = Forget(new, writer=self.provenance), MarkUndo(new, standing[-1].seq, self.provenance)
            return [ExpectUnchanged(new, events[-1].seq), *changes, *forget]
        return changes

    def _alive(self, key: str) -> Record:
        for record in self.store.records.get([key]):
            return record
        raise UnknownRecord(key)


def _last_standing(events: Sequence[Event]) -> Event | None:
    return next(reversed(_standing(events)), None)


def _standing(events: Sequence[Event]) -> list[Event]:
    """The events that have not been undone and are not part of an undo."""
    undone, standing = set[int](), list[Event]()
    for before, event in zip([None, *events][-2::-1], reversed(events), strict=False):
        if event.action == "undo":
            undoing = before.seq if before else 0  # the change that undid the other one; it may have been undone, too
            undone |= set() if undoing in undone else {int(event.detail["undoes"]), undoing}
        elif event.seq not in undone:
            standing.insert(0, event)
    return standing


def values_before(update: Event) -> dict[str, Any]:
    """The values that an update replaced. The event has them as JSON: times are texts, tuples are lists."""
    return {
        name: parse_time(value) if name.endswith("_at") else tuple(value) if isinstance(value, list) else value
        for name, value in update.detail.get("before", {}).items()
    }


def _not_a_fact(record: Record) -> UsageError:
    chunk, turn = ("chunk of an indexed file", "edit the file, and index it"), ("turn of a conversation", "add a fact")
    kind, hint = chunk if record.kind == "chunk" else turn
    return UsageError(f"{record.id!r} is a {kind}", hint=hint)


def since_purge(events: Sequence[Event]) -> Sequence[Event]:
    """The events after the last purge. Those before it may belong to another scope's record."""
    purged = max((place for place, event in enumerate(events, 1) if event.action == "purge"), default=0)
    return events[purged:]


def line_numbers(records: Records, events: Sequence[Event], scope: Scope) -> dict[int, int]:
    """The store's number of each event that the scope may see → its number in the record's history.

    Events about records of other scopes are left out: that this record superseded one, or that this was undone. A
    record's scope does not change, so an event keeps its number.
    """
    numbers: dict[int, int] = {}
    hidden: set[int] = set()
    for event in since_purge(events):
        other = records.scope_of(str(event.detail.get("id"))) if event.action == "supersedes" else scope
        if other is None or not scope.admits(other) or event.detail.get("undoes") in hidden:
            hidden.add(event.seq)
        else:
            numbers[event.seq] = len(numbers) + 1
    return numbers

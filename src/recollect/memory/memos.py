"""Memories of other programs in the store: facts that keep their ids, so that importing again adds what is new.

A field that was edited here since the last import is not overwritten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from recollect.ingest.memories import BASIC, FORMATS, Memo, memory_files, read_memos
from recollect.memory.changes import EDITABLE
from recollect.memory.importing import FileImport
from recollect.memory.validation import MAX_TEXT
from recollect.ranking import well_formed
from recollect.types import GLOBAL, Provenance, Record, Scope
from recollect.types.records import Put

BATCH = 500
WRITER = Provenance("import", "import-memory")  # of updates, to tell them apart from what was edited here


@dataclass(slots=True)
class MemoReport:
    """What an import did. `known` are memories that the store had as other facts; `scopes` counts their owners.

    `kept` are facts that differ from their memory and stay as they are: somebody edited them here, or the import has an
    origin that is trusted less.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    known: int = 0
    kept: int = 0
    forgotten: int = 0
    scopes: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, dict[str, int]] = field(default_factory=dict)
    embedded: int = 0


class MemoImport(FileImport[MemoReport]):
    """Compares memories with the store, and stores what is new."""

    formats = FORMATS
    compared = ("text", "title", "category", "tags", "happened_at", "expires_at", "source", "path", "origin", "author")
    find_files = staticmethod(memory_files)

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.report = MemoReport()

    def _read_file(self, path: Path) -> None:
        file, memos = read_memos(path, self._format)
        waiting, some = iter(memos), False
        while batch := list(islice(waiting, BATCH)):  # the format is known when the first one was read
            self._batch(batch, file.format)
            some = True
        if file.format and (some or not file.skipped):
            self.report.files[file.name] = file.format
        if file.skipped:
            self.report.skipped[file.name] = dict(file.skipped)

    def _batch(self, memos: Iterable[Memo], source: str) -> None:
        """Store some memories of one program."""
        records = {record.id: record for record in (self._record(memo, source) for memo in memos)}
        taken = self._taken(list(records))
        stored = {record.id: record for record in self._store.records.get(list(records))}
        changed: list[Record] = []
        for record in records.values():
            old = stored.get(record.id)
            if old is None and record.id in taken:
                self.report.forgotten += 1
            elif old is None:
                changed.append(record)
            elif self._is_same(old, record):
                self.report.unchanged += 1
            else:
                merged = self._with_edits(record, old)
                is_trusted_less = merged.provenance.distrust > old.provenance.distrust
                if self._is_same(old, merged) or is_trusted_less:
                    self.report.kept += 1
                else:
                    changed.append(merged)
        groups = [[Put(record, merge=True, writer=WRITER)] for record in changed]
        for record, result in zip(changed, self._store.records.apply(groups), strict=True):
            counter = "known" if result.id != record.id else "updated" if record.id in stored else "added"
            self._count(counter)
            if counter == "added" and record.scope != self._scope:
                owner = " ".join(f"{part}={name}" for part, name in record.scope.as_dict().items())
                self.report.scopes[owner] = self.report.scopes.get(owner, 0) + 1

    def _with_edits(self, record: Record, old: Record) -> Record:
        """A memory with the fields of its stored record that were edited here, or that memories do not have."""
        own = self._edited(old) | (set(EDITABLE) - set(self.compared))
        return replace(record, **{name: getattr(old, name) for name in own})

    def _edited(self, record: Record) -> set[str]:
        """The fields of a stored record that do not have the value which an import stored last."""
        imported: dict[str, Any] = {}
        settled: set[str] = set()  # fields that an import has set since
        for event in reversed(self._store.records.history(record.id)):
            if event.action == "add":
                break
            before = event.detail.get("before", {})
            if WRITER.as_detail().items() <= event.detail.items():
                settled |= before.keys()
            else:
                imported |= {name: value for name, value in before.items() if name not in settled}
        return {name for name, value in imported.items() if value != _plain(getattr(record, name))}

    def _record(self, memo: Memo, source: str) -> Record:
        scope = self._scope
        if scope == GLOBAL and memo.scope:  # what belonged to one user there must not be everybody's here
            scope = Scope(**{part: well_formed(name) for part, name in memo.scope.items()})
        return Record(
            self._id(scope, "memo", source, *memo.key),
            well_formed(memo.text)[:MAX_TEXT],
            title=well_formed(memo.title),
            category=well_formed(memo.category) if memo.category else None,
            tags=tuple(dict.fromkeys((*map(well_formed, memo.tags), *self._tags))),
            scope=scope,
            happened_at=memo.time,
            expires_at=memo.expires,
            source=source,
            path=memo.path,
            lines=(memo.line, memo.line) if memo.line else None,
            origin=self._origin or ("file" if source == BASIC else "agent"),
            author=source,
        )


def _plain(value: object) -> object:
    """A value of a record as an event has it."""
    return value.isoformat() if isinstance(value, datetime) else list(value) if isinstance(value, tuple) else value

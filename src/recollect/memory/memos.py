"""Memories of other programs in the store: facts that keep their ids, so that importing again adds what is new."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from recollect.ingest.memories import BASIC, FORMATS, Memo, read_memos
from recollect.memory.importing import FileImport, storable
from recollect.memory.validation import MAX_TEXT
from recollect.types import GLOBAL, Record, Scope
from recollect.types.records import Put

BATCH = 500
_COMPARED = ("text", "title", "category", "tags", "happened_at", "expires_at", "source", "path", "origin", "author")


@dataclass(slots=True)
class MemoReport:
    """What an import did. `known` are memories that the store had as other facts; `scopes` counts their owners."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    known: int = 0
    forgotten: int = 0
    scopes: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, dict[str, int]] = field(default_factory=dict)
    embedded: int = 0


class MemoImport(FileImport):
    """Compares memories with the store, and stores what is new."""

    formats = FORMATS

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.report: MemoReport = MemoReport()

    def _read_file(self, path: Path) -> None:
        file, memos = read_memos(path, self._format)
        waiting = iter(memos)
        while batch := list(islice(waiting, BATCH)):  # the format is known when the first one was read
            self._batch(batch, file.format)
        if file.format and not file.skipped:
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
            elif old is not None and all(getattr(old, name) == getattr(record, name) for name in _COMPARED):
                self.report.unchanged += 1
            else:
                changed.append(record)
        for record, result in zip(
            changed, self._store.records.apply([[Put(one, merge=True)] for one in changed]), strict=True
        ):
            counter = "known" if result.id != record.id else "updated" if record.id in stored else "added"
            self._count(counter)
            if counter == "added" and record.scope != self._scope:
                owner = " ".join(f"{part}={name}" for part, name in record.scope.as_dict().items())
                self.report.scopes[owner] = self.report.scopes.get(owner, 0) + 1

    def _record(self, memo: Memo, source: str) -> Record:
        scope = self._scope
        if scope == GLOBAL and memo.scope:  # what belonged to one user there must not be everybody's here
            scope = Scope(**{part: storable(name) for part, name in memo.scope.items()})
        return Record(
            self._id(scope, "memo", source, *memo.key),
            storable(memo.text)[:MAX_TEXT],
            title=storable(memo.title),
            category=storable(memo.category) if memo.category else None,
            tags=tuple(dict.fromkeys((*map(storable, memo.tags), *self._tags))),
            scope=scope,
            happened_at=memo.time,
            expires_at=memo.expires,
            source=source,
            path=memo.path,
            lines=(memo.line, memo.line) if memo.line else None,
            origin=self._origin or ("file" if source == BASIC else "agent"),
            author=source,
        )

"""Memories of other programs in the store: facts that keep their ids, so that importing again adds what is new."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.errors import UsageError
from recollect.ingest.memories import BASIC, FORMATS, Memo, memory_files, read_memos
from recollect.memory.conversations import storable
from recollect.memory.validation import MAX_TEXT, clean_names
from recollect.options import ORIGINS
from recollect.types import GLOBAL, Progress, Record, Scope
from recollect.types.records import Put

if TYPE_CHECKING:
    from recollect.memory.changes import Writer

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


def import_memos(
    memory: Writer,
    paths: Sequence[str | Path],
    *,
    format_: str | None,
    tags: Sequence[str],
    origin: str | None,
    reading: Progress | None,
) -> MemoReport:
    """Store the memories of files as facts."""
    if format_ is not None and format_ not in FORMATS:
        raise UsageError(f"unknown format {format_!r}", hint=f"there are {', '.join(FORMATS)}")
    if origin is not None and origin not in ORIGINS:
        raise UsageError(f"unknown origin {origin!r}", hint=f"there are {', '.join(ORIGINS)}")
    files = memory_files(paths)
    intake = _Intake(memory, clean_names("tags", tags), origin)
    for number, path in enumerate(files, 1):
        file, memos = read_memos(path, format_)
        waiting = iter(memos)
        while batch := list(islice(waiting, BATCH)):  # the format is known when the first one was read
            intake.batch(batch, file.format)
        if file.format and not file.skipped:
            intake.report.files[file.name] = file.format
        if file.skipped:
            intake.report.skipped[file.name] = dict(file.skipped)
        if reading:
            reading(number, len(files))
    return intake.report


class _Intake:
    """Compares memories with the store, and stores what is new."""

    def __init__(self, memory: Writer, tags: tuple[str, ...], origin: str | None) -> None:
        self._store, self._scope, self._tags, self._origin = memory.store, memory.scope, tags, origin
        self._key = memory.store.files.chunk_key()
        self.report = MemoReport()

    def batch(self, memos: Iterable[Memo], source: str) -> None:
        """Store some memories of one program."""
        records = {record.id: record for record in (self._record(memo, source) for memo in memos)}
        stored = {record.id: record for record in self._store.records.get(list(records))}
        changed: list[Record] = []
        for record in records.values():
            old = stored.get(record.id)
            if old is None and self._store.records.history(record.id):
                self.report.forgotten += 1
            elif old is not None and all(getattr(old, name) == getattr(record, name) for name in _COMPARED):
                self.report.unchanged += 1
            else:
                changed.append(record)
        for record, result in zip(
            changed, self._store.records.apply([[Put(one, merge=True)] for one in changed]), strict=True
        ):
            counter = "known" if result.id != record.id else "updated" if record.id in stored else "added"
            setattr(self.report, counter, getattr(self.report, counter) + 1)
            if counter == "added" and record.scope != self._scope:
                owner = " ".join(f"{part}={name}" for part, name in record.scope.as_dict().items())
                self.report.scopes[owner] = self.report.scopes.get(owner, 0) + 1

    def _record(self, memo: Memo, source: str) -> Record:
        scope = self._scope
        if scope == GLOBAL and memo.scope:  # what belonged to one user there must not be everybody's here
            scope = Scope(**{part: storable(name) for part, name in memo.scope.items()})
        names = [part for pair in sorted(scope.as_dict().items()) for part in pair]
        name = "\0".join(("memo", source, *memo.key, *names)).encode("utf-8", "surrogatepass")
        return Record(
            hashlib.blake2b(name, digest_size=12, key=self._key).hexdigest(),
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

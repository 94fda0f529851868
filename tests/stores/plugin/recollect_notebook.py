"""A store of another package: `notebook:///home/ada/notes` is a folder with the records and a journal of changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from recollect.stores import StoreKind
from recollect.stores.sqlite import SqliteStore
from recollect.types import Change, Event, Filter, Record, Records, Scope


class NotebookKind(StoreKind):
    """What Recollect asks of a kind of store: to open one, and to tell whether there is one."""

    def open(self, place: str, *, language: str | None = None, read_only: bool = False) -> NotebookStore:
        """Open the folder, and make it where it does not exist."""
        return NotebookStore(folder_of(place), language=language, read_only=read_only)

    def exists(self, place: str) -> bool:
        """Whether the folder holds records."""
        return (folder_of(place) / "records").is_file()


def folder_of(place: str) -> Path:
    """The folder that a URL names."""
    return Path(unquote(urlsplit(place).path))


class NotebookStore(SqliteStore):
    """Keeps records as the built-in store does, and writes a line to the journal for each record that is put."""

    def __init__(self, folder: Path, *, language: str | None, read_only: bool) -> None:
        super().__init__(folder / "records", language=language, read_only=read_only)
        self.folder = folder
        self.records: Records = JournalRecords(self.records, folder / "journal.jsonl")  # type: ignore[assignment]

    def status(self) -> dict[str, Any]:
        """What it holds, as a notebook."""
        return {**super().status(), "store": f"the notebook {self.folder}"}


class JournalRecords:
    """Records whose changes are written to a journal, too."""

    def __init__(self, records: Records, journal: Path) -> None:
        self._records = records
        self._journal = journal

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes, and note the records that were put."""
        records = self._records.apply(groups)
        with self._journal.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps({'id': record.id, 'text': record.text})}\n" for record in records)
        return records

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """As the built-in store does."""
        return self._records.get(ids, where)

    def history(self, record_id: str) -> list[Event]:
        """As the built-in store does."""
        return self._records.history(record_id)

    def scope_of(self, record_id: str) -> Scope | None:
        """As the built-in store does."""
        return self._records.scope_of(record_id)

    def named(self, part: str, scope: Scope | None, limit: int) -> list[tuple[str, Scope, bool]]:
        """As the built-in store does."""
        return self._records.named(part, scope, limit)

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """As the built-in store does."""
        return self._records.list(where, limit=limit, offset=offset)

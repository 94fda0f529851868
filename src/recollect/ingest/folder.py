"""A folder of markdown as a set difference: what is new is put, what is gone is forgotten, the rest costs a stat."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from recollect.errors import UsageError
from recollect.ingest.markdown import Note, read_note
from recollect.types import Change, Files, FileState, Forget, Put, Record, SawFile, Scope

SUFFIXES = (".md", ".markdown")
GROUP = 200
"""Changes of one transaction."""

MAX_FILE = 2 * 1024 * 1024
"""Bytes; a longer "note" is data."""


@dataclass(slots=True)
class Report:
    """What became of the files."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unchanged: int = 0
    chunks: int = 0


def mirror(root: Path, files: Files, *, scope: Scope, tags: tuple[str, ...], report: Report) -> Iterator[list[Change]]:
    """The changes that make the store mirror the folder, file by file, removals last."""
    root = root.expanduser().resolve()
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder", hint="name a folder of markdown files")
    known = files.known(str(root))
    seen: set[str] = set()
    for path in _walk(root, report):
        seen.add(str(path))
        read = _read_if_new(path, root, known.get(str(path)), report)
        if read is not None:
            state, content = read
            before = files.chunks(str(path))
            note = read_note(content.decode("utf-8-sig", "replace"), path.stem)
            yield from _slices(_difference(note, state, before, _common(note, scope, tags), report))
    # Removals come last, so that the vectors of text that moved to another file are still there for it.
    for gone in known.keys() - seen:
        if _is_gone(Path(gone), root):
            report.removed.append(gone)
            yield from _slices([*(Forget(chunk.id, purge=True) for chunk in files.chunks(gone)), SawFile(gone, None)])


def _walk(root: Path, report: Report) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        report.skipped[str(error.filename)] = error.strerror or "cannot be read"

    for folder, folders, names in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith(".") or path.suffix.lower() not in SUFFIXES:
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                report.skipped[str(path)] = "a link out of the folder"
            elif not path.is_file():
                report.skipped[str(path)] = "not a file"
            else:
                yield path


def _read_if_new(path: Path, root: Path, known: FileState | None, report: Report) -> tuple[FileState, bytes] | None:
    """The file's state and content if it may have changed; None where there is nothing to do."""
    try:
        stat = path.stat()
        if known and (known.mtime_ns, known.size) == (stat.st_mtime_ns, stat.st_size):
            report.unchanged += 1
            return None
        if stat.st_size > MAX_FILE:
            report.skipped[str(path)] = f"larger than {MAX_FILE // 1024 // 1024} MiB"
            return None
        content = path.read_bytes()
    except OSError as error:
        report.skipped[str(path)] = error.strerror or "cannot be read"
        return None
    return FileState(str(path), str(root), stat.st_mtime_ns, stat.st_size, FileState.digest_of(content)), content


def _difference(
    note: Note, state: FileState, before: list[Record], common: Mapping[str, Any], report: Report
) -> list[Change]:
    (report.changed if before else report.added).append(state.path)
    after = list(_records(note, state.path, common))
    report.chunks += len(after)
    kept = {record.id for record in after}
    gone = [Forget(record.id, purge=True) for record in before if record.id not in kept]
    return [*(Put(record) for record in after), *gone, SawFile(state.path, state)]


def _slices(changes: list[Change]) -> Iterator[list[Change]]:
    """Groups small enough for a short transaction.

    A file counts as seen with its last one, so that a crash between two of them only means that it is read again.
    """
    for start in range(0, len(changes), GROUP):
        yield changes[start : start + GROUP]


def _records(note: Note, path: str, common: Mapping[str, Any]) -> Iterator[Record]:
    counts: dict[str, int] = {}
    for chunk in note.chunks:
        nth = counts[chunk.text] = counts.get(chunk.text, 0) + 1
        # Identified by content, not by place: a line inserted above changes nothing below but line numbers.
        name = "\0".join((path, chunk.text, str(nth)))
        yield Record(
            id=hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest(),
            kind="chunk",
            title=" › ".join((note.title, *chunk.headings)),
            text=chunk.text,
            path=path,
            lines=chunk.lines,
            **common,
        )


def _common(note: Note, scope: Scope, tags: tuple[str, ...]) -> dict[str, Any]:
    """What the front matter, and the one who indexes, say of every chunk."""
    said = note.metadata.get("tags") or ()
    named = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    own = tuple(str(tag).strip().lstrip("#") for tag in named if tag)
    category = note.metadata.get("category")
    return {
        "scope": scope,
        "tags": tuple(dict.fromkeys((*own, *tags))),
        "category": str(category) if category else None,
        "happened_at": _when(note.metadata.get("date")),
        "source": "index",
    }


def _when(value: object) -> datetime | None:
    match value:
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def _is_gone(path: Path, root: Path) -> bool:
    """Gone for sure: the folder can be read and does not have it. What cannot be looked at is not gone."""
    try:
        return root.is_dir() and not path.exists()
    except OSError:
        return False

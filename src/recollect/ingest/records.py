"""A file's content as records: identified by content, told apart by path, described by front matter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import PurePath
from typing import Any

from recollect.ingest.markdown import Note, read_note, word
from recollect.ingest.plain import read_text
from recollect.ingest.text import decode
from recollect.types import Record, Scope

MARKDOWN = frozenset((".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx", ".qmd", ".rmd"))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where chunks come from: a file's path, and the file as a note."""

    path: str
    note: Note


def origin_of(content: bytes, path: str) -> Origin:
    """A file's content read as what its suffix says: markdown, prose, or code."""
    name = PurePath(path)
    suffix = name.suffix.lower()
    text = decode(content)
    if suffix in MARKDOWN:
        return Origin(path, read_note(text, name.stem))
    # The suffix of a source file is part of what it is called: `main.rs`, `docker-compose.yml`.
    return Origin(path, read_text(text, name.stem if suffix == ".txt" else name.name, suffix))


@dataclass(frozen=True, slots=True)
class Naming:
    """How the chunks of a scope get their ids: by content, with the store's key, so that nobody can guess them."""

    scope: Scope
    key: bytes

    def ids(self, path: str, texts: Iterable[str], before: Iterable[Record]) -> list[str]:
        """One id a chunk, in order. A chunk that is in the store already (`before`) keeps the id that it has."""
        stored = sorted((record for record in before if record.scope == self.scope), key=_first_line)
        known = dict(zip(_counted(record.text for record in stored), (record.id for record in stored), strict=True))
        return [known.get((text, nth)) or self._new(path, text, nth) for text, nth in _counted(texts)]

    def _new(self, path: str, text: str, nth: int) -> str:
        """By content, not by place: a line inserted above changes nothing below but line numbers."""
        whose = (part for pair in sorted(self.scope.as_dict().items()) for part in pair)
        name = "\0".join((path, text, str(nth), *whose))
        return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12, key=self.key).hexdigest()


def records_of(origin: Origin, scope: Scope, tags: tuple[str, ...], ids: Sequence[str]) -> list[Record]:
    """The chunks as records, with what the front matter and the one who indexes say of all of them."""
    common = _common(origin.note, scope, tags)
    return [
        Record(
            id=key,
            kind="chunk",
            title=" › ".join((origin.note.title, *chunk.headings)),
            text=chunk.text,
            path=origin.path,
            lines=chunk.lines,
            **common,
        )
        for key, chunk in zip(ids, origin.note.chunks, strict=True)
    ]


def followed(after: Sequence[Record], before: Sequence[Record], *, keep_title: bool) -> Iterator[Record]:
    """Records of a file that moved, with what was known of them at the old place.

    `keep_title` is for a title that is only the file's name: it stays until the text changes, since the title is
    part of what is embedded, and a move is to cost no embedding.
    """
    # Records come in no order, so that texts that occur twice are told apart by their lines.
    old: dict[str, list[Record]] = {}
    for record in sorted(before, key=_first_line, reverse=True):
        old.setdefault(record.text, []).append(record)
    for record in after:
        same = old.get(record.text)
        if not same:
            yield record
            continue
        was = same.pop()
        yield replace(
            record,
            title=was.title if keep_title else record.title,
            created_at=was.created_at,
            importance=was.importance,
            decay=was.decay,
            superseded_by=was.superseded_by,
            superseded_at=was.superseded_at,
        )


def _first_line(record: Record) -> tuple[int, int]:
    return record.lines or (0, 0)


def _counted(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Each text with how often it has occurred so far."""
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
        yield text, counts[text]


def _common(note: Note, scope: Scope, tags: Iterable[str]) -> dict[str, Any]:
    said = note.metadata.get("tags") or ()
    named: Iterable[object] = said.split(",") if isinstance(said, str) else said if isinstance(said, list) else ()
    own = tuple(tag for said in named if (tag := word(said).lstrip("#")))
    category = word(note.metadata.get("category"))
    return {
        "scope": scope,
        "tags": tuple(dict.fromkeys((*own, *tags))),
        "category": category or None,
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

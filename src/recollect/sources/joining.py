"""From the rows of an outside system to hits: ours where a row is one of our records, else a record made of the row."""

from __future__ import annotations

import fnmatch
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from recollect.analysis import lead
from recollect.errors import SourceFailed
from recollect.ranking import fold, fold_hash
from recollect.types import Filter, Found, Hit, Joins, Query, Record, Records, Scope

MOST_TEXT = 100_000
"""Characters of an outside document that are kept."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an outside system, in our words. What it does not say is empty."""

    id: str = ""
    text: str = ""
    title: str = ""
    path: str = ""
    score: float | None = None


def read_rows(document: Any, results: str, fields: Mapping[str, str]) -> list[Row]:
    """The rows that a document holds under the dotted name `results`, with `fields` mapped to ours."""
    rows = dig(document, results) if results else _rows_of(document, fields)
    if not isinstance(rows, list):
        where = f"under {results!r}" if results else "at the top of its answer"
        raise SourceFailed(f"there is no list {where}", hint='say where it is: results = "hits.hits"')
    return [_row(row, fields) for row in rows]


def dig(value: Any, path: str) -> Any:
    """What stands under a dotted name, a number being a place in a list; None where nothing does."""
    for part in path.split("."):
        match value:
            case dict() if part in value:
                value = value[part]
            case list() if part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            case _:
                return None
    return value


def _rows_of(document: Any, fields: Mapping[str, str]) -> Any:
    """A bare list, the `results` of an object, or an object that is the only row there is (one JSON line)."""
    if not isinstance(document, dict) or "results" in document:
        return document.get("results") if isinstance(document, dict) else document
    return [document] if any(dig(document, name) is not None for name in fields.values()) else None


def _row(row: Any, fields: Mapping[str, str]) -> Row:
    if not isinstance(row, dict):
        raise SourceFailed(f"a row of its answer is {type(row).__name__}, not an object", hint="check `results`")
    said = {ours: dig(row, theirs) for ours, theirs in fields.items()}
    texts = {ours: _text(value) for ours, value in said.items() if ours != "score"}
    return Row(**texts, score=_score(said.get("score")))


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value[:MOST_TEXT].replace("\0", "")
        case bool() | int() | float():
            return str(value)
        case list() if all(isinstance(part, str) for part in value):
            return " … ".join(value)[:MOST_TEXT]
    return ""


def _score(value: Any) -> float | None:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return score if math.isfinite(score) else None


@dataclass(frozen=True, slots=True)
class Joiner:
    """Joins the rows of one source: by `id`, `path` or `text`, and by path through what was learnt of its ids.

    `bound` serves a caller who is bound to the query's scope. Records that such a caller cannot see must not be felt
    either, so they are not looked at: a row that is another scope's record is shown like any other outside document.
    """

    source: str
    by: str
    records: Records
    joins: Joins
    bound: bool = False

    def found(self, rows: Sequence[Row], query: Query) -> Found:
        """The rows as hits, in their order, each record and each text once, only what the query may see."""
        ours = self._ours(rows, query)
        scored = all(row.score is not None for row in rows)
        hits: dict[str, Hit] = {}
        seen: set[bytes] = set()
        folded = 0
        for row, record in zip(rows, ours, strict=True):
            if record is None:
                continue
            mark = fold_hash(record.text)
            if record.id in hits or mark in seen:
                folded += 1
                continue
            seen.add(mark)
            snippet = partial(lead, row.text or record.text)
            hits[record.id] = Hit(record, mark, row.score if scored else None, snippet)
        return Found(tuple(hits.values()), folded=folded)

    def _ours(self, rows: Sequence[Row], query: Query) -> list[Record | None]:
        """For each row the record it is; one that is not ours becomes a record of its own; None is hidden or empty."""
        paths = self._paths(rows, query.filter.scope)
        by_id = self._by_id(rows, query.filter) if self.by == "id" else {}
        by_text = self._by_text(rows, query.filter) if self.by == "text" else {}
        by_path = self.joins.by_path(sorted({path for path in paths if path}), query.filter)
        hidden = self._hidden(rows, paths, by_path, query.filter.scope if self.bound else None)
        joined: list[Record | None] = []
        for place, (row, path) in enumerate(zip(rows, paths, strict=True)):
            ours = by_id.get(row.id) or (by_text.get(fold_hash(row.text)) if row.text else None)
            if ours is None and len({record.path for record in by_path.get(path, ())}) == 1:
                ours = nearest(by_path[path], row.text or query.text)
            joined.append(ours or (None if place in hidden else self._foreign(row, path, query.filter)))
        return joined

    def _paths(self, rows: Sequence[Row], scope: Scope) -> list[str]:
        """Each row's path: what it says, else what its id stood for in an earlier query of the same scope."""
        said = {row.id: row.path for row in rows if row.id and row.path}
        if said:
            self.joins.learn(self.source, said, scope)
        known = self.joins.paths(self.source, scope)
        return [row.path or known.get(row.id, "") for row in rows]

    def _by_id(self, rows: Sequence[Row], where: Filter) -> dict[str, Record]:
        return {record.id: record for record in self.records.get([row.id for row in rows if row.id], where)}

    def _by_text(self, rows: Sequence[Row], where: Filter) -> dict[bytes, Record]:
        return self.joins.by_text([fold_hash(row.text) for row in rows if row.text], where)

    def _hidden(
        self, rows: Sequence[Row], paths: Sequence[str], seen: Mapping[str, Sequence[Record]], within: Scope | None
    ) -> set[int]:
        """Places of rows that are ours and unseen, or forgotten: they must not come in as foreign.

        A path that could be several files may be theirs after all, if all of these may be seen.
        """
        known, texts, meant = self.joins.taken(
            [row.id for row in rows if self.by == "id" and row.id],
            [fold_hash(row.text) for row in rows if self.by == "text" and row.text],
            sorted({path for path in paths if path}),
            within,
        )
        files = {path for path, count in meant.items() if count > len(seen.get(path, ()))}
        return {
            place
            for place, (row, path) in enumerate(zip(rows, paths, strict=True))
            if row.id in known or (row.text and fold_hash(row.text) in texts) or path in files
        }

    def _foreign(self, row: Row, path: str, where: Filter) -> Record | None:
        """A document that is only theirs. It has no category, tag or date, so that a filter for these hides it."""
        text = row.text or row.title
        if not text.strip() or where.categories or where.tags or where.since or where.until or where.as_of:
            return None
        if (where.kinds and "outside" not in where.kinds) or (where.path and not below(path, where.path)):
            return None
        key = row.id or path or hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return Record(f"{self.source}:{key}", text, "outside", row.title, source=self.source, path=path or None)


def nearest(records: Sequence[Record], text: str) -> Record:
    """Of a file's records the one that shares most words with a text; the first among equals."""
    wanted = set(fold(text).split())
    return max(records, key=lambda record: len(wanted & set(_words(record))))


def _words(record: Record) -> Iterable[str]:
    return fold(record.passage).split()


def below(path: str, pattern: str) -> bool:
    """Whether a path is the file or in the folder that a path filter names, as stores read such a filter."""
    name = pattern.removeprefix("./").rstrip("/").replace("[", "[[]").replace("?", "[?]")
    return any(fnmatch.fnmatchcase(path, glob) for glob in (name, f"*/{name}", f"{name}/*", f"*/{name}/*"))

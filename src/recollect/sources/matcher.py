"""From the answer of an external system to hits: read its JSON, take out the rows, match them with our records."""

import fnmatch
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from recollect.analysis import Analyzer, lead
from recollect.dataclass import dataclass
from recollect.errors import SourceFailed
from recollect.querylang import contained, missing
from recollect.ranking import clean, fold, fold_hash
from recollect.types import Filter, Hit, Joins, Query, RankedList, Record, Records, Scope

MOST_BYTES = 16 * 1024 * 1024  # an answer is a few dozen rows; a longer one than this would fill the memory
SHOWN = 120  # characters of an answer that an error quotes
MOST_DIGITS = 308  # a whole number with more digits may not fit into a float, which a score becomes

_BEFORE = 40
_SECRET = re.compile(r"auth|cookie|credential|key|passw|secret|token", re.IGNORECASE)
_HINT = "it must answer with one JSON document, or one on each line, in UTF-8"


def parse(content: bytes, system: str, secrets: Collection[str] = ()) -> Any:
    """The JSON document, or the list of documents that stand one a line. Errors quote no answer with a secret in it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        quoted = excerpt(content.decode("utf-8", "replace"), secrets)
        message = f"{system} answered with what is not UTF-8 (byte {error.start + 1}): {quoted}"
        raise SourceFailed(message, hint=_HINT) from error
    if not text.strip():
        raise SourceFailed(f"{system} answered with nothing", hint=f"{_HINT}; no results are an empty list: []")
    try:
        return _load(text)
    except (ValueError, RecursionError) as error:
        reason = error
    documents: list[Any] = []
    lines = (line for line in text.split("\n") if line.strip())  # U+2028 may stand inside a document
    for number, line in enumerate(lines, 1):
        try:
            documents.append(_load(line))
        except (ValueError, RecursionError) as error:
            if number == 1:  # the lines were not meant as documents
                raise _unreadable(f"{system} answered with what is not JSON", reason, text, secrets) from reason
            message = f"{system} answered with JSON lines, and number {number} cannot be read"
            raise _unreadable(message, error, line, secrets) from error
    return documents


def _load(text: str) -> Any:
    return json.loads(text, parse_constant=_float, parse_float=_float, parse_int=_int)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large or not finite")
    return value


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"a number has more than {MOST_DIGITS} digits")
    return int(digits)


def _unreadable(message: str, error: Exception, text: str, secrets: Collection[str]) -> SourceFailed:
    if isinstance(error, json.JSONDecodeError):
        return SourceFailed(f"{message}: {error.msg} at {excerpt(text, secrets, around=error.pos)}", hint=_HINT)
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
    return SourceFailed(f"{message}: {reason}: {excerpt(text, secrets)}", hint=_HINT)


def excerpt(text: str, secrets: Collection[str] = (), *, around: int = 0, most: int = SHOWN) -> str:
    """A short quotation of a text, on one line and without control characters; nothing if it contains a secret."""
    if any(
        secret and form in text
        for secret in secrets
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
    ):
        return "(not shown, as a secret is in it)"
    start = max(0, around - _BEFORE)
    piece = text[start : start + 4 * most]
    line = " ".join("".join(char if char.isprintable() else " " for char in piece).split())
    cut = len(line) > most or start + len(piece) < len(text.rstrip())
    return f"“{'…' if start else ''}{line[:most]}{'…' if cut else ''}”"


def secrets_of(named: Mapping[str, str]) -> list[str]:
    """The values whose names say that they are secret."""
    return [value for name, value in named.items() if _SECRET.search(name)]


MOST_TEXT = 100_000  # characters of an external document that are used


@dataclass(frozen=True, slots=True)
class ExternalRow:
    """One row of an external system's answer, with our field names. A field that it does not have is empty."""

    id: str = ""
    text: str = ""
    title: str = ""
    path: str = ""
    score: float | None = None


def read_rows(document: Any, results: str, fields: Mapping[str, str]) -> list[ExternalRow]:
    """The rows of a document, with `fields` mapped to ours: the list under the dotted name `results`.

    Without `results` it is a bare list, the `results` of an object, or an object that is the only row (one JSON line).
    """
    if results or (isinstance(document, dict) and "results" in document):
        rows = dig(document, results or "results")
    elif isinstance(document, dict):
        rows = [document] if any(dig(document, name) is not None for name in fields.values()) else None
    else:
        rows = document
    if not isinstance(rows, list):
        where = f"under {results!r}" if results else "at the top of its answer"
        raise SourceFailed(f"there is no list {where}", hint='say where it is: results = "hits.hits"')
    read = []
    for row in rows:
        if not isinstance(row, dict):
            raise SourceFailed(f"a row of its answer is {type(row).__name__}, not an object", hint="check `results`")
        values = {ours: dig(row, theirs) for ours, theirs in fields.items()}
        texts = {ours: _text(value) for ours, value in values.items() if ours != "score"}
        read.append(ExternalRow(**texts, score=_score(values.get("score"))))
    if read and not any(row.id or row.path or row.text or row.title for row in read):
        raise SourceFailed("no row of its answer has an id, a path, a text or a title", hint="check `fields`")
    return read


def dig(value: Any, path: str) -> Any:
    """The value under a dotted name, in which a number is an index of a list; None if there is none."""
    for part in path.split("."):
        match value:
            case dict() if part in value:
                value = value[part]
            case list() if part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            case _:
                return None
    return value


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = " … ".join(value)
    text = str(value)[:MOST_TEXT].replace("\0", "") if isinstance(value, str | int | float) else ""
    return clean(text)  # JSON can contain half a surrogate pair


def _score(value: Any) -> float | None:
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return score if math.isfinite(score) else None


@dataclass(frozen=True, slots=True)
class ResultMatcher:
    """Matches the rows of one source with records: by `id`, `path` or `text`, and by the path that an id stood for.

    If it is `scoped`, it serves callers bound to the query's scope. They must not notice records of other scopes, so
    these are not looked at: a row that is another scope's record is shown like any other external document. `analyzer`
    returns that of the store, by which excluded words are compared.
    """

    source: str
    by: str
    records: Records
    joins: Joins
    scoped: bool = False
    analyzer: Callable[[], Analyzer] = Analyzer

    def match(self, rows: Sequence[ExternalRow], query: Query) -> RankedList:
        """The rows as hits, in their order: each record and each text once, and only what the query may see."""
        has_scores = all(row.score is not None for row in rows)
        hits: dict[str, Hit] = {}
        texts: dict[str, str] = {}
        hashes: set[bytes] = set()
        duplicates = 0
        for row, record in zip(rows, self._records_of(rows, query), strict=True):
            if record is None or not self._is_worded(record, query.filter):
                continue
            text_hash = record.text_hash
            if record.id in hits or text_hash in hashes:
                duplicates += 1
                continue
            hashes.add(text_hash)
            texts[record.id] = row.text
            hits[record.id] = Hit(record.id, row.score if has_scores else None, None, record, text_hash)
        excerpt = partial(_beginning_of, texts)
        return RankedList(self.source, tuple(hits.values()), duplicates=duplicates, excerpt=excerpt)

    def _records_of(self, rows: Sequence[ExternalRow], query: Query) -> Iterator[Record | None]:
        """The record of each row: one of ours, or one made of the row; None if it is hidden or empty.

        A row is hidden if it is a record of ours that the query may not see, or that was forgotten. A path that could
        be several files is not hidden if all of these are visible.
        """
        where = query.filter
        ids = [row.id if self.by == "id" else "" for row in rows]
        hashes = [fold_hash(row.text) if self.by == "text" and row.text else b"" for row in rows]
        paths = self._paths(rows, where.scope)
        keys, texts, files = list(filter(None, ids)), list(filter(None, hashes)), sorted({*paths} - {""})
        by_id = {record.id: record for record in self.records.get(keys, where)} if keys else {}
        by_text = self.joins.by_text(texts, where) if texts else {}
        by_path = self.joins.by_path(files, where)
        taken = self.joins.taken(keys, texts, files, where.scope if self.scoped else None)
        hidden = {path for path, count in taken[2].items() if count > len(by_path.get(path, ()))}
        for row, key, text_hash, path in zip(rows, ids, hashes, paths, strict=True):
            record = by_id.get(key) or by_text.get(text_hash)
            if record is None and len({candidate.path for candidate in by_path.get(path, ())}) == 1:
                worded = [chunk for chunk in by_path[path] if self._is_worded(chunk, where)]
                record = nearest(worded or by_path[path], row.text or query.text)
            if record is None and not (key in taken[0] or text_hash in taken[1] or path in hidden):
                record = self._external(row, path, where)
            yield record

    def _is_worded(self, record: Record, where: Filter) -> bool:
        """Whether a record contains the phrases and what else a filter requires, and nothing that it excludes."""
        if missing(where.phrases, record.title, record.text):
            return False
        if not where.without and not where.required:
            return True

        def has_any(wordings: Sequence[str]) -> bool:
            return any(contained(wordings, record.title, record.text, self.analyzer()))

        return all(map(has_any, where.required)) and not has_any(where.without)

    def _paths(self, rows: Sequence[ExternalRow], scope: Scope) -> list[str]:
        """The path of each row: its own, or else the one that its id had in an earlier query of the same scope."""
        named = {row.id: row.path for row in rows if row.id and row.path}
        if named:
            self.joins.learn(self.source, named, scope)
        known = self.joins.paths(self.source, scope)
        return [row.path or known.get(row.id, "") for row in rows]

    def _external(self, row: ExternalRow, path: str, where: Filter) -> Record | None:
        """A document that is not ours. It has no category, tag, author or date, so a filter for these excludes it."""
        text = row.text or row.title
        unknown = (
            where.categories, where.tags, where.authors, where.author_sessions, where.since, where.until, where.as_of,
            where.written_since, where.written_until,
        )  # fmt: skip
        if not text.strip() or any(unknown):
            return None
        if where.origins and "outside" not in where.origins:
            return None
        if (where.kinds and "outside" not in where.kinds) or (where.path and not below(path, where.path)):
            return None
        key = row.id or path or hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return Record(
            f"{self.source}:{key}", text, "outside", row.title, source=self.source, path=path or None, origin="outside"
        )


def _beginning_of(texts: Mapping[str, str], record: Record) -> str:
    """The beginning of what the system answered for a record, or of the record if it answered without a text."""
    return lead(texts.get(record.id) or record.text)


def nearest(records: Sequence[Record], text: str) -> Record:
    """The record that shares most words with a text; the first among equals."""
    words = set(fold(text).split())
    return max(records, key=lambda record: len(words & set(fold(record.passage).split())))


def below(path: str, pattern: str) -> bool:
    """Whether a path is the file, or in the folder, that a path filter names: the same rule as in the stores."""
    name = pattern.removeprefix("./").rstrip("/").replace("[", "[[]").replace("?", "[?]")
    return any(fnmatch.fnmatchcase(path, glob) for glob in (name, f"*/{name}", f"{name}/*", f"*/{name}/*"))

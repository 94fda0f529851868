"""Rows of the SQL stores: records as rows, filters as SQL, and the few things that the dialects write differently.

Statements that the stores share are written for PostgreSQL; connections of SQLite translate placeholders and lists.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from recollect.analysis import LANGUAGES, Analyzer
from recollect.dataclass import dataclass
from recollect.errors import UPGRADE, EmbedderError, StoreError, UsageError
from recollect.types import ORIGINS, Filter, Matrix, Record, Scope, Vector
from recollect.types.records import EPOCH as EPOCH  # noqa: PLC0414  (times of stores)
from recollect.types.records import default_origin
from recollect.types.records import micros as micros  # noqa: PLC0414

Condition: TypeAlias = tuple[str, Sequence[Any]]  # a condition in SQL and its parameters

COLUMNS = (  # the columns of a record without its scope; the last three are derived from the others
    "id", "kind", "text", "title", "category", "tags", "importance", "decay", "created_at", "happened_at",
    "expires_at", "edited_at", "superseded_by", "superseded_at", "source", "path", "first_line", "last_line", "origin",
    "author", "author_session", "place", "time", "fold", "passage",
)  # fmt: skip

IS_MESSAGE = "kind = 'chunk' AND substr(place, 1, 8) = 'message '"  # of a mailbox: it counts as a file of its own
FILE = (
    f"CASE WHEN {IS_MESSAGE} THEN path || ' ' || place"
    " WHEN kind = 'chunk' THEN path WHEN kind = 'turn' THEN source || ' ' || author_session END"
)
"""What a record is a part of, as in `RankedRows.files`."""


def to_row(record: Record) -> list[Any]:
    """The values of `COLUMNS`."""
    first, last = record.lines or (None, None)
    return [
        record.id, record.kind, record.text, record.title, record.category, list(record.tags), record.importance,
        record.decay, micros(record.created_at), micros(record.happened_at), micros(record.expires_at),
        micros(record.edited_at), record.superseded_by, micros(record.superseded_at), record.source, record.path, first,
        last, None if record.origin == default_origin(record.kind) else record.origin, record.author,
        record.author_session, record.place, micros(record.time), record.text_hash, passage_hash(record.passage),
    ]  # fmt: skip


def from_row(row: Sequence[Any]) -> Record:
    """The record of a row of `Dialect.select`."""
    (
        key, kind, text, title, category, tags, importance, decay, created, happened, expires, edited, superseded_by,
        superseded_at, source, path, first, last, origin, author, author_session, place, user, agent, session,
    ) = row  # fmt: skip
    return Record(
        id=key,
        text=text,
        kind=kind,
        title=title,
        category=category,
        tags=() if tags == "[]" else tuple(json.loads(tags) if isinstance(tags, str) else tags),
        scope=Scope(user, agent, session),
        importance=importance,
        decay=decay,
        created_at=EPOCH + timedelta(microseconds=created),
        happened_at=moment(happened),
        expires_at=moment(expires),
        edited_at=moment(edited),
        superseded_by=superseded_by,
        superseded_at=moment(superseded_at),
        source=source,
        path=path,
        lines=None if first is None else (first, last),
        origin=origin or default_origin(kind),
        author=author,
        author_session=author_session,
        place=place,
    )


@dataclass(frozen=True, slots=True)
class NumberedFilter(Filter):
    """A filter with the numbers of the scopes that it admits, for a store whose statements must name them."""

    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """What the two databases write differently."""

    records: str
    """What to select records with their scopes from."""
    in_scopes: str
    """A condition on records, around one on the columns of their scopes."""
    tagged: Callable[[Sequence[str]], Condition]
    """The records with all of these tags."""
    tag_facet: str
    """What to select the tags of records from, and the condition on these."""
    ends: str
    """A path that ends with a text; the text is given twice."""
    like: str
    """The operator that compares with a pattern."""
    wildcards: Mapping[int, str]
    """How characters of a path are written in a pattern, for `str.translate`; `*` stands for anything."""
    short: str
    """The records whose last eight characters of the id lie between two texts."""
    lock: str = ""
    """Locks the selected records until the transaction ends."""

    @cached_property
    def select(self) -> str:
        """Selects what `from_row` reads."""
        columns = ", ".join(f"records.{column}" for column in COLUMNS[:-3])
        return f'SELECT {columns}, "user", agent, session FROM {self.records}'

    def matching(self, where: Filter) -> Condition:
        """The filter as a condition on `records`."""
        conditions: list[Condition] = [("forgotten_at IS NULL", []), *of_time(where), *self.of_fields(where)]
        if not where.any_scope:
            conditions.append(self.admitting(where))
        return all_of(conditions)

    def admitting(self, where: Filter) -> Condition:
        """The scopes that a filter admits, as a condition on `records`."""
        if isinstance(where, NumberedFilter):
            return "records.scope = ANY(%s)", [list(where.numbers)]
        visible, values = visible_to(where.scope)
        return self.in_scopes.format(visible), values

    def of_fields(self, where: Filter) -> Iterator[Condition]:
        """The conditions of a filter on fields of the records."""
        for column, names in (
            ("category", where.categories), ("kind", where.kinds), (origin_column(where), where.origins),
            ("author", where.authors), ("author_session", where.author_sessions),
        ):  # fmt: skip
            if names:
                yield f"{column} IN ({', '.join(['%s'] * len(names))})", names
        if where.tags:
            yield self.tagged(where.tags)
        if where.path is not None:  # a file or a folder, by its whole path or its last parts
            name, star = where.path.removeprefix("./").rstrip("/").translate(self.wildcards), self.wildcards[ord("*")]
            patterns = [name, f"{star}/{name}", f"{name}/{star}", f"{star}/{name}/{star}"]
            yield f"({' OR '.join([f'path {self.like} %s'] * len(patterns))})", patterns
        if where.since:
            yield "time >= %s", [micros(where.since)]
        if where.until:
            yield "time < %s", [micros(where.until)]
        if where.written_since or where.written_until:
            least, most = micros(where.written_since), micros(where.written_until)
            bounds = [LOWEST if least is None else least, HIGHEST if most is None else most]
            yield "(created_at >= %s AND created_at < %s OR edited_at >= %s AND edited_at < %s)", [*bounds, *bounds]


LOWEST, HIGHEST = -(2**63), 2**63 - 1  # times before and after all others
USUAL_ORIGINS = ("user", "file")  # the origins of records whose column `origin` is NULL


def origin_column(where: Filter) -> str:
    """The origin of a record in SQL. An index finds records of unusual origins by the bare column."""
    usual = "coalesce(origin, CASE kind WHEN 'chunk' THEN 'file' ELSE 'user' END)"
    return usual if set(USUAL_ORIGINS) & set(where.origins) else "origin"


def unusual_origins(where: Filter) -> list[str]:
    """The few origins that a filter leaves out, if it admits the usual ones; else none."""
    admitted = set(where.origins)
    return [origin for origin in ORIGINS if origin not in admitted] if admitted.issuperset(USUAL_ORIGINS) else []


def reader(own: Scope | None, where: Filter | None) -> Scope | None:
    """The scope to read as: that of the filter, or a store's own if the filter names none."""
    return own if where is None or (where.any_scope and own) else where.scope


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Several conditions as one."""
    return " AND ".join(sql for sql, _ in conditions) or "true", [value for _, values in conditions for value in values]


def visible_to(scope: Scope) -> Condition:
    """The records that a caller with this scope can see, as a condition on the columns of a scope."""
    parts = {'"user"': scope.user, "agent": scope.agent, "session": scope.session}
    return all_of([
        (f"{column} IS NULL", []) if value is None else (f"({column} IS NULL OR {column} = %s)", [value])
        for column, value in parts.items()
    ])  # fmt: skip


def of_time(where: Filter) -> Iterator[Condition]:
    """What is valid at the filter's time. A text that was edited later was not known then."""
    now = micros(where.moment)
    if where.as_of:
        yield "time <= %s AND (edited_at IS NULL OR edited_at <= %s)", [now, now]
    if not where.superseded:
        yield "(superseded_at IS NULL OR superseded_at > %s)", [now]
    yield "(expires_at IS NULL OR expires_at > %s)", [now]


def meta(connection: Any, key: str) -> str | None:
    """A value of the table `meta`."""
    row = connection.execute("SELECT value FROM meta WHERE key = %s", (key,)).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: Any, key: str, value: str) -> None:
    """Set a value of the table `meta`."""
    connection.execute(
        "INSERT INTO meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, value)
    )


def passage_hash(passage: str) -> bytes:
    """The key of a vector: a hash of the text that was embedded."""
    return hashlib.blake2b(passage.encode(), digest_size=16).digest()


def stored_pairs(passages: Sequence[str], vectors: Matrix) -> list[tuple[bytes, bytes]]:
    """The hash of each passage and its vector, as stores have them."""
    rows = vectors.astype("<f4")
    return [(passage_hash(text), row.tobytes()) for text, row in zip(passages, rows, strict=True)]


def check_dimension(vector: Vector, dimension: int) -> None:
    """Refuse the vector of a query that does not have the dimension of the store's vectors."""
    if vector.shape != (dimension,):
        raise EmbedderError(
            f"the query's vector has {vector.shape[-1]} dimensions, the store's have {dimension}",
            hint="the embedder used another model than the one it names",
        )
    if not math.isfinite(float(vector @ vector)):
        raise EmbedderError("the query's vector has numbers that are not finite", hint="the embedder failed")


def moment(value: int | None) -> datetime | None:
    """A stored time as a datetime."""
    return None if value is None else EPOCH + timedelta(microseconds=value)


def refuse_newer(schema: int, known: int) -> None:
    """Refuse a store whose schema is of a later version."""
    if schema > known:
        raise StoreError(f"the store has schema {schema}, this version knows {known}", hint=f"upgrade: {UPGRADE}")


def analyzer_of(language: str) -> Analyzer:
    """The analyzer of a language that the user named."""
    try:
        return Analyzer(language)
    except ValueError as error:
        raise UsageError(str(error), hint="`none` keeps words as they are written") from error


def usable_language(language: str | None, requested: str | None, place: str) -> str | None:
    """The language of a store. None where it has none yet, or an unknown one that `requested` is to replace."""
    if language is None or language in LANGUAGES:
        return language
    if requested is not None:
        return None
    raise StoreError(
        f"{place} has the unknown language {language!r}",
        hint="name a known one, for example RECOLLECT_LANGUAGE=english",
    )


def distinct(folds: Sequence[bytes], depth: int) -> tuple[list[int], int]:
    """The places of the first `depth` different texts, and the number of duplicates among them."""
    if len(folds) <= depth and len(set(folds)) == len(folds):
        return list(range(len(folds))), 0
    first: dict[bytes, int] = {}
    duplicates = 0
    for place, fold in enumerate(folds):
        if fold in first:
            duplicates += 1
        elif len(first) == depth:
            break
        else:
            first[fold] = place
    return list(first.values()), duplicates

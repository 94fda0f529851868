"""A query and its answer: hits, ranked lists, results, and the trace of what happened."""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, overload

from recollect.dataclass import dataclass
from recollect.dates import Period
from recollect.errors import Cancelled, RecollectError, TimedOut, UnknownRecord
from recollect.options import LIKELY, SearchOptions
from recollect.ranking import Statement, statement
from recollect.types.records import TURN_STEP, Filter, Record


class Work:
    """The limits of one request. Long computations call `check` between their steps.

    `seconds` is counted from the moment the object is made; `deepest` is how many hits of a source may be read.
    None means no limit. `cancel` may be called from any thread.
    """

    def __init__(self, seconds: float | None = None, *, deepest: int | None = None) -> None:
        self.deepest = deepest
        self.seconds = math.inf if seconds is None else seconds
        self._deadline = time.monotonic() + self.seconds
        self.cancelled = False

    def cancel(self) -> None:
        """Let the next `check` end the work."""
        self.cancelled = True

    def check(self) -> None:
        """Raise an error if the work was cancelled or its time is over."""
        if self.cancelled:
            raise Cancelled("the request was cancelled: the client has disconnected")
        if time.monotonic() > self._deadline:
            raise self.late()

    def late(self) -> RecollectError:
        """Return the error for work that takes too long."""
        hint = "ask for less: a smaller `fetch_k` or `limit`, a shorter query"
        return TimedOut(f"the request took longer than {self.seconds:g} s", hint=hint)


@dataclass(frozen=True, slots=True)
class Query:
    """A text to search for, which records it may find, how deep the sources are read, and how results are ranked.

    `weights` are the weights of the sources by name; a source without one has weight 1. At the `deadline` (a time of
    `time.monotonic`) the answer is made of what has arrived. When the limits of `work` are reached, an error is raised.
    If the query has operators (`querylang`), `text` is what is left to search for, and `written` the whole query as the
    user wrote it; `notes` say what was read as plain text. Words that begin with one of the `prefixes` match, too.
    Records of the `period` that the text names are favoured. If the query has only stop words, every result is
    `unlikely`.
    """

    text: str
    limit: int = 10
    fetch_k: int = 100
    filter: Filter = field(default_factory=Filter)
    ranking: SearchOptions = field(default_factory=SearchOptions)
    deadline: float | None = None
    work: Work | None = field(default=None, repr=False, compare=False)
    weights: Mapping[str, float] = field(default_factory=dict)
    written: str = ""
    prefixes: tuple[str, ...] = ()
    period: Period | None = None
    notes: tuple[str, ...] = ()
    unlikely: bool = False

    def check(self) -> None:
        """Raise an error if the request was cancelled or took too long."""
        if self.work is not None:
            self.work.check()

    @property
    def words(self) -> str:
        """The text to search for by words: without those of a time such as "last week", if others are left."""
        rest = self.period.rest_of(self.text) if self.period and self.period.is_relative else self.text
        return rest if re.search(r"\w", rest) else self.text

    @property
    def depth(self) -> int:
        """How many hits each source returns: `fetch_k`, or `limit` if that is more."""
        return max(self.fetch_k, self.limit)


@dataclass(frozen=True, slots=True)
class Hit:
    """One entry of a ranked list. Its rank is its position, from 1, unless it carries a `rank` of its own.

    A list that was made of ids alone has no records. `text_hash` is equal for texts that count as duplicates.
    """

    id: str
    score: float | None = None
    rank: int | None = None
    record: Record = field(default=Record("", ""), repr=False)
    text_hash: bytes = field(default=b"", repr=False)


FileKey: TypeAlias = int | str
"""Stands for a file among the candidates of one query: its path, or a hash of it."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedRows(Sequence[Hit]):
    """The hits of a store's index in columns, best first. As hits, with their records, they are read on demand.

    `rows` are the store's own numbers of the records; `folds` are equal for records whose texts count as duplicates;
    `times` are microseconds of UTC; `files` are equal for chunks of one file, of one message of a mailbox, or turns of
    one conversation, and None for other records; `lines` are the first lines of chunks in their files, when turns were
    stored, in microseconds and negative, and 0 for messages and other records. `read` returns the records of rows,
    without those that are gone. `statements` returns what rows say, compared with the words of a query, where the index
    has their words.
    """

    rows: Sequence[int]
    scores: Sequence[float]
    folds: Sequence[bytes]
    times: Sequence[int]
    importances: Sequence[float]
    decays: Sequence[str | None]
    files: Sequence[FileKey | None]
    lines: Sequence[int]
    read: Callable[[Sequence[int]], Mapping[int, Record]]
    statements: Callable[[Sequence[int], Collection[int]], Sequence[Statement]] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        if isinstance(index, slice):
            return replace(
                self, rows=self.rows[index], scores=self.scores[index], folds=self.folds[index],
                times=self.times[index], importances=self.importances[index], decays=self.decays[index],
                files=self.files[index], lines=self.lines[index],
            )  # fmt: skip
        row = self.rows[index]
        if row not in (records := self.read([row])):
            raise UnknownRecord(str(row))  # removed since it was ranked
        return self._hit(records[row], self.scores[index], self.folds[index])

    def __iter__(self) -> Iterator[Hit]:
        records = self.read(self.rows)
        for row, score, fold in zip(self.rows, self.scores, self.folds, strict=True):
            if row in records:
                yield self._hit(records[row], score, fold)

    def __eq__(self, other: object) -> bool:
        """Whether the hits are the same, whichever store they come from."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def _hit(record: Record, score: float, fold: bytes) -> Hit:
        return Hit(record.id, score, record=record, text_hash=fold)


@dataclass(frozen=True, slots=True)
class RankedList:
    """The hits of one source, best first, or the error that kept it from answering.

    `bounded` scores (a cosine) are comparable as they are. `among` is set if the list is complete: the source ranked so
    many documents, and those that are not in the list score 0. `duplicates` counts the hits that were left out because
    their text stands higher in the list, and `max_score` is the most that a keyword index could have given to a record.
    `trust` is how much the source counts here, relative to 1: by how well it understood the query. `visible` is the
    number of records that pass the filter, where that is known, and `strength` turns a score into evidence for a match
    (`ranking.Evidence`); `least_confidence` is that of the first hits, whatever the evidence is. `lag` is how many
    records its index lacks, where that is known. The pipeline fills in `source`. `unknown` are the terms of the query
    that no visible record has, and `also` words that were searched in their place; `read_as` is the text of the query
    with such words, if the source embedded that. `excerpt` makes the snippet of a record; it is called only for results
    that are shown.
    """

    source: str
    entries: Sequence[Hit] = ()
    weight: float = 1.0
    bounded: bool = False
    among: int | None = None
    duplicates: int = 0
    max_score: float = 0.0
    trust: float = 1.0
    visible: int | None = None
    lag: int | None = None
    unknown: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    read_as: str = ""
    warnings: tuple[str, ...] = ()
    error: Exception | None = None
    took_ms: float = 0.0
    strength: Callable[[float], float] | None = field(default=None, repr=False, compare=False)
    least_confidence: Sequence[float] = field(default=(), repr=False, compare=False)
    excerpt: Callable[[Record], str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise ValueError(f"the weight of {self.source!r} must be a number of 0 or more, not {self.weight!r}")
        if isinstance(self.entries, RankedRows):
            return
        bad = next((hit for hit in self.entries if hit.score is not None and not math.isfinite(hit.score)), None)
        if bad is not None:
            raise ValueError(f"{self.source!r} gave {bad.id!r} the score {bad.score!r}; scores must be finite numbers")
        ranks = [hit.rank for hit in self.entries if hit.rank is not None]
        if ranks and (ranks[0] < 1 or len(ranks) < len(self.entries) or any(map(operator.gt, ranks, ranks[1:]))):
            raise ValueError(f"{self.source!r} must give a rank to every entry or to none, from 1, best first")

    @property
    def scores(self) -> list[float]:
        """The score of each hit, 0 where it has none."""
        if isinstance(self.entries, RankedRows):
            return list(self.entries.scores)
        return [hit.score or 0.0 for hit in self.entries]


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one source adds to the fused score of one document."""

    rank: int
    score: float | None
    contribution: float


@dataclass(frozen=True, slots=True)
class Result:
    """One record of an answer, with everything that determined its place.

    `base` is the fused score over its maximum. `factors` multiply it. `moves` names the stages that changed the rank:
    from rank, to rank. `passages` are further passages of the same file, where results are files.
    """

    record: Record
    fused: float
    base: float
    shares: Mapping[str, Contribution]
    excerpt: Callable[[Record], str] | None = field(default=None, repr=False, compare=False)
    similarity: float | None = None
    freshness: str | None = None
    confidence: float | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    moves: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    passages: tuple[Result, ...] = ()

    @property
    def snippet(self) -> str:
        """The part of the text that matches, computed on demand."""
        return self.excerpt(self.record) if self.excerpt else ""

    def snippet_of(self, text: str) -> str:
        """The part that matches of a text which says the same as the record."""
        return self.excerpt(replace(self.record, text=text)) if self.excerpt else ""

    @property
    def total(self) -> float:
        """The number that results are sorted by after fusion: `base` times every factor."""
        return math.prod(self.factors.values(), start=self.base)

    @property
    def score(self) -> float:
        """The total, limited to 0 to 1."""
        return min(1.0, max(0.0, self.total))


Columns: TypeAlias = tuple[bytes, int, float, str | None, FileKey | None, int]
"""The fold, time, importance, decay class and file of a record, and its line there, as in `RankedRows`."""


K = TypeVar("K")


def turns_around(places: Iterable[tuple[K, FileKey | None, int]], *, before: int, after: int) -> dict[K, list[K]]:
    """For each turn of a conversation so many that were said before and after it; `places` are keys, files, lines."""
    conversations: dict[FileKey, list[tuple[int, K]]] = {}
    for key, file, line in places:
        if line < 0 and file is not None:
            conversations.setdefault(file, []).append((line, key))
    around, reach = dict[K, list[K]](), max(before, after) * TURN_STEP.microseconds
    for turns in conversations.values():
        turns.sort(key=lambda turn: turn[0])  # newest first
        for place, (line, key) in enumerate(turns):
            others = (*turns[max(0, place - after) : place], *turns[place + 1 : place + 1 + before])
            if near := [other for at, other in others if abs(at - line) <= reach]:
                around[key] = near
    return around


class Candidate:
    """A document of the fused ranking, while the stages run. Its record is read only if somebody looks at it.

    `key` is its row, or its id where documents of external systems are among the candidates. `time` is in microseconds
    of UTC. `total` is the number that candidates are sorted by: `base` times every factor. `passages` are further
    candidates of the same `file`, which are shown with this one; `line` is as in `RankedRows`.
    """

    freshness: str | None = None
    factors: Mapping[str, float] = MappingProxyType({})
    moves: Mapping[str, tuple[int, int]] = MappingProxyType({})
    passages: Sequence[Candidate] = ()

    def __init__(self, pool: Pool, key: int | str, fused: float, base: float, columns: Columns) -> None:
        self.pool = pool
        self.key = key
        self.fused = fused
        self.base = self.total = base
        self.fold, self.time, self.importance, self.decay, self.file, self.line = columns

    @property
    def confidence(self) -> float | None:
        """The probability that it is relevant; None where no source can judge that. Computed on demand."""
        return self.pool.confidence(self.key)

    @property
    def record(self) -> Record:
        """Its record; a stage that looks at several reads them at once, with `Pool.read`."""
        if self.key not in self.pool.records and not self.pool.read([self]):
            raise UnknownRecord(str(self.key))  # removed since it was ranked
        return self.pool.records[self.key]

    @property
    def score(self) -> float:
        """The total, limited to 0 to 1."""
        return min(1.0, max(0.0, self.total))

    def scale(self, name: str, factor: float) -> None:
        """Apply one more factor."""
        self.factors = {**self.factors, name: factor}
        self.total = math.prod(self.factors.values(), start=self.base)

    def move(self, stage: str, old: int, new: int) -> None:
        """Note the change of rank that a stage made."""
        if old != new:
            self.moves = {**self.moves, stage: (old, new)}


class Pool:
    """Reads the records of one query's candidates, each once."""

    def __init__(self) -> None:
        self.records: dict[int | str, Record] = {}
        self.confidence: Callable[[int | str], float | None] = lambda _: None  # of the candidate with this key
        self.rows: RankedRows | None = None  # the rows of a store, where the keys of candidates are rows

    def read(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Read the records of these candidates that are not read yet; those whose records are gone are left out."""
        new: Any = [candidate.key for candidate in candidates if candidate.key not in self.records]
        if new and self.rows is not None:
            read: Mapping[Any, Record] = self.rows.read(new)
            self.records.update(read)
        return [candidate for candidate in candidates if candidate.key in self.records]

    def statements(self, candidates: Sequence[Candidate], asked: Collection[int]) -> Sequence[Statement]:
        """The statements that the candidates make; `asked` are the words of the query, as hashes."""
        if self.rows is not None and self.rows.statements is not None:
            rows: Any = [candidate.key for candidate in candidates]
            return self.rows.statements(rows, asked)
        self.read(candidates)
        gone = Record("", "", kind="gone")
        records = [self.records.get(candidate.key, gone) for candidate in candidates]
        return [statement(record.kind, record.text, asked) for record in records]


class Warned(list[Candidate]):
    """The candidates that a stage returns with warnings for the caller."""

    def __init__(self, candidates: Iterable[Candidate], *warnings: str) -> None:
        super().__init__(candidates)
        self.warnings = tuple(filter(None, warnings))


GRADES = ((200.0, "strict"), (600.0, "acceptable"), (1000.0, "slow"))
"""Milliseconds below which an answer earns the grade; a slower answer is `bad`."""


@dataclass(frozen=True, slots=True)
class SourceTrace:
    """How one source did: `ok`, or `failed`, `timeout` or `skipped` with a reason.

    `read_as` is the text that it embedded, if words of the query were misspelled.
    """

    name: str
    status: str
    hits: int = 0
    took_ms: float = 0.0
    reason: str = ""
    trust: float = 1.0
    read_as: str = ""


@dataclass(frozen=True, slots=True)
class StageTrace:
    """One stage: how many results it got (`given`), how many it returned (`left`), its duration and its warnings."""

    name: str
    given: int
    left: int
    took_ms: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """What ran, how long it took, and how many records were dropped for which reason."""

    took_ms: float = 0.0
    mode: str = "hybrid"
    sources: tuple[SourceTrace, ...] = ()
    stages: tuple[StageTrace, ...] = ()
    filtered: Mapping[str, int] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    abstained: str = ""
    also_searched: tuple[str, ...] = ()
    favours: str = ""

    @property
    def grade(self) -> str:
        """The duration in one word."""
        return next((word for limit_ms, word in GRADES if self.took_ms < limit_ms), "bad")


@dataclass(frozen=True, slots=True)
class Answer:
    """The results, best first, and the trace. If all results were left out as unlikely, `closest` is the likeliest."""

    query: Query
    results: tuple[Result, ...] = ()
    trace: Trace = Trace()
    closest: Result | None = None

    @property
    def likely(self) -> int:
        """The rank of the last result that may answer the query; all that follow are probably unrelated."""
        ranks = (rank for rank, one in enumerate(self.results, 1) if one.confidence is None or one.confidence >= LIKELY)
        return max(ranks, default=0)

"""The seams, as Protocols: what a store, a source, an embedder, a reranker and a stage must be able to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from recollect.types.contents import Contents
from recollect.types.records import GLOBAL, Change, Event, FileState, Filter, Record, Scope
from recollect.types.search import Query, RankedList, Result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.analysis import Analyzer

    Vector: TypeAlias = NDArray[np.float32]
    Matrix: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """The space of one model's vectors, named by its fingerprint. Vectors of two spaces are never compared."""

    fingerprint: str
    embedder: str
    dimension: int


Stage: TypeAlias = Callable[[Query, Sequence[Result]], Sequence[Result]]
"""A step after fusion. It knows neither the pipeline nor a store."""


@runtime_checkable
class Source(Protocol):
    """A retriever: a query in, a ranked list out."""

    @property
    def name(self) -> str:
        """Its name in settings, traces and results."""

    @property
    def bounded(self) -> bool:
        """Whether its scores lie within -1 and 1 and may be compared as they are (a cosine)."""

    @property
    def timeout(self) -> float | None:
        """Seconds after which nobody waits for it any more; None where only the query's own deadline counts."""

    def search(self, query: Query) -> RankedList:
        """At most `query.depth` hits that pass `query.filter`, best first, no text twice."""


@dataclass(frozen=True, slots=True)
class ExternalQuery:
    """A query to an external system. `deadline` is a time of `time.monotonic`."""

    text: str
    fetch_k: int
    scope: Scope
    deadline: float
    _cancelled: threading.Event = field(default_factory=threading.Event, init=False, repr=False, compare=False)
    _cleanup: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def seconds_left(self) -> float:
        """The time until the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    def on_cancel(self, cleanup: Callable[[], None]) -> None:
        """Have a function called when nobody waits for the answer any more; at once if that is so already."""
        self._cleanup.append(cleanup)
        if self._cancelled.is_set():
            cleanup()

    def cancel(self) -> None:
        """Call the registered functions. A function may be called more than once, and from any thread."""
        self._cancelled.set()
        for cleanup in tuple(self._cleanup):
            cleanup()


class ExternalSystem(Protocol):
    """Another search system. It keeps to the deadline of the query, or ends when the query is cancelled."""

    def ask(self, query: ExternalQuery, /) -> Any:
        """The answer as a JSON value: the rows, best first, or an object that contains them."""

    def close(self) -> None:
        """Release what it has open."""


@runtime_checkable
class Embedder(Protocol):
    """Text to unit vectors. Prefixes for queries and passages are its own affair."""

    @property
    def name(self) -> str:
        """The name that opens it again."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors of the same text would."""

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""


@runtime_checkable
class LegibilityEmbedder(Protocol):
    """An embedder that can tell how well it reads a text; one that cannot is taken to read all."""

    def legibility(self, text: str) -> float:
        """From 0, it sees only letters or unknown signs, to 1, it sees words."""


@runtime_checkable
class CachingEmbedder(Protocol):
    """An embedder that keeps the vectors of queries, and can keep them apart for those who ask."""

    def query_of(self, asker: str, text: str) -> Vector:
        """The unit vector of a query; one that another asker's query was given is computed again."""


@runtime_checkable
class Reranker(Protocol):
    """Reads a question and a passage together, and says how well the one answers the other."""

    @property
    def name(self) -> str:
        """The name that opens it again."""

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One number a passage, in order; a higher one is better. They compare only within one question."""


class Records(Protocol):
    """The truth: what is stored, and everything that happened to it."""

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Make changes. Each group holds or fails as one; the records put come back as they now stand."""

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), as asked; others are left out."""

    def history(self, record_id: str) -> list[Event]:
        """All that happened to one record, oldest first."""

    def scope_of(self, record_id: str) -> Scope | None:
        """Whose a record is or, where it was forgotten but not purged, was; None where there is none."""

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""


class Files(Protocol):
    """What a store knows of the files it has chunks of."""

    def known(self, root: str) -> dict[str, FileState]:
        """The files below a root, by path, as they were when they were indexed."""

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """The same for these files, whatever their root; others are left out."""

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The folders that are mirrored, and how each was told to be, where that is known."""

    def chunks(self, path: str) -> list[Record]:
        """The chunks of one file."""

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        """Those of the files that have a chunk of another scope, or one that lacks one of the tags."""

    def chunk_key(self) -> bytes:
        """The store's own random key for the ids of chunks. It is made once, and never exported."""

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """Those of the digests that have been read for facts."""


class Joins(Protocol):
    """How what an outside system names is found among our records."""

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        """The path that each of a system's ids stands for, as far as queries of this scope have learnt it."""

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Keep what ids stand for in one scope, where that can be done."""

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        """The visible records of files, in their order; a path may be the last parts of one."""

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        """The visible record of each text that there is one of."""

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], Mapping[str, int]]:
        """Which ids (of forgotten and purged records, too) and texts are stored, and how many records each path means.

        With `within`, only records that this scope may see are looked at.
        """


class Notes(Protocol):
    """Kept answers of others, by key."""

    def get(self, key: str) -> str | None:
        """What was kept under a key."""

    def put(self, key: str, value: str) -> None:
        """Keep an answer, where that can be done."""


class KeywordIndex(Protocol):
    """Finds records by terms, ranked by BM25 over the records that the filter lets through, and no others."""

    @property
    def analyzer(self) -> Analyzer:
        """The chain that made its terms, and must make the query's."""

    def search(self, terms: Sequence[str], where: Filter, depth: int) -> RankedList:
        """At most `depth` records with any of the terms, best first, no text twice."""

    def catch_up(self) -> None:
        """Index what is not indexed yet, and all of it again where the analysis has changed."""

    def change_language(self, language: str) -> None:
        """Make this the store's language, for every process that has it open. Opening a store never does."""


class VectorIndex(Protocol):
    """The vectors of one space: finds records by cosine, exactly, among those that the filter lets through."""

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        """At most `depth` records by falling cosine, no text twice."""

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, where there are any."""

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        """Passages (of the records that the filter lets through) that have no vector yet."""

    def known(self, passages: Sequence[str]) -> set[str]:
        """Those of the passages whose vectors are kept already."""

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        """How many records (that the filter lets through) have a vector, and how many have none."""

    def save(self, passages: Sequence[str], vectors: Matrix) -> None:
        """Keep the vectors of passages."""


@dataclass(frozen=True, slots=True)
class ActiveSpace:
    """An embedder and the index of its space, ready to answer; a warning where it is not the one that was wanted."""

    embedder: Embedder
    index: VectorIndex
    space: VectorSpace
    warning: str = ""


class VectorSpaces(Protocol):
    """The vector spaces of a store. One is active and answers; another may be filled beside it."""

    @property
    def active(self) -> VectorSpace | None:
        """The space that answers."""

    def open(self, space: VectorSpace) -> VectorIndex:
        """The index of one space, made where there is none."""

    def activate(self, space: VectorSpace) -> None:
        """From now on, in every process, this space answers."""


class Changes(Protocol):
    """That something has happened, as it happens; what it was is in the history."""

    def listen(self, quiet: float = 1.0) -> AbstractContextManager[Iterator[bool]]:
        """Within it, True each time that something may have happened since the last, False after each quiet while."""

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest line of history that tells a scope (or, with None, anybody) anything; 0 for none."""

    def count(self, upto: int, scope: Scope) -> int:
        """How many lines of history up to a number tell a scope anything."""

    def since(self, seq: int, scope: Scope | None = None) -> tuple[Sequence[int], int]:
        """The numbers of such lines after a number; and the number to ask with the next time.

        That may be lower: where several write at once, a line can come after one that has a higher number.
        """


class Store(Protocol):
    """One truth and the indexes derived from it."""

    @property
    def records(self) -> Records:
        """The truth."""

    @property
    def files(self) -> Files:
        """Which files it mirrors."""

    @property
    def notes(self) -> Notes:
        """Kept answers."""

    @property
    def joins(self) -> Joins:
        """Where outside systems' documents are among ours."""

    @property
    def changes(self) -> Changes:
        """What has happened of late."""

    @property
    def keywords(self) -> KeywordIndex:
        """Search by words."""

    @property
    def spaces(self) -> VectorSpaces:
        """Search by meaning."""

    @property
    def contents(self) -> Contents:
        """All that it holds, to be copied or exported."""

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside the block share one snapshot, also in threads that run in a copy of its context.

        It saves transactions, and one search sees one state. What this process writes meanwhile is seen all the same.
        A store that has no snapshots does nothing.
        """

    def within(self, scope: Scope) -> Store:
        """The same store for one scope: where the database itself can guard what a scope sees, it does."""

    def status(self) -> dict[str, Any]:
        """What it holds and how far its indexes have read."""

    def count(self, where: Filter) -> dict[str, int]:
        """How many records the filter lets through (`total`), and of which kind."""

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The `categories`, `tags` and `scopes` of what the filter lets through."""

    def scrub(self) -> str | None:
        """Leave no byte of what was purged; where some have to stay, a word about it."""

    def check(self) -> None:
        """Refuse use after closing, and in a process that did not open it."""

    def close(self) -> None:
        """Give back what it holds open; closing twice is harmless."""

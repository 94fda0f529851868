"""The interfaces of stores, sources, external systems, embedders, rerankers and stages."""

# ruff: noqa: D102  (the parts of a store are documented by their types)

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from recollect.dataclass import dataclass
from recollect.errors import EmbedderError, errors_as
from recollect.types.parts import Contents
from recollect.types.records import GLOBAL, Change, Event, FileState, Filter, Record, Scope
from recollect.types.search import Candidate, Query, RankedList

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recollect.analysis import Analyzer

    Vector: TypeAlias = NDArray[np.float32]
    Matrix: TypeAlias = NDArray[np.float32]
else:  # without numpy, which takes long to load
    Vector = Matrix = Any


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """A model's set of vectors, identified by the model's fingerprint. Vectors of two spaces are never compared."""

    fingerprint: str
    embedder: str
    dimension: int


Stage: TypeAlias = Callable[[Query, Sequence[Candidate]], Sequence[Candidate]]
"""A step after fusion. It depends neither on the pipeline nor on a store."""


class Source(Protocol):
    """Anything that answers a query with a ranked list."""

    @property
    def name(self) -> str:
        """Its name in settings, traces and results."""

    @property
    def timeout(self) -> float | None:
        """Seconds after which nobody waits for it; None if only the query's deadline counts."""

    def search(self, query: Query) -> RankedList:
        """At most `query.depth` hits that pass `query.filter`, best first, without duplicates."""


@dataclass(frozen=True, slots=True)
class ExternalQuery:
    """A query to an external system. `deadline` is a time of `time.monotonic`; `origins` are for another store."""

    text: str
    fetch_k: int
    scope: Scope
    deadline: float
    origins: tuple[str, ...] = ()
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
    """Turns texts into unit vectors. It adds the prefixes that its model wants for queries and passages.

    It may also have `legibility(text)`, which says how well the model reads a text: 0 where it knows only single
    letters, 1 where it knows the words; `is_word(word)`; `query_of(asker, text)`, which caches the vectors of queries
    for each caller apart; and `remote`, whether it sends texts to another machine.
    """

    @property
    def name(self) -> str:
        """The name that opens it again."""

    @property
    def fingerprint(self) -> str:
        """A text that changes whenever the vectors of the same text change."""

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector for each text, in order."""

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""


@runtime_checkable
class Reranker(Protocol):
    """Scores how well passages answer a query, reading both together."""

    @property
    def name(self) -> str:
        """The name that opens it again."""

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One number for each passage, in order; higher is better. Numbers of two queries are not comparable."""


class Records(Protocol):
    """The stored records and their history: what every index is derived from."""

    def apply(self, groups: Iterable[Sequence[Change]]) -> list[Record]:
        """Apply changes; each group succeeds or fails as a whole. Returns the records that were put, as stored."""

    def get(self, ids: Sequence[str], where: Filter | None = None) -> list[Record]:
        """The records with these ids that are not forgotten (and pass the filter), in the order of the ids."""

    def history(self, record_id: str) -> list[Event]:
        """The history of one record, oldest first."""

    def scope_of(self, record_id: str) -> Scope | None:
        """The scope of a record, also of a forgotten one that was not purged; None if there is no such record."""

    def named(self, part: str, scope: Scope | None, limit: int) -> list[tuple[str, Scope, bool]]:
        """Records whose id begins with a text, or whose short id does; or whose id ends with a longer text.

        Each as its id, its scope and whether it is forgotten; purged ones are left out. With a scope, only records that
        it may see.
        """

    def list(self, where: Filter, *, limit: int, offset: int = 0) -> list[Record]:
        """Visible records, newest first."""


class Files(Protocol):
    """The indexed files."""

    def known(self, root: str) -> dict[str, FileState]:
        """The file with the path `root` and those below it, by path, with their state when they were indexed."""

    def states(self, paths: Sequence[str]) -> dict[str, FileState]:
        """The states of these files by path; files that are not indexed are left out."""

    def roots(self) -> dict[str, Mapping[str, Any] | None]:
        """The indexed folders with their options, or None where these are not known."""

    def chunks(self, path: str, *, forgotten: bool = False) -> list[Record]:
        """The chunks of one file; or those of it that are forgotten, and not purged."""

    def visible(self, where: Filter) -> dict[str, tuple[str, str]]:
        """The files with a chunk that passes the filter, each with the folder of its index run and its title."""

    def linking(self, words: Collection[str], where: Filter) -> list[Record]:
        """The records that pass the filter and whose text has one of the words after a `[`, in upper or lower case.

        The words consist of letters and digits of ASCII; every text contains the empty word.
        """

    def differing(self, paths: Sequence[str], scope: Scope, tags: Sequence[str]) -> set[str]:
        """The files that have a chunk of another scope, or a chunk without one of the tags."""

    def chunk_key(self) -> bytes:
        """The random key of this store for the ids of chunks. It is created once and never exported."""

    def ingested(self, digests: Sequence[str]) -> set[str]:
        """The digests of pieces from which facts were extracted."""


class Joins(Protocol):
    """Finds the records that the rows of an external system stand for."""

    def paths(self, source: str, scope: Scope = GLOBAL) -> Mapping[str, str]:
        """The path of each of a system's ids, as learnt from queries of this scope."""

    def learn(self, source: str, paths: Mapping[str, str], scope: Scope = GLOBAL) -> None:
        """Store the paths of ids for one scope, if the store can be written now."""

    def by_path(self, paths: Sequence[str], where: Filter) -> dict[str, list[Record]]:
        """The visible records of files, in their order; a path may be the end of a longer one."""

    def by_text(self, folds: Sequence[bytes], where: Filter) -> dict[bytes, Record]:
        """The visible records with these text hashes."""

    def taken(
        self, ids: Sequence[str], folds: Sequence[bytes], paths: Sequence[str], within: Scope | None = None
    ) -> tuple[set[str], set[bytes], Mapping[str, int]]:
        """Which ids (also of forgotten and purged records) and text hashes are stored, and how many records a path has.

        With `within`, only records that this scope may see are considered.
        """


class Notes(Protocol):
    """Short texts by key: cached answers, and the state of circuit breakers."""

    def get(self, key: str) -> str | None:
        """The text under a key."""

    def put(self, key: str, value: str) -> None:
        """Store a text, if the store can be written now."""


class KeywordIndex(Protocol):
    """Finds records by terms, ranked by BM25 computed over the records that pass the filter."""

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer that made its terms; queries must use the same."""

    def search(self, terms: Sequence[str], where: Filter, depth: int, near: Mapping[str, float] = ...) -> RankedList:
        """At most `depth` records with any of the terms, best first, without duplicates.

        The list has its `max_score`, in `among` the number of records that pass the filter, and in `unknown` the terms
        that none of these has. Terms `near` those of the query count by their weights, and not for `max_score`.
        """

    def known(self, terms: Sequence[str], where: Filter) -> dict[str, int]:
        """The terms that records have which pass the filter, and how many have each."""

    def vocabulary(self, prefix: str, where: Filter) -> set[str]:
        """The terms that begin with a prefix: all that `known` may know, and perhaps others."""

    def catch_up(self) -> None:
        """Index what is not indexed yet, or everything if the analyzer has changed."""

    def change_language(self, language: str) -> None:
        """Set the language of the store, for every process that has it open."""


class VectorIndex(Protocol):
    """The vectors of one space. Finds records by cosine, exactly, among those that pass the filter."""

    def search(self, vector: Vector, where: Filter, depth: int) -> RankedList:
        """At most `depth` records by falling cosine, without duplicates."""

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """The vectors of these records, for those that have one."""

    def missing(self, limit: int, where: Filter | None = None) -> list[str]:
        """Passages (of the records that pass the filter) that have no vector yet; where there are more, the newest."""

    def known(self, passages: Sequence[str]) -> set[str]:
        """The passages that have a vector."""

    def coverage(self, where: Filter | None = None) -> tuple[int, int]:
        """How many records (that pass the filter) have a vector, and how many have none."""

    def save(self, passages: Sequence[str], vectors: Matrix, *, ahead: bool = False) -> None:
        """Store the vectors of passages that records have; with `ahead`, also of passages that will be stored."""


@dataclass(frozen=True, slots=True)
class ActiveSpace:
    """The embedder that answers and the index of its space; a warning if it is not the configured one.

    `rest` says by when missing vectors are computed, or how that can be done.
    """

    embedder: Embedder
    index: VectorIndex
    space: VectorSpace
    warning: str = ""
    rest: Callable[[], str] | None = None

    def embed(self, passages: Sequence[str]) -> Matrix:
        """The vectors of passages, checked: one of another length would make the whole index unreadable."""
        import numpy as np

        name, shape = self.embedder.name, (len(passages), self.space.dimension)
        with errors_as(EmbedderError, f"{name} failed"):
            vectors: Matrix = np.asarray(self.embedder.passages(passages), np.float32)
        if vectors.shape != shape or not np.isfinite(vectors).all():
            what = "numbers that are not finite" if vectors.shape == shape else f"an array of the shape {vectors.shape}"
            hint = f"{shape[0]} texts have {shape[0]} vectors of {shape[1]} finite numbers"
            raise EmbedderError(f"{name} returned {what}", hint=hint)
        return vectors

    def query(self, text: str) -> Vector:
        """The vector of a query, whose length and numbers the index checks."""
        import numpy as np

        with errors_as(EmbedderError, f"{self.embedder.name} failed"):
            vector: Vector = np.asarray(self.embedder.query(text), np.float32)
        return vector


class VectorSpaces(Protocol):
    """The vector spaces of a store. One of them is active and answers queries; another may be filled meanwhile."""

    @property
    def active(self) -> VectorSpace | None:
        """The space that answers queries."""

    def open(self, space: VectorSpace) -> VectorIndex:
        """The index of a space, created if there is none."""

    def activate(self, space: VectorSpace) -> None:
        """Make this the active space, in every process."""


class Changes(Protocol):
    """Notifies of changes as they happen; the history says what they are."""

    def listen(self, quiet: float = 1.0) -> AbstractContextManager[Iterator[bool]]:
        """An iterator: True whenever something may have changed since the last item, False after `quiet` seconds."""

    def newest(self, scope: Scope | None = None) -> int:
        """The number of the newest history entry that a scope (with None, the owner) may see; 0 if there is none."""

    def count(self, upto: int, scope: Scope) -> int:
        """How many history entries up to a number a scope may see."""

    def since(self, seq: int, scope: Scope | None = None) -> tuple[Sequence[int], int]:
        """The numbers of the visible entries after `seq`, and the number to pass the next time.

        That number may be lower than the last entry's: with several writers, an entry can appear after a higher one.
        """


class Store(Protocol):
    """The records and the indexes that are derived from them, in parts that their types describe."""

    @property
    def records(self) -> Records: ...
    @property
    def files(self) -> Files: ...
    @property
    def notes(self) -> Notes: ...
    @property
    def joins(self) -> Joins: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def keywords(self) -> KeywordIndex: ...
    @property
    def spaces(self) -> VectorSpaces: ...
    @property
    def contents(self) -> Contents: ...

    def reading(self) -> AbstractContextManager[None]:
        """Let all reads inside the block share one snapshot, also in threads that run in a copy of its context.

        It saves transactions, and one search sees one state. What this process writes meanwhile is seen all the same.
        A store that has no snapshots does nothing.
        """

    def narrowed(self, where: Filter, error: Exception | None = None) -> tuple[Filter, str] | None:
        """A filter for the records that can be reached, if others that `where` admits cannot be now, and which ones.

        `error` is what a read with `where` has raised. Without one, the answer is what is known, at no cost if all was
        well. None if there is nothing to narrow: all can be reached, or none. A store on one server returns None.
        """

    def within(self, scope: Scope) -> Store:
        """The same store for one scope; a database with row-level security then enforces the scope itself."""

    def status(self) -> dict[str, Any]:
        """Its contents in numbers, and the lag of its indexes."""

    def count(self, where: Filter) -> dict[str, int]:
        """How many records pass the filter: `total`, and by kind."""

    def facets(self, where: Filter) -> dict[str, list[Any]]:
        """The `categories`, `tags` and `scopes` of the records that pass the filter."""

    def scrub(self) -> str | None:
        """Overwrite what was purged; returns a warning if some bytes must remain."""

    def check(self) -> None:
        """Raise an error if the store is closed, or was opened by another process."""

    def close(self) -> None:
        """Close it; closing twice is harmless."""

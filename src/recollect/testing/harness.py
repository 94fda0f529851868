"""Fixtures and helpers of the contract."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import Any, ClassVar, TypeAlias

import pytest

from recollect.models.hashing import HashingEmbedder
from recollect.types import EVERYTHING, Change, Filter, Put, RankedList, Record, Store, VectorIndex, VectorSpace

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EMBEDDER = HashingEmbedder(64)
SPACE = VectorSpace(EMBEDDER.fingerprint, EMBEDDER.name, 64)

OpenStore: TypeAlias = Callable[..., Store]
"""Opens the store at a place, by default a new one. It is closed when the test ends."""


class StoreFixtures:
    """The fixtures of the contract. A subclass overrides `new_place`, and `opener` if it has an opener of its own.

    `opener` is `module:function`: a function of a place (a string) and the keyword `language`. It is a name because
    other processes open the same place. `new_place` returns a function that names a new, empty place at each call.
    """

    opener: ClassVar[str] = "recollect.stores:open_store"

    @pytest.fixture
    def new_place(self) -> Callable[[], str]:
        """Override it: return a function that names a new, empty place at each call."""
        pytest.fail("a test class of a store must define the fixture new_place")

    @pytest.fixture
    def open_store(self, new_place: Callable[[], str]) -> Iterator[OpenStore]:
        """Opens stores, and closes them when the test ends."""
        opened: list[Store] = []

        def open_one(place: str | None = None, **options: Any) -> Store:
            opened.append(resolve_name(self.opener)(place or new_place(), **options))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def place(self, new_place: Callable[[], str]) -> str:
        """The place of the test's store."""
        return new_place()

    @pytest.fixture
    def store(self, open_store: OpenStore, place: str) -> Store:
        """A new store."""
        return open_store(place)


def apply(store: Store, *changes: Change) -> list[Record]:
    """Apply changes as one group."""
    return store.records.apply([changes])


def index_of(store: Store) -> VectorIndex:
    """The index of the tests' vector space, which becomes the active one."""
    if store.spaces.active != SPACE:
        store.spaces.activate(SPACE)
    return store.spaces.open(SPACE)


def store_all(store: Store, *records: Record) -> list[Record]:
    """Put records, one group each, and save their vectors."""
    stored = store.records.apply([[Put(record)] for record in records])
    passages = list(dict.fromkeys(record.passage for record in stored))
    index_of(store).save(passages, EMBEDDER.passages(passages))
    return stored


def by_keywords(store: Store, text: str, where: Filter | None = None, depth: int = 9) -> RankedList:
    """The result of a keyword search."""
    return store.keywords.search(store.keywords.analyzer.query(text), where or Filter(), depth)


def by_vector(store: Store, text: str, where: Filter | None = None, depth: int = 9) -> RankedList:
    """The result of a vector search."""
    return store.spaces.open(SPACE).search(EMBEDDER.query(text), where or Filter(), depth)


SEARCHES = (by_keywords, by_vector)


def ids(records: RankedList | Sequence[Record]) -> list[str]:
    """The ids of records or of a result."""
    return [hit.id for hit in (records.entries if isinstance(records, RankedList) else records)]


def find(store: Store, text: str, where: Filter | None = None) -> list[str]:
    """The sorted ids that a keyword search and a vector search return; both must return the same."""
    keyword, vector = (sorted(ids(search(store, text, where, depth=50))) for search in SEARCHES)
    assert keyword == vector, f"keyword and vector search differ for {text!r} and {where}"
    return keyword


def all_ids(store: Store, where: Filter = EVERYTHING) -> list[str]:
    """The sorted ids of all records that pass a filter."""
    pages = (store.records.list(where, limit=1000, offset=start) for start in itertools.count(0, 1000))
    return sorted(record.id for page in itertools.takewhile(bool, pages) for record in page)

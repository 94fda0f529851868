"""How the contract fills a store and asks it: by words of the store's analysis, by vectors of the hashing model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from recollect.embedders.hashing import HashingEmbedder
from recollect.types import EVERYTHING, Filter, Matches, Put, Record, Store, VectorIndex, VectorSpace

if TYPE_CHECKING:
    from recollect.types import Vector

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EMBEDDER = HashingEmbedder(64)
SPACE = VectorSpace(EMBEDDER.fingerprint, EMBEDDER.name, 64)

OpenStore: TypeAlias = Callable[..., Store]
"""Opens the store at a place (a new one where none is named); it is closed when the test ends."""

Search: TypeAlias = Callable[[Store, str, Filter, int], Matches]


def index_of(store: Store, space: VectorSpace = SPACE) -> VectorIndex:
    """The index of a space, which answers from now on."""
    if store.spaces.active != space:
        store.spaces.activate(space)
    return store.spaces.open(space)


def keep(store: Store, *records: Record) -> list[Record]:
    """Put records, one group each, and their vectors."""
    stored = store.records.apply([[Put(record)] for record in records])
    passages = list(dict.fromkeys(record.passage for record in stored))
    index_of(store).save(passages, EMBEDDER.passages(passages))
    return stored


def by_words(store: Store, text: str, where: Filter, depth: int) -> Matches:
    """The records that share words with a text."""
    return store.keywords.search(store.keywords.analyzer.query(text), where, depth)


def by_meaning(store: Store, text: str, where: Filter, depth: int) -> Matches:
    """The records nearest to a text."""
    return store.spaces.open(SPACE).search(EMBEDDER.query(text), where, depth)


SEARCHES: tuple[Search, ...] = (by_words, by_meaning)


def ids(found: Matches | Sequence[Record]) -> list[str]:
    """What was found, as ids."""
    return [match.record.id for match in found.found] if isinstance(found, Matches) else [each.id for each in found]


def texts(found: Matches) -> list[str]:
    """What was found, as texts."""
    return [match.record.text for match in found.found]


def told(found: Matches) -> list[tuple[Any, ...]]:
    """All that an index says: which records, in which order, with which scores, and how many repeats it passed over."""
    return [(match.record.id, match.score, match.fold) for match in found.found] + [(found.folded,)]


def all_ids(store: Store, where: Filter = EVERYTHING) -> list[str]:
    """The ids of all that a filter lets through, sorted."""
    pages = (store.records.list(where, limit=1000, offset=start) for start in itertools.count(0, 1000))
    return sorted(record.id for page in itertools.takewhile(bool, pages) for record in page)


def known_of(store: Store, keys: Sequence[str]) -> Mapping[str, Any]:
    """All that a store tells of some records: themselves, their history, their vectors."""
    vectors: Mapping[str, Vector] = store.spaces.open(SPACE).vectors(keys)
    return {
        "records": store.records.get(keys),
        "history": [store.records.history(key) for key in keys],
        "vectors": {key: vector.tobytes() for key, vector in vectors.items()},
    }

"""How the contract fills a store and asks it: by words of the store's analysis, by vectors of the hashing model."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import pytest

from recollect.models.hashing import HashingEmbedder
from recollect.types import EVERYTHING, Filter, Forget, Put, RankedList, Record, Store, VectorIndex, VectorSpace

if TYPE_CHECKING:
    from recollect.types import Vector

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
EMBEDDER = HashingEmbedder(64)
SPACE = VectorSpace(EMBEDDER.fingerprint, EMBEDDER.name, 64)

OpenStore: TypeAlias = Callable[..., Store]
"""Opens the store at a place (a new one where none is named); it is closed when the test ends."""

Search: TypeAlias = Callable[[Store, str, Filter, int], RankedList]


class StoreFixtures:
    """The fixtures of the contract. A subclass overrides `new_place`, and `opener` if it has an opener of its own.

    `opener` is `module:function`: a function of a place (a string) and the keyword `language`. It is a name because
    other processes open the same place. `new_place` returns a function that names a new, empty place at each call.
    """

    opener: ClassVar[str] = "recollect.stores:open_store"

    @pytest.fixture
    def new_place(self) -> Callable[[], str]:
        """Override it: names a place where nothing is kept yet, a new one at each call."""
        raise NotImplementedError

    @pytest.fixture
    def open_store(self, new_place: Callable[[], str]) -> Iterator[OpenStore]:
        """Opens stores, and closes them all when the test ends."""
        opened: list[Store] = []

        def open_one(place: str | None = None, **options: Any) -> Store:
            opened.append(open_named(self.opener, place or new_place(), **options))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def place(self, new_place: Callable[[], str]) -> str:
        """Where the test's store is."""
        return new_place()

    @pytest.fixture
    def store(self, open_store: OpenStore, place: str) -> Store:
        """A new store."""
        return open_store(place)


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


def by_words(store: Store, text: str, where: Filter, depth: int) -> RankedList:
    """The records that share words with a text."""
    return store.keywords.search(store.keywords.analyzer.query(text), where, depth)


def by_meaning(store: Store, text: str, where: Filter, depth: int) -> RankedList:
    """The records nearest to a text."""
    return store.spaces.open(SPACE).search(EMBEDDER.query(text), where, depth)


SEARCHES: tuple[Search, ...] = (by_words, by_meaning)


def ids(found: RankedList | Sequence[Record]) -> list[str]:
    """What was found, as ids."""
    return (
        [match.record.id for match in found.entries] if isinstance(found, RankedList) else [each.id for each in found]
    )


def texts(found: RankedList) -> list[str]:
    """What was found, as texts."""
    return [match.record.text for match in found.entries]


def told(found: RankedList) -> list[tuple[Any, ...]]:
    """All that an index says: which records, in which order, with which scores, and how many repeats it passed over."""
    return [(match.record.id, match.score, match.text_hash) for match in found.entries] + [(found.duplicates,)]


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


def open_named(opener: str, place: str, **options: Any) -> Store:
    """Open a place with an opener that is named as `module:function`."""
    module, _, name = opener.partition(":")
    return cast("Store", getattr(importlib.import_module(module), name)(place, **options))


def put(store: Store, said: Mapping[str, Any]) -> Any:
    """Put one record with its vector."""
    return keep(store, Record(said["id"], said["text"]))[0].id


def forget(store: Store, said: Mapping[str, Any]) -> Any:
    """Forget one record."""
    store.records.apply([[Forget(said["id"])]])
    return said["id"]


def find(store: Store, said: Mapping[str, Any]) -> Any:
    """What each index finds."""
    return [texts(search(store, said["text"], Filter(), 9)) for search in SEARCHES]


def fill(store: Store, said: Mapping[str, Any]) -> Any:
    """Put records of one's own, group by group, each with its vector first; the ids that were acknowledged."""
    index, acknowledged = index_of(store), []
    for number in range(said["count"]):
        text = f"walrus {said['name']} says {said['name']}x{number}"
        index.save([text], EMBEDDER.passages([text]))
        mine, shared = Record(f"{said['name']}-{number}", text), Record("all", f"{text} last")
        acknowledged.append(store.records.apply([[Put(mine), Put(shared)]])[0].id)
    return acknowledged


def groups(store: Store, said: Mapping[str, Any]) -> Any:
    """Put groups of three without end, and say each number once it is acknowledged; it is killed at that."""
    for number in itertools.count(said["start"]):
        store.records.apply([[Put(Record(f"{number}-{part}", f"walrus number {number}")) for part in "abc"]])
        print(number, flush=True)  # noqa: T201
    return None


ORDERS: Mapping[str, Callable[[Store, Mapping[str, Any]], Any]] = {
    "put": put, "forget": forget, "find": find, "fill": fill, "groups": groups,
}  # fmt: skip


def serve(opener: str, place: str) -> None:
    """Say "ready", then answer each line of standard input with one of JSON."""
    store = open_named(opener, place)
    index_of(store)
    print(json.dumps("ready"), flush=True)  # noqa: T201
    for line in sys.stdin:
        said = json.loads(line)
        print(json.dumps(ORDERS[said["order"]](store, said)), flush=True)  # noqa: T201
    store.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])

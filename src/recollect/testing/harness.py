"""Fixtures and helpers of the contract, and a worker process (`python -m recollect.testing.harness OPENER PLACE`)."""

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
"""Opens the store at a place, by default a new one. It is closed when the test ends."""

Search: TypeAlias = Callable[[Store, str, Filter, int], RankedList]


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
            opened.append(open_named(self.opener, place or new_place(), **options))
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


def index_of(store: Store, space: VectorSpace = SPACE) -> VectorIndex:
    """The index of a space, which becomes the active one."""
    if store.spaces.active != space:
        store.spaces.activate(space)
    return store.spaces.open(space)


def store_all(store: Store, *records: Record) -> list[Record]:
    """Put records, one group each, and save their vectors."""
    stored = store.records.apply([[Put(record)] for record in records])
    passages = list(dict.fromkeys(record.passage for record in stored))
    index_of(store).save(passages, EMBEDDER.passages(passages))
    return stored


def by_keywords(store: Store, text: str, where: Filter, depth: int) -> RankedList:
    """The result of a keyword search."""
    return store.keywords.search(store.keywords.analyzer.query(text), where, depth)


def by_vector(store: Store, text: str, where: Filter, depth: int) -> RankedList:
    """The result of a vector search."""
    return store.spaces.open(SPACE).search(EMBEDDER.query(text), where, depth)


SEARCHES: tuple[Search, ...] = (by_keywords, by_vector)


def ids(records: RankedList | Sequence[Record]) -> list[str]:
    """The ids of records or of a result."""
    return (
        [hit.record.id for hit in records.entries] if isinstance(records, RankedList) else [each.id for each in records]
    )


def texts(ranked: RankedList) -> list[str]:
    """The texts of a result."""
    return [hit.record.text for hit in ranked.entries]


def summary(ranked: RankedList) -> list[tuple[Any, ...]]:
    """Everything in a result: ids, order, scores, text hashes, and the number of duplicates."""
    return [(hit.record.id, hit.score, hit.text_hash) for hit in ranked.entries] + [(ranked.duplicates,)]


def all_ids(store: Store, where: Filter = EVERYTHING) -> list[str]:
    """The sorted ids of all records that pass a filter."""
    pages = (store.records.list(where, limit=1000, offset=start) for start in itertools.count(0, 1000))
    return sorted(record.id for page in itertools.takewhile(bool, pages) for record in page)


def details(store: Store, keys: Sequence[str]) -> Mapping[str, Any]:
    """Everything that a store knows about some records: their fields, history and vectors."""
    vectors: Mapping[str, Vector] = store.spaces.open(SPACE).vectors(keys)
    return {
        "records": store.records.get(keys),
        "history": [store.records.history(key) for key in keys],
        "vectors": {key: vector.tobytes() for key, vector in vectors.items()},
    }


def open_named(opener: str, place: str, **options: Any) -> Store:
    """Open a store with an opener that is named as `module:function`."""
    module, _, name = opener.partition(":")
    return cast("Store", getattr(importlib.import_module(module), name)(place, **options))


def put(store: Store, arguments: Mapping[str, Any]) -> Any:
    """Put one record with its vector."""
    return store_all(store, Record(arguments["id"], arguments["text"]))[0].id


def forget(store: Store, arguments: Mapping[str, Any]) -> Any:
    """Forget one record."""
    store.records.apply([[Forget(arguments["id"])]])
    return arguments["id"]


def find(store: Store, arguments: Mapping[str, Any]) -> Any:
    """The texts that each index finds."""
    return [texts(search(store, arguments["text"], Filter(), 9)) for search in SEARCHES]


def fill(store: Store, arguments: Mapping[str, Any]) -> Any:
    """Put records group by group, each after its vector, and return the acknowledged ids."""
    index, acknowledged = index_of(store), []
    for number in range(arguments["count"]):
        text = f"walrus {arguments['name']} says {arguments['name']}x{number}"
        index.save([text], EMBEDDER.passages([text]))
        mine, shared = Record(f"{arguments['name']}-{number}", text), Record("all", f"{text} last")
        acknowledged.append(store.records.apply([[Put(mine), Put(shared)]])[0].id)
    return acknowledged


def groups(store: Store, arguments: Mapping[str, Any]) -> Any:
    """Put groups of three without end, and print each number when it is acknowledged, until killed."""
    for number in itertools.count(arguments["start"]):
        store.records.apply([[Put(Record(f"{number}-{part}", f"walrus number {number}")) for part in "abc"]])
        print(number, flush=True)  # noqa: T201
    return None


COMMANDS: Mapping[str, Callable[[Store, Mapping[str, Any]], Any]] = {
    "put": put, "forget": forget, "find": find, "fill": fill, "groups": groups,
}  # fmt: skip


def serve(opener: str, place: str) -> None:
    """Print "ready", then answer each line of standard input with one line of JSON."""
    store = open_named(opener, place)
    index_of(store)
    print(json.dumps("ready"), flush=True)  # noqa: T201
    for line in sys.stdin:
        arguments = json.loads(line)
        print(json.dumps(COMMANDS[arguments["command"]](store, arguments)), flush=True)  # noqa: T201
    store.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])

"""New vectors are compared one by one until they are many; then they are added to the approximate index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from recollect import Scope
from recollect.stores.postgres import PostgresStore, records, vectors
from recollect.stores.postgres.vectors import PostgresVectors, settle
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, VectorSpace

SPACE = VectorSpace("chance", "chance", 16)


@pytest.fixture
def store(place: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store that uses its approximate index early."""
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 50)
    monkeypatch.setattr(vectors, "MORE_CANDIDATES", 4)
    monkeypatch.setattr(records, "SETTLE_CHANCE", 10**9)
    store = PostgresStore(place)
    yield store
    store.close()


def add(store: PostgresStore, first: int, last: int) -> PostgresVectors:
    """Records with the vectors of `made`, a third of them Ada's."""
    index = store.spaces.open(SPACE)
    every = [Record(f"r{n}", f"text {n}", scope=Scope("ada") if n % 3 == 0 else Scope()) for n in range(first, last)]
    store.records.apply([[Put(record)] for record in every])
    index.save([record.passage for record in every], np.stack([made(number) for number in range(first, last)]))
    return index


def made(number: int) -> np.ndarray:
    vector = np.random.default_rng(number).normal(size=16)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def unsettled(store: PostgresStore) -> int:
    with store._database.read() as connection:
        row = connection.execute("SELECT count(*) FROM vectors_1 WHERE NOT settled AND vector IS NOT NULL").fetchone()
    return row[0] if row else -1


def found(index: PostgresVectors, number: int, where: Filter = EVERYTHING) -> list[str]:
    return [hit.id for hit in index.search(made(number), where, 5).entries]


def test_new_vectors_are_found_before_and_after_they_are_indexed(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own vector, also by a scope; a removed one is not found, and few stay outside the index."""
    index = add(store, 0, 120)
    store._database.write(lambda connection: connection.execute("SELECT settle_vectors(1, 1000, 0)"))
    assert unsettled(store) == 0
    add(store, 120, 160)
    assert unsettled(store) == 40
    for number in (3, 50, 121, 144, 159):
        assert found(index, number)[0] == f"r{number}"
    assert found(index, 144, Filter(scope=Scope("ada")))[0] == "r144"
    store.records.apply([[Forget("r144")]])
    assert "r144" not in found(index, 144)
    monkeypatch.setattr(vectors, "MAX_UNSETTLED", 10)
    monkeypatch.setattr(vectors, "SETTLE_BATCH", 20)
    for left in (19, 10, 10):
        settle(store._database)
        assert unsettled(store) == left
    for number in (3, 50, 121, 159):
        assert found(index, number)[0] == f"r{number}"


def test_index_that_is_built_later_has_all_vectors(store: PostgresStore) -> None:
    """As after a load or a repair."""
    index = add(store, 0, 80)
    assert unsettled(store) == 80
    store._database.write(lambda connection: connection.execute("DROP INDEX vectors_1_near"))
    add(store, 80, 120)
    assert unsettled(store) == 80, "without an index a new vector waits for none"
    store.contents.finish()
    assert unsettled(store) == 0
    assert [found(index, number)[0] for number in (1, 79, 100)] == ["r1", "r79", "r100"]

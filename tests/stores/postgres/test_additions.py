"""A single new record is written with its vector at once, and only if it is new: else the usual way is taken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import Overtaken
from recollect.stores.postgres import PostgresStore, additions, postings
from recollect.stores.rows import passage_hash
from recollect.types import Filter, Forget, Put, Record, VectorSpace
from recollect.types.records import SaveVectors

SPACE, OTHER = (VectorSpace(name, name, 3) for name in ("small", "other"))
VECTOR = np.array([0.6, 0.8, 0.0], dtype=np.float32)
ADA = Scope("ada")


@pytest.fixture
def store(place: str) -> Iterator[PostgresStore]:
    """A store with one vector space and one record of Ada's."""
    store = PostgresStore(place)
    store.spaces.activate(SPACE)
    store.records.apply([[Put(Record("old", "An egret.", scope=ADA), merge=True)]])
    yield store
    store.close()


def added(store: PostgresStore, put: Put, space: VectorSpace = SPACE) -> Record | None:
    """What one statement adds, without the usual way after it."""
    number = store._database.one(
        "SELECT coalesce(max(space), 0) FROM spaces WHERE fingerprint = %s", [space.fingerprint]
    )
    return store.records._additions.add(put, number[0], VECTOR.tobytes())


def counts(store: PostgresStore) -> tuple[Any, ...]:
    """How many rows everything has that belongs to a record."""
    tables = ("records", "documents", "history", "vectors_1", "embeddings")
    return tuple(store._database.one(f"SELECT {', '.join(f'(SELECT count(*) FROM {table})' for table in tables)}"))


def test_new_record_is_complete(store: PostgresStore) -> None:
    """It has its words, its vector, its event, and counts in the statistics."""
    record = Record("new", "A grey heron.", scope=ADA, tags=("bird",))
    assert added(store, Put(record, merge=True)) == record
    assert store.records.get(["new"]) == [record]
    assert [event.action for event in store.records.history("new")] == ["add"]
    index, where = store.spaces.open(SPACE), Filter(scope=ADA)
    assert [hit.record.id for hit in store.keywords.search(["heron"], where, 9).entries] == ["new"]
    assert [(hit.record.id, hit.score) for hit in index.search(VECTOR, where, 9).entries] == [("new", 1.0)]
    assert np.array_equal(index.vectors(["new"])["new"], VECTOR)
    assert index.coverage() == (1, 1)
    assert store._database.one("SELECT sum(records)::bigint FROM tallies") == (2,)


def test_listeners_hear_of_each_change_once(store: PostgresStore) -> None:
    """Adding a record that exists is tried first and writes nothing, so nobody is notified of it."""
    changes = [Put(Record("new", "A heron.")), Put(Record("new", "A heron.", tags=("bird",))), Forget("new")]
    store.records.apply([[Put(Record("first", "of everybody"))]])
    with contextlib.closing(store._database.connect()) as listener:
        listener.execute(f"LISTEN {additions.CHANNEL}")
        for change in changes:
            store.records.apply([[change]])
        own = [notice for notice in listener.notifies(timeout=0.5) if notice.payload == store._database.schema]
    assert len(own) == len(changes)


def test_text_of_another_scope_is_new(store: PostgresStore) -> None:
    """Nobody learns from the time what others have stored."""
    put = Put(Record("bobs", "An egret.", scope=ADA), merge=True)
    assert added(store, put) is None
    put = Put(Record("bobs", "An egret."), merge=True)
    store.records.apply([[Put(Record("first", "of everybody"))]])
    assert added(store, put) == put.record


@pytest.mark.parametrize(
    ("put", "space"),
    [
        (Put(Record("new", "An  EGRET.", scope=ADA), merge=True), SPACE),
        (Put(Record("old", "A heron.", scope=ADA)), SPACE),
        (Put(Record("gone", "A heron.", scope=ADA)), SPACE),
        (Put(Record("new", "A heron.", scope=Scope("nobody yet"))), SPACE),
        (Put(Record("new", "A heron.", scope=ADA)), OTHER),
    ],
    ids=["text", "id", "forgotten", "scope", "space"],
)
def test_nothing_is_written_if_something_must_be_looked_at(store: PostgresStore, put: Put, space: VectorSpace) -> None:
    store.records.apply([[Put(Record("gone", "A stork.", scope=ADA))], [Forget("gone")]])
    before = counts(store)
    assert added(store, put, space) is None
    assert counts(store) == before
    assert store.records.apply([[put]])


def test_another_process_changes_language_or_spaces(store: PostgresStore, place: str) -> None:
    """A record is never written with the terms of the old language, or without a row in a new space."""
    assert added(store, Put(Record("a", "The herons.", scope=ADA)))
    with_other = PostgresStore(place)
    with_other.spaces.open(OTHER)
    put = Put(Record("b", "The herons!", scope=ADA))
    assert added(store, put) is None
    assert added(store, put) == put.record
    assert with_other.spaces.open(OTHER).coverage() == (0, 3)
    with_other.keywords.change_language("none")
    assert added(store, Put(Record("c", "The herons?", scope=ADA))) is None
    store.records.apply([[Put(Record("c", "The herons?", scope=ADA))]])
    with_other.keywords.catch_up()
    found = with_other.keywords.search(["herons"], Filter(scope=ADA), 9).entries
    assert sorted(hit.record.id for hit in found) == ["a", "b", "c"]
    with_other.close()


def test_vector_of_a_space_that_does_not_answer_is_refused(store: PostgresStore) -> None:
    """With its record, in both ways of adding it."""
    store.spaces.activate(OTHER)
    put, before = Put(Record("new", "A heron.", scope=ADA)), counts(store)
    assert added(store, put) is None
    with pytest.raises(Overtaken):
        store.records.apply([[put], [SaveVectors(1, [(passage_hash(put.record.passage), VECTOR.tobytes())])]])
    assert counts(store) == before


def test_one_text_at_once_is_stored_once(store: PostgresStore, place: str) -> None:
    """Also by many who all believe that it is new."""
    stores = [PostgresStore(place) for _ in range(4)]
    for turn in range(10):
        puts = [Put(Record(f"{turn}-{number}", f"heron {turn}", scope=ADA), merge=True) for number in range(4)]
        with ThreadPoolExecutor(4) as threads:
            made = list(
                threads.map(lambda pair: pair[0].records.apply([[pair[1]]])[0].id, zip(stores, puts, strict=True))
            )
        assert len(set(made)) == 1
    assert counts(store)[0] == 11
    for each in stores:
        each.close()


def test_tallies_are_merged(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row for each record would make every count slower."""
    for number in range(9):
        store.records.apply([[Put(Record(f"r{number}", f"heron {number}", scope=ADA))]])
    monkeypatch.setattr(postings, "TALLY_MERGE_CHANCE", 1)
    store.records.apply([[Put(Record("last", "heron", scope=ADA))]])
    assert store._database.one("SELECT count(*), sum(records)::bigint FROM tallies") == (1, 11)


def test_record_with_its_vector_is_one_commit(place: str) -> None:
    """Also where the record is not new, and then it has the new vector."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("An egret.", id="old")
        for text, key in (("A heron.", "new"), ("A stork.", "old")):
            memory.add(text, id=key)
            written = memory.store._database.one(
                "SELECT (SELECT xmin::text FROM records WHERE id = %s),"
                " (SELECT xmin::text FROM history ORDER BY seq DESC LIMIT 1),"
                " (SELECT xmin::text FROM embeddings WHERE passage = %s)",
                [key, passage_hash(text)],
            )
            assert len(set(written)) == 1, written  # the transaction that wrote each of them
            assert memory.search(text, sources=["vector"]).results[0].record.id == key
        assert memory.status()["vectors"]["without"] == 0
        assert memory.store._database.one("SELECT count(*) FROM embeddings") == (2,)


def test_vector_of_a_refused_text_is_not_saved(store: PostgresStore) -> None:
    """A text can be recovered from its vector."""
    store.records.apply(
        [[Put(Record("new", "A heron.", scope=ADA))], [SaveVectors(1, [(b"another", VECTOR.tobytes())])]]
    )
    assert counts(store)[-1] == 0

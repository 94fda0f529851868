"""Changes that are written together give what the same changes give one by one, with the statements that were meant."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.errors import RecollectError, UsageError
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite import records as sqlite_records
from recollect.types import Change, Forget, Put, Record, Restore, Scope, Supersede
from recollect.types.protocols import Part
from recollect.types.records import new_id

TEXTS = [f"fact {number}" for number in range(8)] + ["FACT  1", "Fact 2"]
SCOPES = [Scope(), Scope(), Scope("ada"), Scope("bob", "critic")]


def random_groups(chance: random.Random) -> list[list[Change]]:
    """Many Puts, mostly new, some with the id or the text of another, and a few other changes among them."""
    ids = [f"r{number}" for number in range(14)]

    def change() -> Change:
        key, kind = chance.choice(ids), chance.random()
        if kind < 0.08:
            return Forget(key, purge=chance.random() < 0.3)
        if kind < 0.14:
            return Supersede(key, chance.choice(ids))
        if kind < 0.18:
            return Restore(key)
        tags = tuple(chance.sample(["a", "b", "c"], chance.randint(0, 2)))
        text, scope = chance.choice(TEXTS), chance.choice(SCOPES)
        return Put(Record(key, text, tags=tags, scope=scope, title=chance.choice(["", "T"])), chance.random() < 0.6)

    return [[change() for _ in range(chance.randint(1, 3))] for _ in range(40)]


def valid(store: SqliteStore, groups: Sequence[Sequence[Change]]) -> list[Sequence[Change]]:
    """Apply groups one by one; those that the store refuses are left out."""
    accepted = []
    for group in groups:
        try:
            store.records.apply([group])
        except RecollectError:
            continue
        accepted.append(group)
    return accepted


def contents(store: SqliteStore) -> list[Any]:
    """All parts, without the times at which they were written; the tags as the index has them."""
    with store.contents.snapshot() as snapshot:
        parts = [_without_times(part) for part in snapshot.parts()]
    with store._database.read() as connection:
        tags = list(connection.execute("SELECT id, tag FROM tags JOIN records USING (row) ORDER BY id, tag"))
        rows = list(connection.execute("SELECT row, id FROM records ORDER BY row"))
    return [parts, tags, rows]


def _without_times(part: Part) -> tuple[Any, ...]:
    if part.kind not in ("record", "history"):
        return part
    values = [value for value in part.values if not (isinstance(value, int) and value > 10**15)]
    if part.kind == "history":
        values[-1] = {name: value for name, value in part.values[-1].items() if name != "from"}
    return part.kind, *values


@pytest.mark.parametrize("seed", range(25))
def test_changes_together_equal_changes_one_by_one(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, tags, rows and history, in batches of any size."""
    chance = random.Random(seed)
    single, together = SqliteStore(tmp_path / "single.db"), SqliteStore(tmp_path / "together.db")
    groups = valid(single, random_groups(chance))
    monkeypatch.setattr(sqlite_records, "BATCH_CHANGES", chance.choice([1, 3, 10, 1000]))
    together.records.apply(iter(groups))
    assert contents(together) == contents(single)
    single.close()
    together.close()


def test_put_that_is_given_twice_is_stored_once(tmp_path: Path) -> None:
    """The same object twice in one batch, and the same text under two ids."""
    store = SqliteStore(tmp_path / "memory.db")
    put = Put(Record("a", "the heron"), merge=True)
    stored = store.records.apply([[put], [put], [Put(Record("b", "The  HERON"), merge=True)]])
    assert [record.id for record in stored] == ["a", "a", "a"]
    assert [event.action for event in store.records.history("a")] == ["add"]
    store.close()


def test_refused_group_leaves_the_transaction_undone(tmp_path: Path) -> None:
    """Nothing of the batch stays, neither before nor after the refused change."""
    store = SqliteStore(tmp_path / "memory.db")
    store.records.apply([[Put(Record("taken", "x", scope=Scope("ada")))]])
    with pytest.raises(UsageError):
        store.records.apply(
            [[Put(Record("new", "one"))], [Put(Record("taken", "two"))], [Put(Record("last", "three"))]]
        )
    assert store.records.get(["new", "last"]) == []
    assert store.changes.newest() == 1
    store.close()


def test_add_many_refuses_the_id_of_a_chunk_by_its_number(tmp_path: Path) -> None:
    """Ids are looked up together, and the error names the record."""
    with Memory.open(tmp_path / "memory.db", embedder="none") as memory:
        memory.add("a chunk", id="c", kind="chunk", path="/notes/a.md")
        with pytest.raises(UsageError, match=r"record 3: 'c' is a chunk of an indexed file"):
            memory.add_many([{"text": "one", "id": "a"}, {"text": "two"}, {"text": "three", "id": "c"}])
        assert memory.get("a") is None


def test_new_ids_follow_the_time() -> None:
    """So that the index by id is written at its end; no two are alike."""
    ids = [new_id()]
    for _ in range(3):
        time.sleep(0.002)
        ids.append(new_id())
    assert ids == sorted(ids)
    assert len({new_id() for _ in range(1000)}) == 1000
    assert all(len(key) == 32 for key in ids)


def test_store_of_an_older_schema_keeps_its_history(tmp_path: Path) -> None:
    """The migration drops two indexes, and every event is still found."""
    place = tmp_path / "memory.db"
    with Memory.open(place, embedder="none") as memory:
        key = memory.add("the heron").id
        memory.edit(key, text="the grey heron")
    older = apsw.Connection(str(place))
    older.execute("CREATE INDEX history_id ON history (id); CREATE INDEX embeddings_passage ON embeddings (passage)")
    older.execute("PRAGMA user_version=8; DELETE FROM migrations WHERE number > 8")
    older.close()
    with Memory.open(place, embedder="none") as memory:
        assert [event.action for event in memory.history(key)] == ["add", "update"]
        assert memory.undo(key)[0] == "update"
        assert [result.record.text for result in memory.search("heron").results] == ["the heron"]


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (f"SELECT seq FROM history WHERE {sqlite_records.EVENTS_OF}", "history_row"),
        ("DELETE FROM embeddings WHERE space IN (SELECT space FROM spaces) AND passage = ?", "embeddings"),
        (sqlite_records._TWIN, "records_fold"),
        (sqlite_records._KNOWN, "records_fold"),
    ],
)
def test_lookups_of_a_write_use_an_index(tmp_path: Path, statement: str, index: str) -> None:
    """None of them reads a whole table."""
    store = SqliteStore(tmp_path / "memory.db")
    with store._database.read() as connection:
        values = [None] * statement.count("?") if "?6" not in statement else [None] * 6
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    store.close()
    assert any(f"INDEX {index}" in step or f"autoindex_{index}" in step for step in plan), plan
    assert not [step for step in plan if step.startswith(("SCAN records", "SCAN history", "SCAN embeddings"))], plan

"""Changes that are written together give what the same changes give one by one, with the statements that were meant."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError, UsageError
from recollect.memory import embeddings
from recollect.memory.embeddings import BATCH
from recollect.models.hashing import HashingEmbedder
from recollect.stores.sqlite import SqliteStore
from recollect.stores.sqlite import records as sqlite_records
from recollect.stores.sqlite.schema import ADDED
from recollect.types import Change, Filter, Forget, Put, Record, Restore, Scope, Supersede
from recollect.types.parts import Part
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
    older.execute("DROP INDEX records_origin")
    for column in ADDED:
        older.execute(f"ALTER TABLE records DROP COLUMN {column}")
    older.close()
    store = SqliteStore(place, read_only=True)  # it cannot be migrated, and is read all the same
    assert [record.origin for record in store.records.list(Filter(origins=("user",)), limit=9)] == ["user"]
    assert [hit.id for hit in store.keywords.search(["heron"], Filter(), 9).entries] == [key]
    store.close()
    with Memory.open(place, embedder="none") as memory:
        assert memory.require(key).origin == "user"
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


class Interruptible(HashingEmbedder):
    """Embeds passages until `error` is set."""

    error: BaseException | None = None

    def passages(self, texts: Sequence[str]) -> Any:
        if self.error is not None:
            raise self.error
        return super().passages(texts)


def vectors_of(memory: Memory) -> tuple[int, int]:
    """How many records have a vector, and how many have none."""
    vectors = memory.status()["vectors"]
    return vectors["with"], vectors["without"]


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.add("The heron is grey."),
        lambda memory: memory.add("The heron is grey.", id="boat"),
        lambda memory: memory.add("The heron is grey.", supersedes="boat"),
        lambda memory: memory.add_many([{"text": "The heron is grey."}, {"text": "The reeds are high."}]),
        lambda memory: memory.edit("boat", text="The heron is grey."),
        lambda memory: memory.supersede("boat", text="The heron is grey."),
    ],
    ids=["add", "add again", "add superseding", "add_many", "edit", "supersede"],
)
def test_record_and_vector_are_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Memory], Any]
) -> None:
    """Once the model is open, no other process sees the record without its vector."""
    monkeypatch.setattr(embeddings, "PATIENCE_S", 60.0)
    with Memory.open(tmp_path / "memory.db", embedder=HashingEmbedder(64), settings=Settings()) as memory:
        memory.add("The boat is blue.", id="boat")
        before = memory.store._database._writes
        change(memory)
        assert memory.store._database._writes == before + 1
        assert vectors_of(memory)[1] == 0
        (best,) = memory.search("The heron is grey.", sources=["vector"], limit=1).results
        assert (best.record.text, round(best.similarity or 0, 6)) == ("The heron is grey.", 1.0)


def test_text_that_is_there_is_not_embedded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an equal record nor one with the same text in another scope needs a model that is slower than a look."""
    monkeypatch.setattr(embeddings, "LOOK_S", 0.0)
    embedder = Interruptible(64)
    with Memory.open(tmp_path / "memory.db", embedder=embedder, settings=Settings()) as memory:
        memory.add("The boat is blue.")
        embedder.error = AssertionError("embedded again")
        memory.add("The boat is blue.", tags=["boats"])
        memory.add("The boat is blue.", user="ada")
        assert vectors_of(memory) == (2, 0)


def test_vector_that_is_there_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is quicker than a look is asked without one."""
    monkeypatch.setattr(embeddings, "LOOK_S", 60.0)
    with Memory.open(tmp_path / "memory.db", embedder=HashingEmbedder(64), settings=Settings()) as memory:
        memory.add("The boat is blue.")
        monkeypatch.setattr(type(memory.embeddings.serving().index), "known", None)
        memory.add("The boat is blue.", tags=["boats"])
        memory.add("The boat is blue.", user="ada")
        assert vectors_of(memory) == (2, 0)
        assert memory.store.spaces.count(memory.embeddings.serving().space) == 1


def test_vectors_of_a_model_that_answers_no_more_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process moved the store to another model after this one had added a record."""
    monkeypatch.setattr(embeddings, "PATIENCE_S", 60.0)
    old, new = HashingEmbedder(64), HashingEmbedder(32)
    with Memory.open(tmp_path / "memory.db", embedder=old, settings=Settings()) as memory:
        memory.add("The boat is blue.")
        monkeypatch.setattr(memory.embeddings, "_embedder", lambda: new)
        with Memory.open(tmp_path / "memory.db", embedder=new, settings=Settings()) as other:
            other.embed()
            memory.add("The heron is grey.", id="heron")
            assert vectors_of(other) == (2, 0)
        assert memory.history("heron")[0].action == "add"


def test_merged_record_leaves_no_vector_of_the_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is that of a record with a title, which was embedded with it."""
    monkeypatch.setattr(embeddings, "PATIENCE_S", 60.0)
    with Memory.open(tmp_path / "memory.db", embedder=HashingEmbedder(64), settings=Settings()) as memory:
        memory.add("The boat is blue.", title="Boats")
        memory.add("The boat is blue.")
        index = memory.embeddings.serving().index
        assert index.known(["The boat is blue.", "Boats\nThe boat is blue."]) == {"Boats\nThe boat is blue."}


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_record_is_stored_if_its_vector_cannot_be_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """An open model that fails is announced, Ctrl-C is raised; `embed` computes the vector later."""
    monkeypatch.setattr(embeddings, "PATIENCE_S", 60.0)
    embedder, notes = Interruptible(64), list[str]()
    with Memory.open(tmp_path / "memory.db", embedder=embedder, settings=Settings(), announce=notes.append) as memory:
        memory.add("The boat is blue.")
        embedder.error = error
        if isinstance(error, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                memory.add("The heron is grey.", id="heron")
            assert notes == []
        else:
            memory.add("The heron is grey.", id="heron")
            assert notes == ["stored without vectors: hashing:64 failed: RuntimeError: boom"]
        assert vectors_of(memory) == (1, 1)
        assert [event.action for event in memory.history("heron")] == ["add"]
        embedder.error = None
        assert memory.embed() == 1


@pytest.mark.parametrize(("patience", "warm", "texts"), [(60.0, False, 1), (0.0, True, 1), (60.0, True, BATCH + 1)])
def test_slow_models_embed_after_the_record_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, warm: bool, texts: int
) -> None:
    """A model that was not used yet, one that was slow the last time, and many records: the records come first."""
    monkeypatch.setattr(embeddings, "PATIENCE_S", patience)
    with Memory.open(tmp_path / "memory.db", embedder=HashingEmbedder(64), settings=Settings()) as memory:
        if warm:
            memory.add("The boat is blue.")
        before = memory.store._database._writes
        memory.add_many([{"text": f"heron {number}"} for number in range(texts)])
        assert memory.store._database._writes > before + 1
        assert vectors_of(memory)[1] == 0

"""Records in SQLite's tables and file, and what `Memory` adds; the contract tests every store."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from recollect import Memory
from recollect.errors import StoreError, UnknownRecord
from recollect.stores.sqlite import SqliteStore, index
from recollect.stores.sqlite.segments import map_segment
from recollect.types import Filter, Put, Record, now

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
Dump = Callable[[], dict[str, list[tuple[Any, ...]]]]


def texts(memory: Memory, query: str, **options: Any) -> list[str]:
    """What a search finds, as texts."""
    return [result.record.text for result in memory.search(query, **options).results]


# -- putting and reading ------------------------------------------------------------------------------------


def test_superseded_or_expired_text_is_not_a_duplicate(memory: Memory) -> None:
    """Adding it again makes a new, valid record."""
    old = memory.add("the office is in Rome")
    memory.supersede(old.id, text="the office is in Oslo")
    gone = memory.add("the lift is broken", expires_at=now() - timedelta(days=1))
    assert memory.add("the office is in Rome").id != old.id
    assert memory.add("the lift is broken").id != gone.id
    assert "the office is in Rome" in texts(memory, "office Rome")
    assert "the lift is broken" in texts(memory, "lift broken")


@pytest.mark.parametrize("say", ["add", "add_many"])
def test_null_id_means_no_id(memory: Memory, say: str) -> None:
    """An id is generated, so the same text is still one record."""
    for _ in range(2):
        if say == "add":
            memory.add("said twice", id=None)
        else:
            memory.add_many([{"text": "said twice", "id": None}])
    assert len(memory.list()) == 1


# -- forgetting ---------------------------------------------------------------------------------------------


SECRET = "quixotryptic passphrase zwibblefrotz"


def make_secret(memory: Memory) -> str:
    """A record with a past: another text, title, tags, category and source, each one a secret."""
    memory.add(
        f"earlier: {SECRET} one", id="s", title="Vlorbian", tags=["krelmish"], category="snorvian", source="glimfeed",
        path="/home/drozzel.md",
    )  # fmt: skip
    memory.add(f"later: {SECRET} two", id="s", title="Vlorbian second", tags=["krelmish"], category="snorvian")
    memory.add("an innocent bystander", id="other")
    memory.search(SECRET)
    return "s"


SECRETS = ("quixotryptic", "zwibblefrotz", "vlorbian", "krelmish", "snorvian", "glimfeed", "drozzel")


def terms_on_disk(path: Path) -> set[int]:
    """The hashes of all terms in the files of the index."""
    segments = Path(f"{path}-index").glob("*.segment")
    return {int(term) for file in segments for term in map_segment(file, file.stat().st_size).terms}


def terms_by_row(memory: Memory) -> dict[int, tuple[Any, ...]]:
    """What the index has of each row: its length, and the hash and count of each term."""
    rows = {}
    with memory.store._database.read() as connection:
        view = memory.store.keywords.index.view(connection)
        for (row,) in connection.execute("SELECT row FROM records WHERE forgotten_at IS NULL").fetchall():
            segment, place = view.place(row)
            here = segment.places == place
            terms = np.repeat(segment.terms, np.diff(segment.starts))[here]
            rows[row] = int(segment.length[place]), terms.tolist(), segment.counts[here].tolist()
    return rows


def test_purge_leaves_nothing_in_any_table(
    path: Path, memory: Memory, dump: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of any table, and no term of the index."""
    monkeypatch.setattr(index, "COLD_ROWS", 1)
    key = make_secret(memory)
    assert set(memory.store.keywords.analyzer.hashed(SECRETS[0])[0]) <= terms_on_disk(path), "the test can see them"
    assert any(secret in str(dump()).lower() for secret in SECRETS), "the test can see them"
    memory.forget(key, purge=True)
    held = dump()
    for secret in SECRETS:
        assert secret not in str(held).lower(), secret
    hashes = terms_on_disk(path)
    analyzer = memory.store.keywords.analyzer
    assert set(analyzer.hashed("innocent bystander")[0]) <= hashes
    assert not [secret for secret in SECRETS if hashes & set(analyzer.hashed(secret)[0])]


def test_purge_removes_the_vectors_of_earlier_texts_too(memory: Memory, dump: Dump) -> None:
    """A vector can be turned back into words."""
    memory.forget(make_secret(memory), purge=True)
    assert len(dump()["embeddings"]) == 1, "only the bystander's"


def test_purge_leaves_no_byte_in_the_file(path: Path, memory: Memory) -> None:
    """After the store is closed, its files hold nothing of the purged record."""
    key = make_secret(memory)
    memory.forget(key, purge=True)
    memory.close()
    for file in path.parent.iterdir():
        raw = file.read_bytes().lower()
        found = [secret for secret in SECRETS if secret.encode() in raw]
        assert not found, f"{file.name} still holds {found}"


def test_purge_leaves_no_byte_in_the_file_after_vacuum(path: Path, memory: Memory) -> None:
    """Also after an administrator's VACUUM."""
    memory.forget(make_secret(memory), purge=True)
    memory.close()
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    raw = path.read_bytes().lower()
    assert b"bystander" in raw
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


@pytest.mark.ci
def test_forgetting_changes_no_other_record(path: Path, memory: Memory, dump: Dump) -> None:
    """In 200 random cases every other row is byte for byte the same, in the indexes too."""
    chance = random.Random(20260314)
    words = ["heron", "reed", "lake", "boat", "oar", "mist", "dawn", "ice"]
    made = 0

    def add() -> str:
        nonlocal made
        made += 1
        said = chance.choices(words, k=chance.randint(1, 5))
        return memory.add(
            " ".join([*said, chance.choice("αβγ"), str(made) if chance.random() < 0.7 else ""]),
            id=f"r{made}",
            user=chance.choice([None, "ada", "bob"]),
            tags=chance.sample(["red", "blue", "green"], chance.randint(0, 3)),
            title=chance.choice(["", "Title"]),
        ).id

    ids = [add() for _ in range(40)]
    connection = apsw.Connection(str(path))

    def others(gone: str) -> dict[str, Any]:
        held = dump()
        row = connection.execute("SELECT row FROM records WHERE id = ?", (gone,)).get
        return {
            "records": [r for r in held["records"] if r[0] != row],
            "tags": [r for r in held["tags"] if r[1] != row],
            "history": [r for r in held["history"] if r[1] != row],
            "vectors": connection.execute(
                "SELECT id, vector FROM records JOIN embeddings USING (passage) WHERE row <> ? ORDER BY id", (row,)
            ).fetchall(),
            "terms": {number: terms for number, terms in terms_by_row(memory).items() if number != row},
        }

    for _ in range(200):
        gone = ids.pop(chance.randrange(len(ids)))
        before = others(gone)
        memory.forget(gone, purge=chance.random() < 0.5)
        assert others(gone) == before
        assert memory.get(gone) is None
        ids.append(add())
    connection.close()


# -- groups -------------------------------------------------------------------------------------------------


def test_add_with_an_unknown_id_to_supersede_stores_nothing(memory: Memory) -> None:
    """`add(…, supersedes=…)` is all or nothing."""
    with pytest.raises(UnknownRecord):
        memory.add("would be orphaned", supersedes="unknown")
    assert memory.list() == []
    assert texts(memory, "orphaned") == []


def test_writer_uses_the_lock_it_waited_for(path: Path, store: SqliteStore) -> None:
    """The first transaction it gets does the work."""
    blocker = apsw.Connection(str(path))
    blocker.execute("BEGIN IMMEDIATE")
    begun: list[str] = []
    store._database._writer.exec_trace = lambda _cursor, sql, _values: begun.append(sql) or True
    release = threading.Timer(0.4, blocker.execute, ("ROLLBACK",))
    release.start()
    store.records.apply([[Put(Record("a", "patient"))]])
    release.join()
    blocker.close()
    store._database._writer.exec_trace = None
    assert begun.count("BEGIN IMMEDIATE") == 1


def test_writer_that_waits_in_vain_says_so_and_can_be_interrupted(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error with a hint when its patience ends; Ctrl-C at once. Nothing is stored, and the next write works."""
    with contextlib.closing(apsw.Connection(str(path))) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked by another process"), store._database.write(50):
            pass
        monkeypatch.setattr(time, "sleep", lambda _pause: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            store.records.apply([[Put(Record("a", "impatient"))]])
        monkeypatch.undo()
    assert store.records.get(["a"]) == []
    store.records.apply([[Put(Record("b", "patient"))]])
    assert store.records.get(["b"])[0].text == "patient"


# -- supersession -------------------------------------------------------------------------------------------


def test_successor_inherits_fields(memory: Memory) -> None:
    """Scope, category, tags, title, importance and decay class; it is always a fact."""
    old = memory.add(
        "v1",
        user="ada",
        agent="x",
        category="work",
        tags=["t"],
        title="T",
        importance=0.8,
        decay="stable",
        kind="chunk",
    )
    new = memory.supersede(old.id, text="v2")
    assert new.kind == "fact"
    for name in ("scope", "category", "tags", "title", "importance", "decay"):
        assert getattr(new, name) == getattr(old, name), name


def test_supersession_without_a_time_takes_effect_at_once(memory: Memory) -> None:
    """Also for a fact about a future day."""
    old = memory.add("the party is on Friday", happened_at=now() + timedelta(days=5))
    memory.supersede(old.id, text="the party is on Thursday")
    assert texts(memory, "when is the party") == ["the party is on Thursday"]


def test_expired_records_are_not_found(memory: Memory) -> None:
    """From the moment of expiry in lists and both sources; as of before, they are."""
    end = now() + timedelta(hours=1)
    memory.add("parking permit number nine", expires_at=end, created_at=NOON)
    memory.add("parking permit forever", created_at=NOON)
    for sources in (["keyword"], ["vector"]):
        before = texts(memory, "parking permit", sources=sources)
        assert set(before) == {"parking permit number nine", "parking permit forever"}
        assert texts(memory, "parking permit", sources=sources, as_of=end) == ["parking permit forever"]
        assert len(texts(memory, "parking permit", sources=sources, as_of=end - timedelta(microseconds=1))) == 2
    assert [record.text for record in memory.store.records.list(Filter(now=end), limit=9)] == ["parking permit forever"]

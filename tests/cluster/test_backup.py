"""Backups, later copies and repairs of a distributed store."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from moving.test_copy import exported

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.moving.backups import backup, restore

Name = Callable[[], str]
USERS = [f"user{number}" for number in range(6)]


def test_backup_is_restored(rich: Path, new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """To another distributed store and to a file: every record, event, vector and state, byte for byte."""
    source = new_place()
    moving.copy(rich, source)
    saved = backup(source, tmp_path / "b.zip")
    for target in (new_place(), new_file()):
        restored = restore(tmp_path / "b.zip", target)
        assert restored.counts["record"] == saved.backup.counts["record"] >= 300
        assert exported(target, tmp_path) == exported(rich, tmp_path)


def test_backup_while_records_are_written(place: str, tmp_path: Path) -> None:
    """It is a state that was committed: of each writer all records up to one, with their history, on every worker."""
    stop, failures = threading.Event(), list[BaseException]()

    def write(name: int) -> None:
        try:
            with Memory.open(place, embedder="none", settings=Settings()) as memory:
                number = 0
                while not stop.is_set():  # each record is in another shard than the one before
                    memory.add(f"heron {number}", id=f"{name}-{number}", user=USERS[number % len(USERS)])
                    number += 1
        except BaseException as error:  # noqa: BLE001  (shown below)
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(4):
            backup(place, tmp_path / f"{number}.zip")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    for number in range(4):
        target = tmp_path / f"{number}.db"
        restore(tmp_path / f"{number}.zip", target)
        with Memory.open(target, embedder="none", settings=Settings()) as memory:
            with memory.store.contents.snapshot() as snapshot:
                parts = list(snapshot.parts())
            ids = {part.values[0] for part in parts if part.kind == "record"}
            assert ids == {part.values[1] for part in parts if part.kind == "history"}
            for name in range(3):
                own = sorted(int(key.partition("-")[2]) for key in ids if key.startswith(f"{name}-"))
                assert own == list(range(len(own))), f"backup {number}: writer {name} has a gap"
    assert ids, "nothing was written meanwhile"


def test_later_connections_to_workers_show_the_same_state(place: str) -> None:
    """Citus opens more of them when a query takes long; here it is told to. They do not see what was written since."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add("a heron")
        with memory.store.contents.snapshot() as snapshot:
            before = snapshot.counts()
            for user in USERS:
                memory.add("a later heron", user=user)
            snapshot.connection.execute("SET citus.force_max_query_parallelization TO on")
            assert snapshot.counts() == before
            assert [part.values[2] for part in snapshot.parts() if part.kind == "record"] == ["a heron"]


def test_backup_begins_when_no_write_runs(place: str) -> None:
    """Else it could have what was written later on one worker without what was written earlier on another."""
    url, schema = place.rpartition("schema=")[::2]
    begun = threading.Event()

    def read(memory: Memory) -> None:
        with memory.store.contents.snapshot():
            begun.set()

    with (
        Memory.open(place, embedder="none", settings=Settings()) as memory,
        psycopg.connect(url.rstrip("?&")) as writer,
    ):
        memory.add("a heron")
        writer.execute(f"LOCK TABLE {schema}.scopes IN ROW EXCLUSIVE MODE")  # as every write does
        reader = threading.Thread(target=read, args=(memory,))
        reader.start()
        assert not begun.wait(2)
        writer.commit()
        reader.join()
        assert begun.is_set()
        memory.add("a heron after that")


def test_store_that_is_in_use_moves_to_a_cluster(tmp_path: Path, place: str) -> None:
    """Copied while it is written to, and once more when its writers have stopped: then the cluster takes over."""
    file, stop = tmp_path / "old.db", threading.Event()

    def write() -> None:
        chance = random.Random(18)
        with Memory.open(file, embedder="hashing:64", settings=Settings()) as old:
            while not stop.is_set():
                key = f"r{chance.randrange(200)}"
                with contextlib.suppress(UsageError):  # there may be no such record now
                    match chance.randrange(6):
                        case 0:
                            old.forget(key, purge=chance.random() < 0.3)
                        case 1:
                            old.edit(key, text=f"a heron in other words {chance.random()}")
                        case 2:
                            old.undo(key)
                        case _:
                            old.add(f"a heron {chance.random()}", id=key, user=f"user{chance.randrange(5)}")

    with Memory.open(file, embedder="hashing:64", settings=Settings()) as old:
        old.add_many({"text": f"the heron {n}", "id": f"r{n}", "scope": {"user": f"user{n % 5}"}} for n in range(150))
    writer = threading.Thread(target=write)
    writer.start()
    try:
        moved = [moving.copy(file, place) for _ in range(4)]
    finally:
        stop.set()
        writer.join()
    moved.append(moving.copy(file, place, verify=True))
    assert sum(each.changed.get("record", 0) for each in moved) > 3
    digests = {moving.export(each, tmp_path / "export.jsonl").sha256 for each in (file, place)}
    assert digests == {moved[-1].sha256}
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as new:
        added = new.add("a heron of the cluster", user="user1")
        assert new.search("cluster", user="user1").results[0].record.id == added.id
    with pytest.raises(UsageError, match="1 that the source does not have"):
        moving.copy(file, place)


@pytest.mark.parametrize(
    "damage",
    [
        "SELECT 1",
        "INSERT INTO tallies (scope, kind, records, length) SELECT scope, 0, 1, 8 FROM scopes LIMIT 1",
        "DELETE FROM documents WHERE row % 2 = 0",
        "DELETE FROM vectors_1 WHERE row % 2 = 0",
        "DROP INDEX vectors_1_near",
        "UPDATE vectors_1 SET vector = NULL WHERE row % 2 = 0",
    ],
    ids=["nothing", "tallies", "documents", "rows of vectors", "index", "vectors"],
)
def test_doctor_repairs_and_breaks_nothing(place: str, run: Callable[..., str], tmp_path: Path, damage: str) -> None:
    """After `--fix` the content is the same, the answers are those of before, and there is no failure."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        for number in range(12):
            memory.add(f"heron {number} in the reeds", user=USERS[number % len(USERS)])
        memory.add("a global heron")
    content, answers = facts(place, tmp_path), found(place)
    url, schema = place.rpartition("schema=")[::2]
    with psycopg.connect(url.rstrip("?&"), autocommit=True) as server:
        server.execute(f"SET search_path TO {schema}, public")
        server.execute(damage)
    flags = ("--store", place, "--embedder", "hashing:64", "--json")
    run("doctor", "--fix", *flags, codes=(0, 1))
    checks = json.loads(run("doctor", *flags, codes=(0, 1)))["checks"]
    about = [
        (each["check"], each["state"], each["message"]) for each in checks if each["check"] in ("keywords", "vectors")
    ]
    assert {state for _, state, _ in about} == {"ok"}, about
    assert facts(place, tmp_path) == content
    assert found(place) == answers


def facts(place: str, tmp_path: Path) -> list[bytes]:
    """The lines of an export that are no cache."""
    lines = exported(place, tmp_path).splitlines()
    return [line for line in lines if not line.startswith((b'{"part":"note"', b'{"part":"end"'))]


def found(place: str) -> list[list[tuple[str, float]]]:
    """Answers by words and by vectors, of users and of all."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        return [
            sorted(
                (result.record.id, round(result.score, 6)) for result in memory.search("heron reeds", **options).results
            )
            for options in ({"user": USERS[0]}, {"user": USERS[1]}, {"any_scope": True, "limit": 50})
        ]

"""LanceDB is kept up to date with the file: by any process, after a crash, after its folder was lost, after a purge."""

from __future__ import annotations

import contextlib
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.stores import open_store
from recollect.stores.lance.table import LanceTable
from recollect.types import Filter

Opened = Callable[..., Memory]


def found(memory: Memory, query: str, **options: Any) -> list[str]:
    """The texts that a vector search finds."""
    return [result.record.text for result in memory.search(query, sources=["vector"], **options).results]


def dataset(memory: Memory) -> Path:
    """LanceDB's folder."""
    return Path(memory.store.url.dataset)


def rows(memory: Memory) -> list[int]:
    """The numbers in LanceDB's table, read by another connection."""
    import lancedb

    names = [part.stem for part in dataset(memory).glob("*.lance")]
    assert len(names) == 1
    table = lancedb.connect(str(dataset(memory))).open_table(names[0])
    return sorted(table.search().select(["number"]).limit(1_000_000).to_arrow()["number"].to_pylist())


def test_commits_are_few(opened: Opened, tmp_path: Path) -> None:
    """A hundred adds are two commits with batches of fifty, and each record is found at once."""
    memory = opened(f"lancedb://{tmp_path}/memory?batch=50")
    for i in range(100):
        memory.add(f"otter number {i}")
        assert found(memory, f"otter number {i}", limit=1) == [f"otter number {i}"]
    (table,) = dataset(memory).glob("*.lance")
    assert len(list((table / "_versions").iterdir())) <= 4
    assert rows(memory) == list(range(1, 101))
    assert memory.status()["lance"] == {"dataset": str(dataset(memory)), "waiting": 0}


ECHO = """
import sys
from recollect import Memory
from recollect.config import Settings
with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
    for line in sys.stdin:
        command, _, text = line.strip().partition(" ")
        if command == "add":
            print(memory.add(text).id, flush=True)
        elif command == "forget":
            memory.forget(text)
            print("done", flush=True)
        else:
            print("|".join(r.record.text for r in memory.search(text, sources="vector").results), flush=True)
"""


@pytest.mark.ci
@pytest.mark.usefixtures("eager")
def test_a_write_is_visible_to_the_next_search_in_another_process(opened: Opened, tmp_path: Path, start: Any) -> None:
    """In both directions, for adds and forgets, while both of them commit to LanceDB."""
    url = f"lancedb://{tmp_path}/memory?batch=3"
    memory = opened(url)
    memory.add("the first")
    process = start("-c", ECHO, url)

    def other(said: str) -> str:
        process.stdin.write(f"{said}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    for i in range(12):
        here = memory.add(f"badger {i} was added here")
        assert here.text in other(f"search {here.text}").split("|")
        there = other(f"add badger {i} was added there")
        assert f"badger {i} was added there" in found(memory, f"badger {i} was added there")
        memory.forget(there)
        assert f"badger {i} was added there" not in other(f"search badger {i} was added there").split("|")
        other(f"forget {here.id}")
        assert here.text not in found(memory, here.text)
    assert len(rows(memory)) >= 21


def test_forgotten_record_never_comes_back(opened: Opened, url: str) -> None:
    """After commits, after optimizing, and after the folder was lost and rebuilt."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(40))
    memory.forget("o7")
    memory.add_many({"text": f"heron {i}"} for i in range(40))
    memory.embed()
    assert "otter 7" not in found(memory, "otter 7", limit=80)
    shutil.rmtree(dataset(memory))
    again = opened(url)
    assert len(found(again, "otter", limit=80)) == 79
    assert "otter 7" not in found(again, "otter 7", limit=80)


FLUSHES = """
import sys
from recollect import Memory
from recollect.config import Settings
memory = Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings())
for i in range(int(sys.argv[2]), 10**9):
    print(memory.add_many([{"text": f"walrus {i} {j}"} for j in range(5)])[-1].text, flush=True)
"""


@pytest.mark.torture
def test_process_killed_during_a_flush_loses_nothing(opened: Opened, tmp_path: Path, start: Any) -> None:
    """Killed four times while writing and committing: every acknowledged record is found, once."""
    url = f"lancedb://{tmp_path}/memory?batch=5"
    said: list[str] = []
    for turn in range(4):
        process = start("-c", FLUSHES, url, turn * 1_000)
        said.append(process.stdout.readline().strip())
        end = time.monotonic() + 0.3 + 0.11 * turn
        while time.monotonic() < end:
            said.append(process.stdout.readline().strip())
        process.send_signal(signal.SIGKILL)
        process.wait()
    memory = opened(url)
    total = memory.status()["records"]["total"]
    everything = found(memory, "walrus", limit=total + 9, fetch_k=total + 9)
    assert len(everything) == len(set(everything)) == total
    assert set(said) - {""} <= set(everything)
    memory.add_many({"text": f"the {i}th after all that"} for i in range(5))
    numbers = rows(memory)
    assert len(numbers) == len(set(numbers))


@pytest.mark.usefixtures("eager")
def test_crash_between_the_two_commits_is_repaired(opened: Opened, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LanceDB has committed and the file has not: the vectors are searched in the file and committed once."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}"} for i in range(30))
    commit = LanceTable.append

    def dies(*arguments: Any) -> int:
        commit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(LanceTable, "append", dies)
    with pytest.raises(KeyboardInterrupt):
        memory.add_many({"text": f"heron {i}"} for i in range(30))
    monkeypatch.setattr(LanceTable, "append", commit)
    again = opened(url)
    again.embed()
    assert len(found(again, "heron", limit=60)) == again.status()["records"]["total"]
    again.add_many({"text": f"mill {i}"} for i in range(10))
    numbers = rows(again)
    assert len(numbers) == len(set(numbers)) == again.status()["records"]["total"]


def lose_all(folder: Path) -> None:
    """Delete the folder."""
    shutil.rmtree(folder)


def lose_files(folder: Path) -> None:
    """Truncate the data files."""
    for file in folder.rglob("data/*.lance"):
        file.write_bytes(file.read_bytes()[:20])


def lose_manifests(folder: Path) -> None:
    """Overwrite the manifests."""
    for file in folder.rglob("_versions/*"):
        file.write_bytes(b"no")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lose", [lose_all, lose_files, lose_manifests])
@pytest.mark.parametrize("reopened", [True, False])
def test_lost_or_damaged_dataset_is_rebuilt(
    opened: Opened, url: str, lose: Callable[[Path], None], *, reopened: bool
) -> None:
    """By the next search, from the vectors in the file, in an open and in a new process."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}"} for i in range(60))
    before = found(memory, "otter 3", limit=20)
    assert len(before) == 20
    lose(dataset(memory))
    searching = opened(url) if reopened else memory
    assert found(searching, "otter 3", limit=20) == before
    searching.add_many({"text": f"heron {i}"} for i in range(30))
    assert found(searching, "otter 3", limit=20) == before
    assert len(found(searching, "heron", limit=90, fetch_k=90)) == 90
    assert len(rows(searching)) == 90


@pytest.mark.usefixtures("eager")
def test_older_dataset_is_rebuilt(opened: Opened, url: str, tmp_path: Path) -> None:
    """A restored copy that lacks committed vectors is not used."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}"} for i in range(20))
    shutil.copytree(dataset(memory), tmp_path / "copy")
    memory.add_many({"text": f"heron {i}"} for i in range(20))
    memory.close()
    shutil.rmtree(dataset(memory))
    shutil.copytree(tmp_path / "copy", dataset(memory))
    assert len(found(opened(url), "heron", limit=40)) == 40


def test_a_purge_leaves_no_byte_of_a_vector(opened: Opened, url: str) -> None:
    """In no file of any version; all other vectors are there."""
    memory = opened(url)
    memory.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(40))
    memory.add("a most private matter", id="secret")
    memory.add_many({"text": f"heron {i}"} for i in range(40))
    (vector,) = memory.embeddings.vectors(["secret"]).values()
    assert holds(dataset(memory), vector)
    memory.forget("secret", purge=True)
    assert not holds(dataset(memory), vector)
    assert len(found(memory, "otter", limit=80)) == 80
    assert len(rows(memory)) == 80


def holds(folder: Path, vector: Any) -> bool:
    """Whether the bytes of a vector are in any file; Lance stores floats as they are."""
    wanted = np.asarray(vector, dtype="<f4").tobytes()
    return any(wanted in file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.usefixtures("eager")
def test_read_only_store_searches_and_changes_nothing(opened: Opened, url: str) -> None:
    """With LanceDB's folder and without it: the file has every vector."""
    opened(url).add_many({"text": f"otter {i}"} for i in range(25))
    folder = Path(url.partition("://")[2].partition("?")[0])
    for _ in range(2):
        store = open_store(url, read_only=True)
        memory = Memory(store, Settings(), "hashing:64", announce=print)
        before = {file: file.stat().st_mtime_ns for file in folder.rglob("vectors/**/*")}
        assert len(found(memory, "otter", limit=25)) == 25
        with pytest.raises(StoreError, match="read-only"):
            memory.forget(memory.list(limit=1)[0].id)
        assert before == {file: file.stat().st_mtime_ns for file in folder.rglob("vectors/**/*")}
        memory.close()
        shutil.rmtree(folder / "vectors", ignore_errors=True)
    assert not (folder / "vectors").exists()


def test_file_answers_where_lancedb_cannot_write(opened: Opened, tmp_path: Path, caplog: Any) -> None:
    """An add succeeds, its vector is found, and a warning is logged."""
    memory = opened(f"lancedb://{tmp_path}/memory?batch=5")
    dataset(memory).write_text("a file where the folder should be")
    memory.add_many({"text": f"otter {i}"} for i in range(20))
    assert len(found(memory, "otter", limit=20)) == 20
    assert "LanceDB was not updated" in caplog.text
    assert stat.S_ISREG(dataset(memory).stat().st_mode)


@pytest.mark.usefixtures("eager")
def test_threads_find_their_own_writes(opened: Opened, url: str) -> None:
    """Each of four threads finds what it has added while commits go on."""
    memory = opened(url)
    missed: list[str] = []

    def work(me: int) -> None:
        for i in range(15):
            text = memory.add(f"thread {me} says word{me}x{i}").text
            missed.extend([] if text in found(memory, text) else [text])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []
    assert len(memory.list(Filter(), limit=99)) == 60


def test_folder_does_not_grow_without_limit(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small commits are merged, and files of old versions are deleted."""
    from datetime import timedelta

    from recollect.stores.lance import table, updater

    monkeypatch.setattr(updater, "OPTIMIZE_COMMITS", 10)
    monkeypatch.setattr(table, "KEPT_VERSIONS", timedelta(milliseconds=1))
    memory = opened(f"lancedb://{tmp_path}/memory?batch=2")
    for i in range(60):
        memory.add(f"otter {i}")
    assert len(rows(memory)) == 60
    assert len(list(dataset(memory).rglob("data/*.lance"))) < 15
    assert len(found(memory, "otter", limit=60)) == 60


def test_store_is_copied_in_and_out(opened: Opened, url: str, path: Path, tmp_path: Path) -> None:
    """Every vector is copied without loss, to LanceDB and back."""
    from recollect.moving import copy

    plain = opened(path)
    plain.add_many({"text": f"otter {i}", "id": f"o{i}"} for i in range(60))
    with contextlib.closing(open_store(url)) as store:
        copy(plain.store, store)
    memory = opened(url)
    assert found(memory, "otter 7", limit=10) == found(plain, "otter 7", limit=10)
    assert len(rows(memory)) == 60
    with contextlib.closing(open_store(str(tmp_path / "back.db"))) as store:
        copy(memory.store, store)
    assert found(opened(tmp_path / "back.db"), "otter 7", limit=10) == found(plain, "otter 7", limit=10)

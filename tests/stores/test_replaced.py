"""A store that is deleted, replaced or overwritten while a process has it open: the process detects and reports it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings

PROCESS = """
import sys
from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError
memory = Memory.open(sys.argv[1], embedder="none", settings=Settings())
print("open", flush=True)
for line in sys.stdin:
    what, _, text = line.strip().partition(" ")
    try:
        if what == "add":
            print("stored", memory.add(text).text, flush=True)
        elif what == "search":
            print("found", len(memory.search(text).results), flush=True)
        else:
            break
    except RecollectError as error:
        print(type(error).__name__, error.message, "|", error.hint, flush=True)
memory.close()
print("closed", flush=True)
"""

Tell = Callable[[str], str]


def make(place: Path, count: int, first: int = 0) -> None:
    """Store so many records, and close the store."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add_many({"text": f"fact number {n} of {place.name}"} for n in range(first, first + count))


def texts(place: Path) -> set[str]:
    """What a store holds, read by a process that opens it now."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        return {record.text for record in memory.list(limit=10_000)}


def logs(path: Path) -> list[Path]:
    return [Path(f"{path}{end}") for end in ("-wal", "-shm")]


def delete(path: Path) -> None:
    for part in (path, *logs(path)):
        part.unlink(missing_ok=True)


def replace(path: Path) -> None:
    """Move another store over this one, as `mv` does; the log stays."""
    make(path.with_name("other.db"), 5)
    path.with_name("other.db").rename(path)


def replace_all(path: Path) -> None:
    delete(path)
    replace(path)


def copy_older(path: Path) -> None:
    """Write an older copy into the file itself, as `cp` does; its inode stays."""
    shutil.copyfile(path.with_name("backup.db"), path)


def copy_older_without_log(path: Path) -> None:
    copy_older(path)
    for part in logs(path):
        part.unlink()


def copy_other(path: Path) -> None:
    make(path.with_name("other.db"), 900)
    shutil.copyfile(path.with_name("other.db"), path)


def copy_text(path: Path) -> None:
    path.write_text("dear diary\n" * 10_000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


CHANGES = {
    "deleted": (delete, "was deleted"),
    "replaced": (replace, "was replaced"),
    "replaced with its log": (replace_all, "was replaced"),
    "older copy inside": (copy_older, "was overwritten"),
    "older copy inside, no log": (copy_older_without_log, "was overwritten"),
    "other store inside": (copy_other, "was overwritten"),
    "another file inside": (copy_text, "was overwritten"),
    "emptied": (empty, "was emptied"),
}


@pytest.fixture
def talk(path: Path, start: Any) -> Tell:
    """A process with a store of 400 records and one more in the log; `backup.db` has the first 50."""
    make(path, 50)
    shutil.copyfile(path, path.with_name("backup.db"))
    make(path, 350, first=50)
    process = start("-c", PROCESS, path)
    assert process.stdout.readline() == "open\n"

    def tell(line: str) -> str:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return str(process.stdout.readline()).strip()

    assert tell("add the first of this process") == "stored the first of this process"
    return tell


@pytest.mark.ci
@pytest.mark.parametrize("name", CHANGES)
def test_write_to_a_deleted_or_replaced_store_is_refused(talk: Tell, path: Path, name: str) -> None:
    """No lost write is acknowledged; the error says what happened and what to do."""
    change, words = CHANGES[name]
    change(path)
    for attempt in ("add one more", "add and another"):
        answer = talk(attempt)
        assert answer.startswith("StoreError"), answer
        assert words in answer
        assert "process" in answer.partition("|")[2]


@pytest.mark.ci
@pytest.mark.parametrize("name", CHANGES)
def test_search_in_a_deleted_or_replaced_store_is_refused(talk: Tell, path: Path, name: str) -> None:
    """No answer comes from a file that is no longer the store."""
    assert talk("search fact number 399") != "found 0"
    change, words = CHANGES[name]
    change(path)
    answer = talk("search fact number 399")
    assert answer.startswith(("StoreError", "SearchFailed")), answer
    assert words in answer


@pytest.mark.parametrize("change", [replace, replace_all])
def test_store_that_replaced_another_is_unchanged(talk: Tell, path: Path, change: Any) -> None:
    """The process with the old one open writes nothing into it, not even on close."""
    change(path)
    before = path.read_bytes()
    talk("add one more")
    assert talk("end") == "closed"
    assert path.read_bytes() == before


def test_copy_written_into_an_open_store_is_unchanged(talk: Tell, path: Path) -> None:
    """As the hint says: once the old log is deleted, the copy is complete."""
    copy_older(path)
    assert "-wal" in talk("add one more").partition("|")[2]
    assert talk("end") == "closed"
    assert path.read_bytes() == path.with_name("backup.db").read_bytes()
    for part in logs(path):
        part.unlink(missing_ok=True)
    assert len(texts(path)) == 50


def test_store_that_comes_back_is_used_again(talk: Tell, path: Path) -> None:
    """The same file, moved away and back."""
    away = path.with_name("away.db")
    path.rename(away)
    assert "was deleted" in talk("add one more")
    away.rename(path)
    assert talk("add at last") == "stored at last"
    assert talk("end") == "closed"
    assert "at last" in texts(path)
    assert "one more" not in texts(path)


def test_deleted_log_loses_nothing_if_the_process_ends_first(talk: Tell, path: Path) -> None:
    """Writes are refused; at exit acknowledged ones are moved into the file."""
    for part in logs(path):
        part.unlink()
    answer = talk("add one more")
    assert answer.startswith("StoreError")
    assert "-wal was deleted" in answer
    assert talk("end") == "closed"
    assert len(texts(path)) == 401
    assert "the first of this process" in texts(path)


def test_new_log_of_another_process_is_not_overwritten(talk: Tell, path: Path) -> None:
    """A process that ends with an old log does not overwrite later acknowledged writes."""
    for part in logs(path):
        part.unlink()
    make(path, 3, first=1000)
    assert talk("add one more").startswith("StoreError")
    assert talk("end") == "closed"
    assert {f"fact number {n} of {path.name}" for n in range(1000, 1003)} <= texts(path)


def test_older_state_restored_by_sqlite_is_detected(talk: Tell, path: Path) -> None:
    """`sqlite3 memory.db '.restore backup.db'` changes the file in a transaction; its history goes back."""
    source, target = apsw.Connection(str(path.with_name("backup.db"))), apsw.Connection(str(path))
    with target.backup("main", source, "main") as backup:
        backup.step()
    target.close()
    source.close()
    assert "was overwritten" in talk("add one more")


def test_checkpoints_and_vacuum_of_others_are_no_replacement(talk: Tell, path: Path) -> None:
    """Another process may write, checkpoint and shrink the file."""
    for n in range(5):
        make(path, 40, first=2000 + 40 * n)
        other = apsw.Connection(str(path))
        other.set_busy_timeout(10_000)
        if n == 3:
            other.execute("VACUUM")
        other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        other.close()
        assert talk(f"add round {n}") == f"stored round {n}"
    assert talk("end") == "closed"
    assert len(texts(path)) == 400 + 1 + 5 * 41


def test_store_with_a_relative_path_stays_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of folder, where there is no such file or another store."""
    monkeypatch.chdir(path.parent)
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    make(elsewhere / path.name, 5)
    with Memory.open(path.name, embedder="none", settings=Settings()) as memory:
        memory.add("before")
        monkeypatch.chdir(elsewhere)
        memory.add("after")
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: len(memory.list()), range(20))) == {2}
    assert texts(path) == {"before", "after"}


def test_store_without_an_id_gets_one(path: Path) -> None:
    """When it is next opened for writing, once."""

    def identity() -> list[Any]:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return connection.execute("SELECT value FROM meta WHERE key = 'id'").fetchall()
        finally:
            connection.close()

    make(path, 1)
    first = identity()
    assert len(first) == 1
    make(path, 1, first=1)
    assert identity() == first
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM meta WHERE key = 'id'")
    connection.close()
    make(path, 1, first=2)
    assert len(identity()) == 1
    assert identity() != first

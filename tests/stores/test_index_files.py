"""The folder of the index: killed writers, two processes, restored copies, read-only places, exact vectors."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.analysis import Analyzer
from recollect.errors import SupersessionCycle, UsageError
from recollect.stores.sqlite import SqliteStore, blocks, index, keywords, manifest, segments, vectors
from recollect.stores.sqlite.segments import build, map_segment, write_segment
from recollect.stores.sqlite.views import View
from recollect.types import Filter, Forget, Put, RankedList, Record, Scope, Supersede, VectorSpace

DIMENSION = 48
SPACE = VectorSpace("test@1", "test", DIMENSION)
EVERYONE = Filter(any_scope=True)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written and merged as soon as there are a few rows."""
    monkeypatch.setattr(index, "COLD_ROWS", 8)
    monkeypatch.setattr(vectors, "COLD_ROWS", 8)
    for module in (index, vectors, manifest):
        monkeypatch.setattr(module, "WRITTEN_ROWS", 16)
    monkeypatch.setattr(manifest, "FACTOR", 3)
    monkeypatch.setattr(vectors, "FEW", 10)


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[..., SqliteStore]]:
    """Opens the test's store as another process would; all are closed at the end."""
    opened: list[SqliteStore] = []

    def build(place: Path = path, **options: Any) -> SqliteStore:
        opened.append(SqliteStore(place, **options))
        return opened[-1]

    yield build
    for store in opened:
        store.close()


def texts(*numbers: int) -> list[str]:
    """A text for each number, with words that few others have."""
    return [
        f"the {['heron', 'kite', 'otter'][n % 3]} number {n} has {['reeds', 'ice', 'mist', 'boat'][n % 4]}"
        for n in numbers
    ]


def vector_of(text: str) -> Any:
    """A unit vector that depends on the text alone."""
    vector = np.random.default_rng(sum(map(ord, text)) * 7919 + len(text)).standard_normal(DIMENSION).astype(np.float32)
    return vector / np.linalg.norm(vector)


def add(store: SqliteStore, *numbers: int, **fields: Any) -> None:
    """Store records with their vectors."""
    written = texts(*numbers)
    store.records.apply([Put(Record(f"r{n}", text, **fields))] for n, text in zip(numbers, written, strict=True))
    store.spaces.open(SPACE).save(written, np.array([vector_of(text) for text in written]))


def by_words(store: SqliteStore, *words: str, where: Filter = EVERYONE, depth: int = 500) -> list[tuple[str, float]]:
    """The ids and scores that a keyword search finds."""
    ranked: RankedList = store.keywords.search(words, where, depth)
    return [(hit.id, hit.score or 0.0) for hit in ranked.entries]


def by_vector(store: SqliteStore, text: str, where: Filter = EVERYONE, depth: int = 500) -> list[tuple[str, float]]:
    """The ids and cosines that a vector search finds."""
    ranked = store.spaces.open(SPACE).search(vector_of(text), where, depth)
    return [(hit.id, hit.score or 0.0) for hit in ranked.entries]


def files(path: Path) -> set[str]:
    """The names in the folder of the index."""
    return {file.name for file in Path(f"{path}-index").iterdir()}


def fresh(path: Path, tmp_path: Path) -> SqliteStore:
    """A copy of the store without its index."""
    copy = tmp_path / "fresh.db"
    source = SqliteStore(path)
    source._database.empty_log()
    source.close()
    shutil.copy(path, copy)
    return SqliteStore(copy)


def check_equal(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """A store answers as one whose index was built in one go from the same file."""
    other = fresh(path, tmp_path)
    try:
        for words in (("heron",), ("the", "ice"), ("number", "kite", "7"), ("nowhere",)):
            assert by_words(store, *words) == by_words(other, *words)
        for text in texts(3, 50):
            assert by_vector(store, text) == by_vector(other, text)
        assert store.spaces.open(SPACE).coverage() == other.spaces.open(SPACE).coverage()
    finally:
        other.close()
        for part in tmp_path.glob("fresh.db*"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


# -- files ----------------------------------------------------------------------------------------------------


def test_index_is_for_its_owner_alone(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """The folder and every file in it; status counts their bytes."""
    store = open_store()
    add(store, *range(40))
    by_vector(store, "x"), by_words(store, "heron")
    place = Path(f"{path}-index")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in place.iterdir()} == {0o600}
    assert {file.suffix for file in place.iterdir()} >= {".segment", ".vectors", ".json"}
    assert store.status()["bytes"] >= path.stat().st_size + sum(file.stat().st_size for file in place.iterdir())


def test_no_text_is_in_the_files(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """Only the names of scopes, and terms each by itself: no text, tag, category or id."""
    store = open_store()
    add(store, *range(30), scope=Scope(user="ada"), title="Weather", tags=("birds",), category="nature")
    by_words(store, "heron"), by_vector(store, "x")
    raw = b"".join(file.read_bytes() for file in Path(f"{path}-index").iterdir())
    assert b"ada" in raw
    assert not [word for word in (b"Weather", b"birds", b"nature", b"r17") if word in raw]


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_changes_gives_the_same_index(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path, seed: int
) -> None:
    """Adds, edits, forgets, supersessions and vectors that come later, in two processes, with many small files."""
    chance = random.Random(seed)
    stores = [open_store(), open_store()]
    live: set[int] = set()
    for step in range(60):
        store = chance.choice(stores)
        match chance.randrange(6):
            case 0 | 1:
                numbers = [chance.randrange(200) for _ in range(chance.choice([1, 2, 5, 20]))]
                add(store, *dict.fromkeys(numbers))
                live |= set(numbers)
            case 2 if live:
                number = chance.choice(sorted(live))
                store.records.apply([[Put(Record(f"r{number}", f"edited heron {step}", tags=(f"t{step}",)))]])
            case 3 if live:
                number = chance.choice(sorted(live))
                store.records.apply([[Forget(f"r{number}", purge=chance.random() < 0.3)]])
                live.discard(number)
            case 4 if len(live) > 1:
                old, new = chance.sample(sorted(live), 2)
                with contextlib.suppress(SupersessionCycle, UsageError):
                    store.records.apply([[Supersede(f"r{old}", f"r{new}")]])
            case _:
                by_words(store, "heron"), by_vector(store, "x")
    assert any(name.endswith(".segment") for name in files(path))
    for store in stores:
        check_equal(store, path, tmp_path)
    check_equal(open_store(), path, tmp_path)


def test_few_files_stay(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """Many small writes are merged, and what was merged is removed."""
    store = open_store()
    for start in range(0, 400, 20):
        add(store, *range(start, start + 20))
        by_words(store, "heron"), by_vector(store, "x")
    assert len(by_words(store, "number")) == 400
    assert len(files(path)) < 20


# -- crashes --------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from recollect.errors import SupersessionCycle, UsageError
from recollect.stores.sqlite import SqliteStore, manifest as folder, index
from recollect.types import Filter, Put, Record
index.COLD_ROWS = 8
moment, place = sys.argv[1:]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def after(function):
    def wrapped(*arguments):
        function(*arguments)
        die()
    return wrapped
match moment:
    case "before the data": folder.write_segment = die
    case "after the data": folder.write_segment = after(folder.write_segment)
    case "before the manifest": folder.Folder.commit = die
    case "before the rename": folder.Path.replace = die
    case "before the rest is removed": folder.Folder._remove_except = die
store = SqliteStore(place)
store.records.apply([Put(Record(f"k{n}", f"a kestrel {n}"))] for n in range(30))
store.keywords.search(["kestrel"], Filter(), 5)
"""


@pytest.mark.parametrize(
    "moment",
    ["before the data", "after the data", "before the manifest", "before the rename", "before the rest is removed"],
)
def test_killed_writer_leaves_a_valid_index(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path, moment: str
) -> None:
    """At any instant; the next one that writes removes what is left over."""
    store = open_store()
    add(store, *range(40))
    by_words(store, "heron"), by_vector(store, "x")
    store.close()
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, moment, str(path)], check=False, capture_output=True, timeout=120
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    again = open_store()
    assert len(by_words(again, "kestrel")) == 30
    assert len(by_words(again, "number")) == 40
    check_equal(again, path, tmp_path)
    add(again, *range(100, 140))
    by_words(again, "heron"), by_vector(again, "x")
    named = json.loads((Path(f"{path}-index") / "manifest.json").read_text())
    parts = [*named["segments"], *(block for space in named["spaces"].values() for block in space["blocks"])]
    assert files(path) == {"lock", "manifest.json", *(part["file"] for part in parts)}


BUSY = """
import sys
from recollect.stores.sqlite import SqliteStore, index, manifest as folder
from recollect.types import Filter, Put, Record
index.COLD_ROWS, index.WRITTEN_ROWS, folder.WRITTEN_ROWS = 8, 16, 16
store, name = SqliteStore(sys.argv[1]), sys.argv[2]
for number in range(60):
    keys = [f"{name}{number}-{part}" for part in range(3)]
    store.records.apply([[Put(Record(key, f"walrus {name} {key}")) for key in keys]])
    found = store.keywords.search(["walrus", name], Filter(), 1000)
    mine = sum(hit.id.startswith(name) for hit in found.entries)
    assert mine == 3 * (number + 1), (mine, number)
"""


def test_two_processes_add_and_search(open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path) -> None:
    """Both write files, and each finds at once all that it has stored."""
    store = open_store()
    store.spaces.open(SPACE)
    running = [subprocess.Popen([sys.executable, "-c", BUSY, str(path), name], stderr=subprocess.PIPE) for name in "ab"]
    for process in running:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors.decode()
    assert len(by_words(store, "walrus")) == 360
    assert store.keywords.index.folder.damaged() == []
    check_equal(open_store(), path, tmp_path)


# -- other stores in its place ----------------------------------------------------------------------------------


def test_store_restored_from_a_copy_and_continued(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path
) -> None:
    """The index is of another continuation, so it is built again."""
    store = open_store()
    add(store, *range(30))
    by_words(store, "heron"), by_vector(store, "x")
    store._database.empty_log()
    shutil.copy(path, tmp_path / "backup.db")
    add(store, *range(30, 90))
    by_words(store, "heron"), by_vector(store, "x")
    store.close()
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", path)
    restored = open_store()
    assert len(by_words(restored, "number")) == 30
    check_equal(restored, path, tmp_path)
    add(restored, *range(200, 300))
    restored.close()
    continued = open_store()
    assert len(by_words(continued, "number")) == 130
    assert {key for key, _ in by_vector(continued, "x")} == {f"r{n}" for n in (*range(30), *range(200, 300))}
    check_equal(continued, path, tmp_path)


def test_vectors_of_a_restored_store_are_not_confused(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path
) -> None:
    """After it was restored, other records got the vectors with the same numbers."""
    store, written = open_store(), texts(*range(40))
    store.records.apply([Put(Record(f"r{n}", text))] for n, text in enumerate(written))
    halves = [(part, np.array([vector_of(text) for text in part])) for part in (written[:20], written[20:])]
    store.spaces.open(SPACE)
    store._database.empty_log()
    shutil.copy(path, tmp_path / "backup.db")
    store.spaces.open(SPACE).save(*halves[0])
    by_vector(store, "x")
    store.close()
    shutil.copy(tmp_path / "backup.db", path)
    restored = open_store()
    restored.spaces.open(SPACE).save(*halves[1])
    restored.close()
    again = open_store()
    assert {key for key, _ in by_vector(again, "x")} == {f"r{n}" for n in range(20, 40)}
    check_equal(again, path, tmp_path)


def test_vectors_of_a_record_that_came_late(open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path) -> None:
    """Its event has a lower number than others: vectors, too, are built again, in every process."""
    source, store = open_store(tmp_path / "source.db"), open_store()
    add(source, *range(40))
    with source.contents.snapshot() as snapshot:
        parts = list(snapshot.parts())
    records, events = ([part for part in parts if part.kind == kind] for kind in ("record", "history"))
    store.contents.load(records[1:])
    store.contents.load(events[1:])
    written = texts(*range(40))
    store.spaces.open(SPACE).save(written, np.array([vector_of(text) for text in written]), ahead=True)
    by_vector(store, "x")
    store.contents.load(records[:1])
    store.contents.load(events[:1])
    by_words(store, "heron")
    assert len(by_vector(open_store(), "x")) == 40
    check_equal(store, path, tmp_path)


def test_index_of_another_store_is_not_used(open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path) -> None:
    """Both have the same sequence numbers."""
    first, second = open_store(), open_store(tmp_path / "other.db")
    add(first, *range(30))
    add(second, *range(100, 130))
    for store in (first, second):
        by_words(store, "heron"), by_vector(store, "x")
        store.close()
    shutil.rmtree(f"{path}-index")
    shutil.copytree(tmp_path / "other.db-index", f"{path}-index")
    again = open_store()
    assert {key for key, _ in by_words(again, "number")} == {f"r{n}" for n in range(30)}
    assert {key for key, _ in by_vector(again, "x")} == {f"r{n}" for n in range(30)}


def test_read_only_store_without_an_index_is_searched(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path
) -> None:
    """What is missing is built in memory, and nothing is written."""
    store = open_store()
    add(store, *range(40))
    words, near = by_words(store, "heron"), by_vector(store, "x")
    store.close()
    shutil.rmtree(f"{path}-index")
    reader = open_store(read_only=True)
    assert (by_words(reader, "heron"), by_vector(reader, "x")) == (words, near)
    assert not Path(f"{path}-index").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows does not remove a file that is in use")
def test_folder_deleted_while_the_store_is_open(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path
) -> None:
    """Searches go on, and the next write makes a whole index again."""
    store = open_store()
    add(store, *range(40))
    words, near = by_words(store, "heron"), by_vector(store, "x")
    shutil.rmtree(f"{path}-index")
    assert (by_words(store, "heron"), by_vector(store, "x")) == (words, near)
    add(store, *range(40, 80))
    by_words(store, "heron"), by_vector(store, "x")
    assert store.keywords.index.folder.damaged() == []
    check_equal(store, path, tmp_path)
    check_equal(open_store(), path, tmp_path)


def test_full_disk_is_no_error(
    open_store: Callable[..., SqliteStore], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index stays in memory, and is written later. Attempts leave no parts of files, which would fill the disk."""
    store = open_store()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        add(store, *range(40))
        assert len(by_words(store, "number")) == len(by_vector(store, "x")) == 40
        assert files(path) == {"lock"}
    store.keywords.index._retry_at = 0.0  # as if time had passed
    add(store, *range(40, 80))
    assert len(by_words(store, "number")) == len(by_vector(store, "x")) == 80
    assert any(name.endswith(".vectors") for name in files(path))
    check_equal(store, path, tmp_path)


SECRET = "zwibble frotz"


def search(*stores: SqliteStore) -> None:
    """Let both indexes follow."""
    for store in stores:
        by_words(store, "heron"), by_vector(store, "x")


def add_secret(store: SqliteStore) -> None:
    """Store the record that is purged, between others."""
    add(store, *range(40))
    store.records.apply([[Put(Record("secret", SECRET, scope=Scope(user="mallory")))]])
    store.spaces.open(SPACE).save([SECRET], vector_of(SECRET)[None])
    add(store, *range(40, 80))
    search(store)


def held(store: SqliteStore, path: Path) -> tuple[bool, bool]:
    """Whether a term and the vector of the secret are in the files."""
    place, terms = Path(f"{path}-index"), set(store.keywords.analyzer.hashed(SECRET)[0])
    hashes = {int(t) for file in place.glob("*.segment") for t in map_segment(file, file.stat().st_size).terms}
    raw = vector_of(SECRET).tobytes()
    return bool(terms & hashes), any(raw in file.read_bytes() for file in place.glob("*.vectors"))


def test_purge_leaves_no_vector_and_no_term_in_the_files(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """Other records stay; the name of a user who has none left goes too."""
    store = open_store()
    add_secret(store)
    assert held(store, path) == (True, True)
    store.records.apply([[Forget("secret", purge=True)]])
    assert store.scrub() is None
    assert held(store, path) == (False, False)
    assert not any(b"mallory" in file.read_bytes() for file in Path(f"{path}-index").iterdir())
    assert len(by_words(store, "number")) == len(by_vector(store, "x")) == 80


def test_files_that_a_purge_removes_are_gone_after_a_power_loss(
    open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folder is synced once they have been removed."""
    store, steps = open_store(), list[str]()
    add_secret(store)
    sync, unlink = manifest.sync, Path.unlink
    monkeypatch.setattr(manifest, "sync", lambda path: (steps.append("sync"), sync(path)))
    monkeypatch.setattr(Path, "unlink", lambda path, **options: (steps.append(path.suffix), unlink(path, **options)))
    store.records.apply([[Forget("secret", purge=True)]])
    assert store.scrub() is None
    assert {".segment", ".vectors"} <= set(steps)
    assert "sync" in steps[steps.index(".segment") : steps.index(".vectors")]
    assert steps[-1] == "sync"


def full(*_: Any) -> None:
    """Take the place of a function that writes: the disk is full."""
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("failing", ["write_segment", "write_block", "commit"])
def test_purge_warns_of_files_that_cannot_be_rewritten(
    open_store: Callable[..., SqliteStore], path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Also where the files were up to date before, or the segments could be rewritten and the vectors not."""
    monkeypatch.setattr(manifest, "FACTOR", 50)
    store = open_store()
    add_secret(store)
    store.records.apply([[Forget("secret", purge=True)]])
    add(store, *range(80, 120))
    search(store)
    commit, commits = manifest.Folder.commit, list[manifest.Manifest]()

    def fail_second(folder: manifest.Folder, new: manifest.Manifest) -> None:
        commits.append(new)
        commit(folder, new) if len(commits) == 1 else full()

    with monkeypatch.context() as patched:
        if failing == "commit":
            patched.setattr(manifest.Folder, "commit", fail_second)
        else:
            patched.setattr(manifest, failing, full)
        assert "could not be rewritten" in (store.scrub() or "")
        assert any(held(store, path))
    store.keywords.index._retry_at = 0.0  # as if time had passed
    assert store.scrub() is None
    assert held(store, path) == (False, False)


def test_purged_terms_do_not_come_back_from_another_process(
    open_store: Callable[..., SqliteStore], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that still has the removed files mapped uses the new ones, though these are of the same change."""
    monkeypatch.setattr(manifest, "FACTOR", 50)
    first, second = open_store(), open_store()
    add_secret(first)
    search(second)
    second.records.apply([[Forget("secret", purge=True)]])
    add(second, *range(80, 120))
    search(second)
    assert first.scrub() is None
    assert held(first, path) == (False, False)
    add(second, *range(120, 160))
    search(second)
    assert held(second, path) == (False, False)


def test_purge_removes_files_that_no_manifest_names(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """A process that is killed before its first manifest leaves such files."""
    store = open_store()
    add_secret(store)
    store.close()
    (Path(f"{path}-index") / "manifest.json").unlink()
    again = open_store()
    again.records.apply([[Forget("secret", purge=True)]])
    assert again._index.scrub() is None
    assert held(again, path) == (False, False)


# -- what a process holds ---------------------------------------------------------------------------------------


def test_reader_uses_the_files_that_others_write(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """So a read-only process does not hold in memory all that was added since it began."""
    writer = open_store()
    add(writer, *range(20))
    search(writer)
    reader = open_store(read_only=True)
    for start in range(20, 200, 20):
        add(writer, *range(start, start + 20))
        search(writer, reader)
    with reader._database.read() as connection:
        assert reader._index.view(connection).unwritten == 0
    assert reader.spaces.open(SPACE)._stack.unwritten == 0
    assert by_words(reader, "heron", "ice") == by_words(writer, "heron", "ice")
    assert by_vector(reader, "x") == by_vector(writer, "x")


def test_index_of_one_long_text_is_written(open_store: Callable[..., SqliteStore], path: Path) -> None:
    """So the next process need not analyse it again; a short text stays in memory."""
    store = open_store()
    add(store, 1)
    search(store)
    assert not Path(f"{path}-index").exists()
    store.records.apply([[Put(Record("long", "heron " * (index.COLD_BYTES // 6 + 1)))]])
    by_words(store, "heron")
    with open_store()._database.read() as connection:
        manifest_read = manifest.Folder(Path(f"{path}-index")).read()
        assert manifest_read is not None
        assert manifest_read.seq == index.state_of(connection).seq


def test_views_of_earlier_changes_are_released(open_store: Callable[..., SqliteStore]) -> None:
    """A view may hold arrays of a million records, and a search after each add makes a new one."""
    store, views = open_store(), list[weakref.ref[View]]()
    for number in range(60):
        add(store, number)
        search(store)
        with store._database.read() as connection:
            views.append(weakref.ref(store._index.view(connection)))
    gc.collect()
    assert sum(view() is not None for view in views) <= index.RECENT_VIEWS + 1


# -- the first of many ------------------------------------------------------------------------------------------


def test_first_few_are_the_first_of_all(
    open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most scores tie, in many segments, and however the postings of few visible records are read."""
    store, ada = open_store(), Filter(scope=Scope(user="ada"))
    for start in range(0, 400, 40):
        add(store, *range(start, start + 40), scope=Scope(user="ada") if start == 200 else Scope())
        by_words(store, "heron")
    for words in (("heron", "ice"), ("the", "7", "nowhere"), ("boat",)):
        every = by_words(store, *words)
        assert len(every) >= 100
        for depth in (1, 5, 20, 99):
            assert by_words(store, *words, depth=depth) == every[:depth]
        monkeypatch.setattr(keywords, "SEARCH_FACTOR", 0)
        assert by_words(store, *words) == every
        looked_up = by_words(store, *words, where=ada)
        monkeypatch.setattr(keywords, "SEARCH_FACTOR", 10**9)
        assert by_words(store, *words, where=ada) == looked_up


# -- exact vectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["random", "clusters", "sparse", "near duplicates"])
@pytest.mark.parametrize("share", [1, 2, 40])
def test_scan_in_eight_bits_equals_the_exact_product(
    open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch, shape: str, share: int
) -> None:
    """Ids and rounded cosines of the first hundred, whatever the vectors look like and however many are visible."""
    monkeypatch.undo()
    monkeypatch.setattr(vectors, "FEW", 30)
    monkeypatch.setattr(vectors, "SPARING_FROM", 3000 if shape == "random" else 10**9)
    rng, count = np.random.default_rng(7), 3000
    matrix = rng.standard_normal((count, DIMENSION)).astype(np.float32)
    if shape == "clusters":
        matrix = 0.1 * matrix + rng.standard_normal((5, DIMENSION)).astype(np.float32)[np.arange(count) % 5]
    elif shape == "sparse":
        matrix *= rng.random((count, DIMENSION)) < 0.1
        matrix[:, 0] += 0.01
    elif shape == "near duplicates":
        matrix = matrix[np.arange(count) // 300] + 1e-6 * matrix
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    store = open_store()
    written = [f"text {n}" for n in range(count)]
    store.records.apply(
        [[Put(Record(f"r{n:04}", text, scope=Scope(user=f"u{n % share}"))) for n, text in enumerate(written)]]
    )
    space = store.spaces.open(SPACE)
    space.save(written, matrix)
    where = Filter(scope=Scope(user="u0"))
    times = {record.id: record.time for record in store.records.list(EVERYONE, limit=count)}
    for query in (matrix[0], matrix[5] + 0.05 * matrix[9], rng.standard_normal(DIMENSION).astype(np.float32)):
        exact = (matrix.astype(np.float64) @ query.astype(np.float64)).round(6)
        order = sorted(range(0, count, share), key=lambda n: (-exact[n], -times[f"r{n:04}"].timestamp(), n))
        found = space.search(query, where, 100).entries
        assert [(hit.id, hit.score) for hit in found] == [(f"r{n:04}", exact[n]) for n in order[:100]]


@pytest.mark.parametrize("shape", ["like those of a model", "of another kind later", "random"])
@pytest.mark.parametrize("share", [1, 2, 40])
def test_of_very_many_vectors_nearly_all_of_the_nearest_are_found(
    open_store: Callable[..., SqliteStore], monkeypatch: pytest.MonkeyPatch, shape: str, share: int
) -> None:
    """By the heads of vectors, where these hold most of them; cosines are exact, and so are filters."""
    monkeypatch.undo()
    for name, value in {"FEW": 30, "SPARING_FROM": 4000, "MANY": 3000, "LIKELY": 5, "BATCH_ROWS": 2048}.items():
        monkeypatch.setattr(vectors, name, value)
    monkeypatch.setattr(blocks, "LEARNED_ROWS", 1000)
    rng, count, dimension = np.random.default_rng(7), 6144, 192
    falling = np.ones(dimension) if shape == "random" else 0.96 ** np.arange(dimension)
    turned = [np.linalg.qr(rng.standard_normal((dimension, dimension)))[0] for _ in range(2)]
    later = (np.arange(count) >= 4096) & (shape == "of another kind later")
    matrix = rng.standard_normal((count, dimension)) * falling
    matrix = np.where(later[:, None], matrix @ turned[1], matrix @ turned[0]).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    store, written = open_store(), [f"text {n}" for n in range(count)]
    scopes = [Scope(user=f"u{n % share}") for n in range(count)]
    pairs = zip(written, scopes, strict=True)
    store.records.apply([[Put(Record(f"r{n:04}", text, scope=scope)) for n, (text, scope) in enumerate(pairs)]])
    space = store.spaces.open(VectorSpace("wide@1", "wide", dimension))
    space.save(written, matrix)
    shared = []
    for number in range(0, count, 300):
        query = matrix[number] + 0.1 * rng.standard_normal(dimension).astype(np.float32)
        exact = (matrix.astype(np.float64) @ query.astype(np.float64)).round(6)
        best = sorted(range(0, count, share), key=lambda n: -exact[n])[:50]
        found = {hit.id: hit.score for hit in space.search(query, Filter(scope=Scope(user="u0")), 50).entries}
        assert found == {f"r{n:04}": exact[n] for n in range(count) if f"r{n:04}" in found}
        assert len(found) == 50
        shared.append(sum(f"r{n:04}" in found for n in best) / 50)
    assert np.mean(shared) >= (1.0 if share > 1 else 0.99)
    tails = {block.tail.shape[1] for block in space._stack.blocks}
    assert tails == ({0} if shape == "random" else {128})
    assert len({block.axes.key for block in space._stack.blocks}) == (2 if shape == "of another kind later" else 1)


def test_a_segment_tells_the_usual_origin_by_the_kind() -> None:
    """A row without an origin is of a file if it is a chunk, and of the user if it is a fact."""
    rows = [
        (number, kind, "", "heron", None, None, None, 0.5, None, 1, None, None, None, b"f" * 16, None, 0, None)
        for number, kind in enumerate(("fact", "chunk", "fact"), 1)
    ]
    segment = build(rows, Analyzer())
    assert [segment.names["origin"][code - 1] for code in segment.origin] == ["user", "file", "user"]


@pytest.mark.skipif(not hasattr(os, "pread"), reason="the system cannot read at a place of a file")
def test_words_that_are_read_equal_words_that_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is not mapped for the words of a few facts; its descriptor is closed with the segment."""
    rows = [
        (number, "fact", "", text, None, None, None, 0.5, None, 1, None, None, None, b"f" * 16, None, 0, None)
        for number, text in enumerate(("the heron eats one fish", "", "the pond is green, the heron grey"), 1)
    ]
    size, _ = write_segment(segment := build(rows, Analyzer()), tmp_path / "file")
    places = np.array([2, 0, 1])
    assert segment.words_at(places)[1].tolist() == [6, 5, 0]
    mapped = map_segment(tmp_path / "file", size)
    monkeypatch.setattr(segments, "SPARING_BYTES", 1)
    read = map_segment(tmp_path / "file", size)
    assert (mapped.number, read.number >= 0) == (-1, True)
    for one, other, third in zip(*(each.words_at(places) for each in (read, mapped, segment)), strict=True):
        assert one.tolist() == other.tolist() == third.tolist()
    number = read.number
    del read
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)

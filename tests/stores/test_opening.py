"""Opening a store: what is refused and left untouched, what is created, and concurrent opening."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.cli import main
from recollect.config import Settings
from recollect.errors import RecollectError, StoreError, UsageError
from recollect.stores import open_store
from recollect.stores.sqlite import SqliteStore, schema
from recollect.stores.sqlite.database import _prepare, check_engine, check_owner

OpenMemory = Callable[..., Memory]


def refused(path: object, match: str) -> None:
    """Opening fails with our error, which says what and what next, and leaves the folder's files as they were."""
    with pytest.raises(StoreError, match=match) as caught:
        SqliteStore(path)
    assert caught.value.message
    assert caught.value.hint


# -- what is not a store ------------------------------------------------------------------------------------


def test_folder_is_refused(tmp_path: Path) -> None:
    """Nothing is put into it."""
    refused(tmp_path, "is a folder")
    assert list(tmp_path.iterdir()) == []


def test_folder_without_access_is_a_store_that_cannot_be_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command says so, also one that only reads."""
    exists = Path.exists

    def refuse(self: Path) -> bool:
        if self == path:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(self)

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setenv("RECOLLECT_STORE", str(path))
    for words in (["search", "heron"], ["status"]):
        assert main(words) == 3
        assert f"{path} cannot be opened: Permission denied" in capsys.readouterr().err
    main(["doctor", "--json"])
    (failure,) = (one for one in json.loads(capsys.readouterr().out)["checks"] if one["state"] == "failure")
    assert failure["message"] == f"{path} cannot be opened: Permission denied"


def test_another_programs_database_is_left_untouched(path: Path) -> None:
    """It is refused, and has the same bytes after."""
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE bookmarks (url TEXT)")
    theirs.execute("INSERT INTO bookmarks VALUES ('https://example.org')")
    theirs.commit()
    theirs.close()
    before = path.read_bytes()
    refused(path, "another program")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


OWNER = """
import os, sqlite3, sys
theirs = sqlite3.connect(sys.argv[1])
theirs.execute("PRAGMA journal_mode=WAL")
theirs.execute("CREATE TABLE bookmarks (url TEXT)")
theirs.commit()
print("open", flush=True)
sys.stdin.readline()
theirs.execute("INSERT INTO bookmarks VALUES ('x')")
theirs.commit()
print(theirs.execute("SELECT count(*) FROM bookmarks").fetchone()[0], flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_another_programs_open_database_is_left_untouched(path: Path, start: Any) -> None:
    """While another process has it open in WAL mode, and after that process died and left its log."""
    owner = start("-c", OWNER, path)

    def files() -> dict[str, bytes]:
        return {name: path.with_name(name).read_bytes() for name in (path.name, f"{path.name}-wal")}

    assert owner.stdout.readline() == "open\n"
    before = files()
    refused(path, "another program")
    assert files() == before
    owner.stdin.write("\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == "1\n"
    owner.stdin.write("\n")
    owner.stdin.flush()
    owner.wait(30)
    before = files()
    refused(path, "another program")
    assert files() == before


@pytest.mark.parametrize(
    "content", [b"# Shopping\n- milk\n" * 400, b"x\n", b"\x00" * 4096, b"SQLite format 3\x00 but not really"]
)
def test_text_file_is_left_untouched(path: Path, content: bytes) -> None:
    """It is refused, and has the same bytes after."""
    path.write_bytes(content)
    refused(path, "not a Recollect store")
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_damaged_store_is_reported(path: Path, open_memory: OpenMemory) -> None:
    """Overwritten bytes give a StoreError, never a wrong answer or another exception."""
    with open_memory(embedder="none") as memory:
        memory.add_many([{"text": f"text {i} " * 50} for i in range(200)])
    raw = bytearray(path.read_bytes())
    raw[4096 : len(raw) - 4096] = random.Random(1).randbytes(len(raw) - 8192)
    path.write_bytes(raw)
    with pytest.raises(StoreError), Memory.open(path, embedder="none", settings=Settings()) as memory:
        memory.list()


@pytest.mark.parametrize(
    "place",
    ["below-a-file/memory.db", "nul\x00byte.db", "n" * 300 + ".db", "~nobody-of-this-name/memory.db", "caf\udce9.db"],
)
def test_impossible_path_is_refused(tmp_path: Path, place: str) -> None:
    """Below a file, with a NUL, too long, in an unknown home, with undecodable bytes: a Recollect error."""
    (tmp_path / "below-a-file").write_text("a file")
    refused(place if place.startswith("~") else f"{tmp_path}/{place}", ".")
    assert (tmp_path / "below-a-file").read_text() == "a file"


@pytest.mark.parametrize("place", ["mysql://host/db", "http://example.org/x.db", "foo://"])
def test_unknown_kind_of_store_is_refused(place: str) -> None:
    """A URL with an unknown scheme."""
    with pytest.raises(UsageError, match="unknown kind of store"):
        open_store(place)


def test_unknown_language_is_refused(path: Path) -> None:
    """A language without a stemmer; the store can be opened with another."""
    with pytest.raises(RecollectError, match="klingon"):
        SqliteStore(path, language="klingon")
    SqliteStore(path, language="german").close()


# -- what is made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [False, True])
def test_empty_file_is_refused_and_unchanged(path: Path, open_memory: OpenMemory, log: bool) -> None:
    """It may be the remains of a store; once it is deleted, a new store can be made."""
    path.touch()
    if log:
        Path(f"{path}-wal").touch()
    refused(path, "is empty: there is no store in it")
    assert path.read_bytes() == b""
    path.unlink()
    with open_memory() as memory:
        memory.add("first words")
        assert [record.text for record in memory.list()] == ["first words"]


def test_link_to_a_missing_file_creates_the_store_there(tmp_path: Path, open_memory: OpenMemory) -> None:
    """The link stays a link."""
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with open_memory(tmp_path / "link.db") as memory:
        memory.add("behind the link")
    assert (tmp_path / "link.db").is_symlink()
    assert {file.name for file in tmp_path.iterdir()} == {"link.db", "real.db"}


def test_new_store_leaves_nothing_else_in_its_folder(path: Path, open_memory: OpenMemory) -> None:
    """It is created under a temporary name, which is removed."""
    open_memory().close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_store_is_created_without_hard_links(
    path: Path, open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a memory stick: the new file is renamed instead."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("recollect.stores.sqlite.database.os.link", refuse)
    with open_memory() as memory:
        memory.add("on a memory stick")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# -- who may read it ----------------------------------------------------------------------------------------

MODES = """
import os, stat, sys
os.umask(int(sys.argv[2], 8))
from recollect import Memory
from recollect.config import Settings
with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
    memory.add_many({"text": f"private note {n}"} for n in range(50))
    memory.search("private")
    for folder, _, names in os.walk(sys.argv[3]):
        for place in (folder, *(os.path.join(folder, name) for name in names)):
            print(os.path.relpath(place, sys.argv[3]), f"{stat.S_IMODE(os.stat(place).st_mode):o}")
"""

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX's")


@posix
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files are read from /proc")
def test_new_store_survives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content is synced before it has its name, and then the names of the store and of its new folders are."""
    steps: list[str] = []
    link, fsync = os.link, os.fsync

    def named(file: Any) -> str:
        return str(Path(f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}").readlink())

    monkeypatch.setattr(os, "fsync", lambda file: (steps.append(named(file)), fsync(file)))
    monkeypatch.setattr(os, "link", lambda old, new: (steps.append(f"link {old}"), link(old, new)))
    SqliteStore(tmp_path / "new" / "folder" / "memory.db").close()
    parents, content, name, folder = sorted(steps[:2]), steps[2], steps[3], steps[4]
    assert parents == [str(tmp_path), str(tmp_path / "new")]
    assert name == f"link {content}"
    assert folder == str(tmp_path / "new" / "folder")


@pytest.mark.parametrize("umask", ["000", "022"])
def test_new_store_is_private(tmp_path: Path, run_python: Any, umask: str) -> None:
    """The file, its log and a new folder, whatever the umask; an existing folder is unchanged."""
    tmp_path.chmod(0o755)
    lines = run_python(MODES, tmp_path / "made" / "memory.db", umask, tmp_path).splitlines()
    assert dict(line.rsplit(" ", 1) for line in lines) == {
        ".": "755", "made": "700", "made/memory.db": "600", "made/memory.db-wal": "600", "made/memory.db-shm": "600",
    }  # fmt: skip


@posix
def test_mode_of_an_existing_store_stays(path: Path, open_memory: OpenMemory) -> None:
    """A group's read right stays; the log has the same mode."""
    open_memory().close()
    path.chmod(0o640)
    with open_memory() as memory:
        memory.add("shared with a group")
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o640}


def test_missing_folders_are_created(tmp_path: Path, open_memory: OpenMemory) -> None:
    """The folders above a new store come into being with it."""
    place = tmp_path / "a" / "b c" / "ü" / "memory.db"
    with open_memory(place) as memory:
        memory.add("x")
    assert place.is_file()


def test_url_names_the_same_file_as_its_path(path: Path) -> None:
    """`sqlite:///…` with percent signs decoded is the path."""
    place = path.parent / "with space.db"
    open_store(f"sqlite://{place.parent}/with%20space.db").close()
    assert place.is_file()


def test_memory_stores_are_separate_and_temporary(open_memory: OpenMemory) -> None:
    """Each `:memory:` is its own store, and its folder is removed on close."""
    first, second = open_memory(":memory:"), open_memory(":memory:")
    first.add("only here")
    assert second.list() == []
    folder = first.store._database.path.parent
    assert folder.is_dir()
    first.close()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["notes [1].db", "100%.db", "a?b.db", "#x.db", "日記.db"])
def test_store_of_any_name_works(tmp_path: Path, open_memory: OpenMemory, name: str) -> None:
    """Special characters of URLs and globs have no meaning in a file name."""
    with open_memory(tmp_path / name) as memory:
        memory.add("x")
        assert memory.status()["bytes"] >= (tmp_path / name).stat().st_size > 0
    assert (tmp_path / name).is_file()


# -- versions -----------------------------------------------------------------------------------------------


def test_store_of_a_later_version_is_refused(path: Path, open_memory: OpenMemory) -> None:
    """It is not touched, and the hint says to upgrade."""
    open_memory().close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="99") as caught:
        SqliteStore(path)
    assert "upgrade" in caught.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.8.0", "2.99.99"])
def test_sqlite_that_can_lose_writes_is_refused(version: str) -> None:
    """The message names the version found, the one needed, and how to get it."""
    with pytest.raises(StoreError, match=version) as caught:
        check_engine(version)
    assert "3.51.3" in caught.value.message
    assert "apsw" in caught.value.hint


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "4.0.0", apsw.sqlite_lib_version()])
def test_safe_sqlite_is_accepted(version: str) -> None:
    """The oldest safe one, later ones, and the installed one."""
    check_engine(version)


MIGRATE = """
import sys, time
from recollect.stores.sqlite import SqliteStore, schema
slow = '''
    CREATE TABLE added (n INTEGER PRIMARY KEY, blob TEXT) STRICT;
    ALTER TABLE records ADD COLUMN added INTEGER;
    WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 200000)
        INSERT INTO added SELECT n, 'row ' || n FROM c;
    UPDATE records SET added = 1;
'''
schema.MIGRATIONS = (*schema.MIGRATIONS, ("a slow one", slow))
print("go", flush=True)
SqliteStore(sys.argv[1]).close()
print("done", flush=True)
"""


@pytest.mark.ci
def test_killed_migration_leaves_the_old_or_the_new_version(
    path: Path, open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    """Killed at any moment, the store is intact and opens."""
    with open_memory(embedder="none") as memory:
        memory.add_many([{"text": f"text {i}", "id": str(i)} for i in range(100)])
    old = len(schema.MIGRATIONS)
    versions = []
    chance = random.Random(4)
    for _ in range(6):
        copy = path.parent / "copy.db"
        shutil.copy(path, copy)
        process = start("-c", MIGRATE, copy)
        assert process.stdout.readline() == "go\n"
        time.sleep(chance.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        connection = apsw.Connection(str(copy))
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        version = connection.pragma("user_version")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        assert ("added" in tables) == (version == old + 1)
        assert connection.execute("SELECT count(*) FROM migrations").get == version
        if version == old + 1:
            assert connection.execute("SELECT count(*) FROM records WHERE added = 1").get == 100
            assert connection.execute("SELECT count(*) FROM added").get == 200_000
        connection.close()
        versions.append(version)
        with monkeypatch.context() as patch:
            patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("a quick one", "CREATE TABLE quick (n)")))
            with open_memory(copy, embedder="none") as memory:
                assert len(memory.list(limit=200)) == 100
        for file in path.parent.glob("copy.db*"):
            file.unlink()
    assert old in versions, "at least one was killed before its end"


def test_killed_creation_leaves_no_store_or_a_whole_one(tmp_path: Path, open_memory: OpenMemory, start: Any) -> None:
    """Nothing in between."""
    script = (
        "import sys; from recollect.stores.sqlite import SqliteStore; print('go', flush=True)\n"
        "for i in range(1000): SqliteStore(f'{sys.argv[1]}/{i}.db').close()"
    )
    process = start("-c", script, tmp_path)
    assert process.stdout.readline() == "go\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGKILL)
    process.wait()
    made = sorted(tmp_path.glob("*.db"), key=lambda file: int(file.stem))
    assert made
    with open_memory(made[-1]) as memory:
        memory.add("goes on")
        assert [result.record.text for result in memory.search("goes on").results] == ["goes on"]


# -- read-only ----------------------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError
def look(place, first):
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        answer = memory.search("bittern in the reeds")
        found = "|".join(result.record.text for result in answer.results)
        print(first, answer.trace.mode, found, *answer.trace.warnings, sep="\\t")
        writes = (lambda: memory.add("new"), lambda: memory.forget("kept"), lambda: memory.supersede("kept", text="x"))
        for attempt in writes:
            try:
                attempt()
                print("wrote")
            except RecollectError as error:
                print(type(error).__name__, error.message, error.hint, sep="\\t")
# Everything is loaded first: a user without rights may not read Python's own files here.
warm = Memory.open(":memory:", embedder="hashing:64", settings=Settings())
warm.add("x", id="kept"); warm.search("x"); warm.supersede("kept", text="y"); warm.close()
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
look(sys.argv[1], "found")
"""


@pytest.mark.parametrize("state", ["complete", "one without a vector", "without vectors", "empty"])
def test_read_only_store_is_searched_and_refuses_writes(
    path: Path, open_memory: OpenMemory, sealed: Callable[[Path], Path], run_python: Any, state: str
) -> None:
    """By a process without write permission (as root, one that has become `nobody`)."""
    texts = {"complete": 2, "one without a vector": 2, "without vectors": 2, "empty": 0}[state]
    for n in range(texts):
        embedder = "none" if state == "without vectors" or (state == "one without a vector" and n) else "hashing:64"
        with open_memory(embedder=embedder) as memory:
            memory.add(f"bittern {n} stands in the reeds", id=("kept", "other")[n])
    open_memory().close()
    place = sealed(path)
    before = place.read_bytes()
    first, *writes = run_python(AS_NOBODY, place).splitlines()
    assert len(writes) == 3
    for line in writes[: 3 if texts else 1]:
        name, message, hint = line.split("\t")
        assert (name, "read-only" in message, bool(hint)) == ("StoreError", True, True)
    assert "wrote" not in writes
    _, mode, found, *warnings = first.split("\t")
    assert len(found.split("|") if found else []) == texts
    if state in ("complete", "one without a vector"):
        assert mode == "hybrid"
        assert bool(warnings) == (state != "complete")
    assert place.read_bytes() == before
    assert [file.name for file in place.parent.iterdir()] == ["memory.db"]


# -- closed, forked, many at once ---------------------------------------------------------------------------

USES: dict[str, Callable[[Memory], object]] = {
    "add": lambda memory: memory.add("more"),
    "add_many": lambda memory: memory.add_many([{"text": "more"}]),
    "get": lambda memory: memory.get("k"),
    "list": lambda memory: memory.list(),
    "search": lambda memory: memory.search("text"),
    "search by words": lambda memory: memory.search("text", sources=["keyword"]),
    "history": lambda memory: memory.history("k"),
    "forget": lambda memory: memory.forget("k"),
    "supersede": lambda memory: memory.supersede("k", text="other"),
    "embed": lambda memory: memory.embed(),
    "status": lambda memory: memory.status(),
}


@pytest.mark.parametrize("use", USES)
def test_closed_memory_raises(memory: Memory, use: str) -> None:
    """Every use after `close` is a StoreError that says so; closing again is harmless."""
    memory.add("some text", id="k")
    memory.search("text")
    memory.close()
    memory.close()
    with pytest.raises(StoreError, match="has been closed"):
        USES[use](memory)


FORKED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from recollect import Memory
from recollect.config import Settings
from recollect.errors import RecollectError
memory = Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings())
memory.add("some text", id="k")
memory.search("text")
child = os.fork()
if child == 0:
    signal.alarm(10)  # a child that hangs is ended, and its answer is missing
    try:
        eval(sys.argv[2])(memory)
        print("no error", flush=True)
    except RecollectError as error:
        print(type(error).__name__, error.message, flush=True)
    memory.close()
    os._exit(0)
os.waitpid(child, 0)
memory.add("the parent goes on")
print(len(memory.search("parent text").results), flush=True)
memory.close()
"""


@pytest.mark.parametrize(
    "use", ["lambda m: m.add('x')", "lambda m: m.get('k')", "lambda m: m.search('text')", "lambda m: m.embed()"]
)
def test_memory_used_after_a_fork_raises(path: Path, run_python: Any, use: str) -> None:
    """In the child every use is a StoreError that names the fork, never a hang; the parent goes on."""
    *child, parent = run_python(FORKED, path, use).splitlines()
    assert len(child) == 1, "the child hung until it was ended"
    assert child[0].startswith("StoreError")
    assert "another process" in child[0]
    assert parent == "2"


SCANNED = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from recollect import Memory
from recollect.config import Settings
from recollect.stores.sqlite import blocks, vectors

blocks.PIECE_ROWS = blocks.SHARED_ROWS = 2
vectors.FEW = 0  # as for more vectors than one thread scans

def search():
    with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
        return len(memory.search("heron", limit=3, fetch_k=3).results)

with Memory.open(sys.argv[1], embedder="hashing:64", settings=Settings()) as memory:
    memory.add_many([{"text": f"heron {number}"} for number in range(20)])
assert search() == 3
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(0 if search() == 3 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_store_opened_after_a_fork_scans_vectors(path: Path, run_python: Any) -> None:
    """The threads that scan belong to the parent, so the child starts its own."""
    run_python(SCANNED, path)


CREATE = """
import fcntl, sys
from recollect import Memory
from recollect.config import Settings
folder, me, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
Memory.open(":memory:", embedder="hashing:64", settings=Settings()).close()
for n in range(rounds):
    print("ready", flush=True)
    fcntl.flock(gate := open(f"{folder}/gate{n}"), fcntl.LOCK_SH)  # all wait here until the test opens it
    with Memory.open(f"{folder}/{n}/new/memory.db", embedder="hashing:64", settings=Settings()) as memory:
        memory.add(f"process {me} was here", id=me)
        assert memory.search(f"process {me} was here").results
print("end", flush=True)
"""


def test_store_being_created_is_not_refused_as_foreign(path: Path) -> None:
    """Another process creates the store between two statements of the check."""
    connection = apsw.Connection(str(path))
    statements: list[str] = []

    def overtaken(_cursor: object, sql: str, _values: object) -> bool:
        statements.append(sql)
        if len(statements) == 2:
            other = apsw.Connection(str(path))
            _prepare(other)
            other.close()
        return True

    connection.exec_trace = overtaken
    check_owner(connection, path)
    connection.close()
    assert statements


@pytest.mark.ci
def test_sixteen_processes_create_one_store(tmp_path: Path, open_memory: OpenMemory, start: Any) -> None:
    """In three rounds all succeed, and every record of each is there."""
    with contextlib.ExitStack() as files:
        gates = [files.enter_context((tmp_path / f"gate{n}").open("w")) for n in range(3)]
        for gate in gates:
            fcntl.flock(gate, fcntl.LOCK_EX)
        workers = [start("-c", CREATE, tmp_path, me, 3) for me in range(16)]
        for gate in gates:
            assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 16
            gate.close()
    assert [worker.stdout.readline() for worker in workers] == ["end\n"] * 16
    assert [worker.wait(30) for worker in workers] == [0] * 16
    for n in range(3):
        with open_memory(tmp_path / str(n) / "new" / "memory.db") as memory:
            assert {record.id for record in memory.list()} == {str(me) for me in range(16)}
            assert memory.status()["vectors"] == {"embedder": "hashing:64", "dimension": 64, "with": 16, "without": 0}


def test_writer_waits_for_a_stopped_writer(path: Path, memory: Memory) -> None:
    """Nothing is lost or refused."""
    blocker = apsw.Connection(str(path))
    blocker.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.5, blocker.execute, ("COMMIT",))
    timer.start()
    started = time.monotonic()
    memory.add("waited for its turn")
    assert time.monotonic() - started > 0.3
    timer.join()
    blocker.close()
    assert [record.text for record in memory.list()] == ["waited for its turn"]


def test_closed_store_can_be_moved(path: Path, open_memory: OpenMemory) -> None:
    """It is one file with everything."""
    with open_memory() as memory:
        memory.add("moves house")
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208
    moved = path.rename(path.with_name("moved.db"))
    with open_memory(moved) as memory:
        assert [result.record.text for result in memory.search("house").results] == ["moves house"]

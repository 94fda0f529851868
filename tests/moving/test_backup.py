"""Backups: what is in the file, what it may replace, how dated ones are rotated, and what a failure leaves behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory, Scope, moving
from recollect.config import Settings
from recollect.errors import FailedError, Forbidden, StoreError, UsageError
from recollect.moving import archive
from recollect.moving.backups import backup, restore
from recollect.stores.sqlite.schema import APPLICATION_ID, MIGRATIONS


def content(file: Path) -> bytes:
    """What a backup holds, before it was compressed."""
    with zipfile.ZipFile(file) as opened:
        return opened.read(archive.read_manifest(file).content)


def exported(place: Path | str, folder: Path) -> bytes:
    """The export of a store."""
    file = folder / "exported.jsonl"
    moving.export(place, file)
    try:
        return file.read_bytes()
    finally:
        file.unlink()


def test_lost_disk(tmp_path: Path, run: Any) -> None:
    """A newcomer indexes notes, adds facts, backs up, loses the store, restores it, and finds the same as before."""
    notes, store, file = tmp_path / "notes", tmp_path / "data" / "memory.db", tmp_path / "usb" / "mine.zip"
    for folder in (notes, file.parent):
        folder.mkdir()
    for name, text in {"tea.md": "Ada drinks green tea.", "key.md": "The spare key is under the blue pot."}.items():
        (notes / name).write_text(f"# {name}\n\n{text}\n")
    flags = ("--store", store, "--embedder", "hashing:64")

    def command(*words: object) -> bytes:
        done = run(*flags, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("index", notes)
    command("add", "Ada lives in Lisbon.", "--id", "home")
    command("edit", "home", "--text", "Ada lives in Porto.")
    command("add", "Ada has a cat.", "--id", "cat")
    command("forget", "cat")

    def answers() -> list[Any]:
        found = [json.loads(command("search", words, "--json"))["results"] for words in ("where is the key", "Porto")]
        return [*found, *(json.loads(command("history", key, "--json")) for key in ("home", "cat"))]

    before = answers()
    assert command("backup", file).startswith(f"wrote {file}, ".encode())
    shutil.rmtree(store.parent)
    restored = command("restore", file)
    assert b"restored 4 records, 6 history entries" in restored, restored
    assert answers() == before
    assert b"unchanged" in command("index", notes)


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
def test_restored_store_has_the_same_content(
    rich: Path, new_place: Callable[[], str], target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """From a file or PostgreSQL to a file or PostgreSQL: every record, event, vector and state, byte for byte."""
    source = new_place()
    moving.copy(rich, source)
    to = request.getfixturevalue("new_file" if target == "sqlite" else "new_schema")()
    saved = backup(source, tmp_path / "b.zip")
    assert saved.backup.content == ("export.jsonl" if "://" in source else "memory.db")
    restored = restore(tmp_path / "b.zip", to)
    assert restored.counts["record"] == saved.backup.counts["record"] >= 300
    assert exported(to, tmp_path) == exported(rich, tmp_path)


def test_lancedb_store_is_backed_up(tmp_path: Path) -> None:
    """As an export, which restores to LanceDB and to a file."""
    pytest.importorskip("lancedb")
    place = f"lancedb://{tmp_path}/one?batch=10"
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": f"heron number {number}"} for number in range(30))
        saved = memory.backup(tmp_path / "b.zip")
    assert saved.backup.content == "export.jsonl"
    for target in (f"lancedb://{tmp_path}/two?batch=10", str(tmp_path / "file.db")):
        restore(tmp_path / "b.zip", target)
        with Memory.open(target, embedder="hashing:64", settings=Settings()) as memory:
            assert memory.search("heron number 7").results[0].record.text == "heron number 7"
            assert memory.status()["vectors"]["without"] == 0


def test_file_is_private_and_alone(rich: Path, tmp_path: Path) -> None:
    """Only its owner can read it, and nothing else stays beside it; so also for the restored store."""
    folder = tmp_path / "new"
    backup(rich, f"{folder}/")
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    restore(file, folder / "restored.db")
    assert sorted(path.name for path in folder.iterdir()) == sorted([file.name, "restored.db"])
    assert stat.S_IMODE((folder / "restored.db").stat().st_mode) == 0o600


def test_existing_file_is_replaced_only_by_force(rich: Path, tmp_path: Path) -> None:
    """Even then only a whole backup: never a store, not that of the backup itself either, and no other file."""
    file = tmp_path / "b.zip"
    backup(rich, file)
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"b\.zip exists") as caught:
        backup(rich, file)
    assert "--force" in caught.value.hint
    assert file.read_bytes() == before
    with Memory.open(rich, embedder="none", settings=Settings()) as memory:
        memory.add("a new fact")
    assert backup(rich, file, force=True).backup.counts["record"] == archive.read_manifest(file).counts["record"]
    assert file.read_bytes() != before
    for name in ("rich.db", "notes.txt", "empty", "half.zip"):
        other = tmp_path / name
        if name != "rich.db":
            other.write_bytes({"notes.txt": b"mine", "empty": b"", "half.zip": before[:-30]}[name])
        held = other.read_bytes()
        with pytest.raises(UsageError, match="is not a whole backup"):
            backup(rich, other, force=True)
        assert other.read_bytes() == held


def test_wrong_arguments_are_refused(rich: Path, tmp_path: Path, run: Any) -> None:
    """A missing store, a missing folder, --keep without a folder, standard output, a scope."""
    with pytest.raises(UsageError, match="there is no store"):
        backup(tmp_path / "none.db", tmp_path / "b.zip")
    with pytest.raises(FailedError, match="cannot be written: No such file"):
        backup(rich, tmp_path / "nowhere" / "b.zip")
    with pytest.raises(UsageError, match="--keep needs a folder"):
        backup(rich, tmp_path / "b.zip", keep=2)
    for words, message in ((["-"], b"standard output"), (["b.zip", "--user", "ada"], b"--user has no effect")):
        done = run("--store", rich, "backup", *words, cwd=tmp_path)
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("rich")) == []


def test_keep_removes_only_old_backups_of_this_store(rich: Path, open_memory: Any, tmp_path: Path) -> None:
    """Not those that a person named, those of another store of the same name, damaged ones, or other files."""
    folder = tmp_path / "backups"
    first = backup(rich, f"{folder}/").backup.path
    (tmp_path / "other").mkdir()
    other = open_memory(tmp_path / "other" / "rich.db").backup(folder).backup.path
    shutil.copy(first, folder / "before-the-trip.zip")
    (folder / "rich-2001-01-01T000000Z.zip").write_bytes(first.read_bytes()[:500])
    (folder / "rich-2002-01-01T000000Z.zip").write_text("a letter")
    (folder / "rich-2003-01-01T000000Z.zip").symlink_to(first)
    strangers = {path for path in folder.iterdir() if path != first}
    paths = [first]
    for _ in range(4):
        saved = backup(rich, folder, keep=3)
        paths.append(saved.backup.path)
        assert list(saved.removed) == [path for path in paths[-4:-3] if len(paths) > 3]
    assert set(folder.iterdir()) - strangers == set(paths[-3:])
    assert {path for path in strangers if path.exists() or path.is_symlink()} == strangers
    assert other in strangers


def test_store_with_altered_text_is_not_backed_up(rich: Path, tmp_path: Path) -> None:
    """A text that does not match its hash: the error names the record, no file appears, and no old backup goes."""
    folder = tmp_path / "backups"
    backup(rich, f"{folder}/")
    kept = list(folder.iterdir())
    connection = apsw.Connection(str(rich))
    (key,) = connection.execute("SELECT id FROM records WHERE kind = 'fact' AND text LIKE 'put otherwise%'").fetchone()
    connection.execute("UPDATE records SET text = text || '!' WHERE id = ?", (key,))
    connection.close()
    with pytest.raises(StoreError, match=r"was changed outside Recollect.*; no backup was written") as caught:
        backup(rich, folder, keep=1)
    assert key in caught.value.message
    assert list(folder.iterdir()) == kept


def test_damaged_store_is_not_backed_up(rich: Path, tmp_path: Path) -> None:
    """Pages that cannot be read: an error, and no file."""
    with rich.open("r+b") as file:
        for page in range(8, rich.stat().st_size // 4096, 3):
            file.seek(page * 4096)
            file.write(os.urandom(2048))
    with pytest.raises(StoreError, match="damaged"):
        backup(rich, tmp_path / "b.zip")
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("rich")] == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_purged_bytes_are_not_in_a_backup(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Neither the text nor the title nor what an edit replaced, also while the store has free pages."""
    place = str(tmp_path / "memory.db") if kind == "sqlite" else request.getfixturevalue("new_schema")()
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": f"heron {number} " + "reed " * 200} for number in range(50))
        record = memory.add("the zanzibarcode is 1234", title="zanzibartitle", id="secret")
        memory.edit(record.id, text="the zanzibarcode is 5678 " + "walrus " * 3_000)
        memory.forget(*(one.id for one in memory.list(limit=20) if one.id != "secret"))
        memory.forget("secret", purge=True)
        memory.backup(tmp_path / "b.zip")
    held = content(tmp_path / "b.zip")
    assert b"heron" in held
    assert b"zanzibar" not in held
    assert b"walrus" not in held


def test_store_of_an_older_version_stays_as_it_is(tmp_path: Path) -> None:
    """It is not migrated by its backup, and the restored one is, when it is opened."""
    path, older = tmp_path / "old.db", 8
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL")
    for _, sql in MIGRATIONS[:older]:
        connection.execute(sql)
    connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, at INTEGER NOT NULL)")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={older}")
    connection.close()
    backup(path, tmp_path / "b.zip")
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == older
    connection.close()
    restore(tmp_path / "b.zip", tmp_path / "new.db")
    with Memory.open(tmp_path / "new.db", embedder="none", settings=Settings()) as memory:
        memory.add("a fact")
        assert len(memory.search("fact").results) == 1


def test_memory_backs_itself_up(memory: Memory, tmp_path: Path) -> None:
    """`Memory.backup`, while it is open; a scoped caller may not."""
    memory.add("The spare key is under the blue pot.")
    saved = memory.backup(f"{tmp_path}/backups/", keep=1)
    assert saved.backup.counts["record"] == 1
    assert saved.size == saved.backup.path.stat().st_size
    assert archive.read_manifest(saved.backup.path) == saved.backup
    with pytest.raises(Forbidden, match="back up the store"):
        memory.within(Scope(user="ada")).backup(tmp_path / "b.zip")


def test_store_in_memory_is_backed_up(open_memory: Any, tmp_path: Path) -> None:
    """While it is open it is a file like any other."""
    memory = open_memory(":memory:")
    memory.add("Ada lives in Lisbon.")
    memory.backup(tmp_path / "b.zip")
    restore(tmp_path / "b.zip", tmp_path / "new.db")
    assert len(open_memory(tmp_path / "new.db").search("Lisbon").results) == 1


@pytest.mark.ci
def test_full_disk_leaves_nothing(rich: Path, tmp_path: Path, run: Any) -> None:
    """A backup and a restore that run out of room say so; an older backup and the folder stay as they were."""
    file, size = tmp_path / "b.zip", rich.stat().st_size
    backup(rich, file)
    before, names = file.read_bytes(), sorted(path.name for path in tmp_path.iterdir())
    # The first limit stops the copy of the store, the second the archive of it.
    for limit in (size // 2, len(before) // 2):

        def small(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        for words in (["backup", file, "--force"], ["restore", file, "--to", tmp_path / "x" / "new.db"]):
            failed = run("--store", rich, *words, preexec_fn=small)
            assert failed.returncode == 3, failed
            assert failed.stderr.startswith(b"error: "), failed.stderr
            assert b"Traceback" not in failed.stderr
            assert file.read_bytes() == before
            now = sorted(path.name for path in tmp_path.iterdir())
            assert [name for name in now if not name.startswith("rich.db-")] == names


def test_leftovers_of_killed_processes_are_removed(rich: Path, tmp_path: Path) -> None:
    """After a day; younger ones may be in use."""
    old, young = (tmp_path / f"{archive.PART}{name}" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir()
        (folder / "memory.db").write_text("half")
    os.utime(old, (time.time() - 90_000,) * 2)
    backup(rich, tmp_path / "b.zip")
    assert (old.exists(), young.exists()) == (False, True)

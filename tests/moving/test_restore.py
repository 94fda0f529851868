"""Restoring: to a new place only, from a whole backup of a version that is known, and complete or not at all."""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import StoreError, UsageError
from recollect.moving import archive
from recollect.moving.backups import backup, restore
from recollect.stores.sqlite.schema import MIGRATIONS


@pytest.fixture
def file(rich: Path, tmp_path: Path) -> Path:
    """A backup of the rich store."""
    return backup(rich, tmp_path / "whole.zip").backup.path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A place for a store, in a folder that does not exist."""
    return tmp_path / "new" / "folder" / "memory.db"


def forged(file: Path, change: Callable[[apsw.Connection], object] | None = None, **fields: Any) -> Path:
    """A backup with another content or other fields in its manifest, and with sums that are right for it."""
    parts, other = file.with_name("forged"), file.with_name("forged.zip")
    parts.mkdir()
    with zipfile.ZipFile(file) as opened:
        opened.extractall(parts)
    if change:
        connection = apsw.Connection(str(parts / archive.STORE))
        change(connection)
        connection.close()
    length, digest = archive.digest_of(parts / archive.STORE)
    manifest = json.loads((parts / archive.MANIFEST).read_text()) | {"length": length, "sha256": digest} | fields
    with zipfile.ZipFile(other, "w") as packed:
        packed.writestr(archive.MANIFEST, json.dumps(manifest))
        packed.write(parts / archive.STORE, archive.STORE)
    shutil.rmtree(parts)
    return other


def assert_refused(file: Path, target: Path, words: str) -> None:
    """It is refused for this reason, and nothing is left behind."""
    folder = next(folder for folder in target.parents if folder.exists())
    before = sorted(folder.iterdir())
    with pytest.raises((UsageError, StoreError), match=words) as caught:
        restore(file, target)
    assert caught.value.hint
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_truncated_backup_is_refused(file: Path, target: Path, share: float) -> None:
    """Wherever it was cut."""
    held = file.read_bytes()
    file.write_bytes(held[: max(20, int(share * len(held)))])
    assert_refused(file, target, "is damaged or cut short")


def test_changed_bytes_are_noticed_or_harmless(file: Path, target: Path) -> None:
    """A byte that is changed anywhere makes the backup invalid, unless the content is still what was written."""
    whole, held, chance, refused = archive.read_manifest(file), file.read_bytes(), random.Random(1), 0
    places = [*range(60), *chance.sample(range(len(held)), 100), *range(len(held) - 150, len(held))]
    for place in places:
        changed = bytearray(held)
        changed[place] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        try:
            restored = restore(file, target, dry_run=True)
        except UsageError:
            refused += 1
        else:
            assert (restored.backup, restored.counts) == (whole, whole.counts)
    assert refused > 100
    assert not target.parent.exists()


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (b"", "is empty"),
        (b"a letter to Ada, long enough", "is not a backup of Recollect"),
        (b"SQLite format 3\0" + bytes(100), "is a SQLite database"),
        (b'{"recollect":"export","version":1}\n', "may be an export"),
        (b"\x1f\x8b" + bytes(50), "may be an export"),
        (b"PK\x03\x04" + bytes(50), "is damaged or cut short"),
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, target: Path, held: bytes, words: str) -> None:
    """With what it is, as far as that can be told."""
    (tmp_path / "file").write_bytes(held)
    assert_refused(tmp_path / "file", target, words)


def test_other_archives_are_refused(tmp_path: Path, target: Path) -> None:
    """A zip archive without a manifest, with one of another program, and with one that is not valid."""
    for name, text in (
        ("a", None),
        ("b", '{"name": "an app"}'),
        ("c", "[]"),
        ("d", '{"recollect":"backup","version":1}'),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr("note.txt" if text is None else archive.MANIFEST, text or "hello")
        assert_refused(tmp_path / name, target, "is damaged or cut short|is not a backup of Recollect")
    assert_refused(tmp_path / "missing.zip", target, "cannot be read: No such file")
    assert_refused(tmp_path, target, "cannot be read: Is a directory")


def test_newer_backup_is_refused(file: Path, target: Path) -> None:
    """A newer format, and a store with a newer schema; the hint says how to upgrade."""
    assert_refused(forged(file, version=2), target, "of version 2")
    newer = len(MIGRATIONS) + 1
    other = forged(file, lambda connection: connection.pragma("user_version", newer))
    assert_refused(other, target, f"has schema {newer}, this version knows {len(MIGRATIONS)}")


def test_content_that_is_no_store_is_refused(file: Path, target: Path) -> None:
    """Even if all sums are right: another program's database, SQL that runs by itself, texts that lost their hash."""
    trigger = "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM history; END"
    edit = "UPDATE records SET text = text || '!' WHERE row = 2"
    delete = "DELETE FROM history WHERE seq = 1"
    assert_refused(forged(file, lambda one: one.pragma("application_id", 7)), target, "database of another program")
    for sql, words in ((trigger, "trigger"), (edit, "changed outside Recollect"), (delete, "as many records")):
        assert_refused(forged(file, lambda one, sql=sql: one.execute(sql)), target, words)
    assert_refused(forged(file, sha256="0" * 64), target, "SHA-256 differs")
    assert_refused(forged(file, content="../../etc/passwd"), target, "its manifest is not valid")


@pytest.mark.parametrize("name", ["memory.db", "memory.db-wal", "memory.db-shm", "memory.db-journal"])
def test_place_that_is_taken_is_refused(file: Path, tmp_path: Path, name: str) -> None:
    """By a store, or by the log of one, which SQLite would apply to the restored store."""
    place = tmp_path / "memory.db"
    (tmp_path / name).write_text("something")
    assert_refused(file, place, "already a store" if name == place.name else "log of an earlier store")
    assert (tmp_path / name).read_text() == "something"


def test_index_of_an_earlier_store_is_not_used(rich: Path, file: Path) -> None:
    """The folder of the index may be left from the lost store, and from a later state of it."""
    with Memory.open(rich, embedder="none", settings=Settings()) as memory:
        memory.add_many({"text": f"quagga {number}"} for number in range(400))
        assert memory.search("quagga").results
    rich.unlink()
    restore(file, rich)
    with Memory.open(rich, embedder="none", settings=Settings()) as memory:
        assert not memory.search("quagga", sources=["keyword"]).results
        assert memory.search("lighthouse", sources=["keyword"]).results


def test_dry_run_checks_and_restores_nothing(file: Path, target: Path, run: Any) -> None:
    """It prints what the backup holds."""
    done = run("restore", file, "--to", target, "--dry-run")
    assert (done.returncode, b"is whole" in done.stdout) == (0, True), done.stderr
    assert not target.parent.exists()
    assert run("restore", file, "--to", target, "--dry-run", "--json").stdout.count(b'"dry_run": true') == 1


def test_dry_run_checks_a_backup_while_its_store_is_in_use(rich: Path, file: Path, run: Any) -> None:
    """Whether a backup is whole can be asked before the store is lost, without naming another place."""
    before = rich.read_bytes()
    done = run("restore", file, "--dry-run", "--store", rich)
    assert (done.returncode, b"is whole" in done.stdout) == (0, True), done.stderr
    assert rich.read_bytes() == before
    assert run("restore", file, "--store", rich).returncode == 2


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["postgres", "lancedb", "lancedb and an export"])
def test_failed_restore_to_another_kind_of_store_leaves_nothing(
    file: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The store has no record of it; the next restore works, and overwrites no other store."""
    tmp_path = file.parent
    place = request.getfixturevalue("new_schema")() if kind == "postgres" else f"lancedb://{tmp_path}/lance"
    if kind.endswith("export"):
        pytest.importorskip("lancedb")
        file = backup(restore(file, f"lancedb://{tmp_path}/before").place, tmp_path / "export.zip").backup.path
    monkeypatch.setattr(moving.transfer, "BATCH_PARTS", 50)
    steps: list[str] = []

    def fails(step: str) -> Callable[[int, int], None] | None:
        def stop(done: int, total: int) -> None:
            if done > total / 2:
                steps.append(step)
                raise KeyboardInterrupt

        return stop if step == "copying" else None

    with pytest.raises(KeyboardInterrupt):
        restore(file, place, steps=fails)
    assert steps == ["copying"]
    if kind == "postgres":
        with Memory.open(place, embedder="none", settings=Settings()) as memory:
            assert memory.status()["records"]["total"] == memory.status()["sequence"] == 0
    else:
        assert not (tmp_path / "lance").exists()
    restored = restore(file, place)
    assert restored.counts["record"] == archive.read_manifest(file).counts["record"]
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add("a fact of its own")
        before = memory.status()["records"]
        with pytest.raises(UsageError, match=r"the target holds other records|already a store") as caught:
            restore(file, place)
        assert "name a" in caught.value.hint
        assert memory.status()["records"] == before


def test_password_of_a_server_is_not_shown(file: Path, run: Any) -> None:
    """Neither in an answer nor in an error."""
    done = run("restore", file, "--to", "postgresql://ada:sesame@127.0.0.1:1/none", "--json")
    assert done.returncode == 3
    assert b"sesame" not in done.stdout + done.stderr

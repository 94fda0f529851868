"""Ids of chunks: equal for the same text, impossible to predict, and no reason to stop a run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import Memory
from recollect.config import Settings
from recollect.types import Forget, Put, Scope

BOB = Scope("bob")
HEADINGS = "# Note\n\n" + "".join(f"## Part {n}\n\n{f'alpha{n} ' * 130}\n\n" for n in range(300))


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    """A memory in each kind of store."""
    place = tmp_path / "store.db" if request.param == "sqlite" else request.getfixturevalue("new_schema")()
    with Memory.open(place, embedder="none", settings=Settings()) as opened:
        yield opened


def computed(path: Path, text: str, user: str, nth: int = 1) -> str:
    """The id that a chunk had before stores had a key: anybody can compute it."""
    name = "\0".join((str(path), text, str(nth), "user", user))
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def ids(memory: Memory, path: Path) -> list[str]:
    """The ids of a file's chunks, in its order."""
    return [record.id for record in sorted(memory.store.files.chunks(str(path)), key=lambda record: record.lines)]


def squat(memory: Memory, path: Path, text: str) -> str:
    """Take the id of one of Bob's chunks while its text is not in the file; gives back the id."""
    path.write_text(text)
    memory.index(path, user="bob")
    (taken, *_) = ids(memory, path)
    path.write_text("Nothing.")
    memory.index(path, user="bob")
    memory.within(Scope("ada")).add("squatted", id=taken)
    path.write_text(text)
    return taken


def test_id_cannot_be_taken_before_the_file_is_indexed(memory: Memory, notes: Path) -> None:
    """A record under an id computed from path, text and user does not collide."""
    (notes / "todo.md").write_text("Buy milk.")
    memory.within(Scope("ada")).add("squatted", id=computed(notes / "todo.md", "Buy milk.", "bob"))
    report = memory.index(notes, user="bob")
    assert (report.added, report.skipped) == ([str(notes / "todo.md")], {})
    assert [record.text for record in memory.list(user="bob")] == ["Buy milk."]


def test_ids_differ_between_stores_and_are_stable_in_one(memory: Memory, notes: Path, tmp_path: Path) -> None:
    """A text that comes back gets its old id; another store gives another."""
    note = notes / "a.md"
    note.write_text("Buy milk.")
    memory.index(notes)
    (first,) = ids(memory, note)
    note.write_text("Buy bread.")
    memory.index(notes)
    note.write_text("Buy milk.")
    memory.index(notes)
    assert ids(memory, note) == [first]
    with Memory.open(tmp_path / "other.db", embedder="none", settings=Settings()) as other:
        other.index(notes)
        assert ids(other, note) != [first]


def test_chunks_of_an_older_store_keep_their_ids(memory: Memory, notes: Path) -> None:
    """Only new ones get an id by the key; repeated texts keep theirs."""
    note = notes / "a.md"
    same = f"## Same\n\n{'beta ' * 280}\n\n"
    note.write_text(f"# Note\n\n{same}## Other\n\n{'gamma ' * 280}\n\n{same}")
    memory.index(notes, user="bob")
    before = sorted(memory.store.files.chunks(str(note)), key=lambda record: record.lines or (0, 0))
    seen: list[str] = []
    for chunk in before:
        seen.append(chunk.text)
        old = computed(note, chunk.text, "bob", seen.count(chunk.text))
        memory.store.records.apply([[Put(replace(chunk, id=old)), Forget(chunk.id, purge=True)]])
    older = ids(memory, note)
    assert len(set(older)) == len(before) > 2
    assert not set(older) & {chunk.id for chunk in before}
    note.write_text(f"{note.read_text()}## New\n\n{'delta ' * 280}\n\n")
    assert memory.index(notes, user="bob").changed == [str(note)]
    assert ids(memory, note)[: len(older)] == older
    assert len(ids(memory, note)) == len(older) + 1


def test_taken_id_skips_one_file_and_not_the_run(memory: Memory, notes: Path) -> None:
    """The file is named with the reason, the others are stored, and the next run tries again."""
    taken = squat(memory, notes / "b.md", "Buy milk.")
    for name in ("a.md", "c.md"):
        (notes / name).write_text(f"About {name}.")
    for report in (memory.index(notes, user="bob"), memory.reindex()):
        assert report.skipped == {
            str(notes / "b.md"): f"not stored: the id {taken!r} is taken by a record of another scope"
        }
        assert str(notes / "b.md") not in report.changed
    assert sorted(record.text for record in memory.list(user="bob")) == ["About a.md.", "About c.md.", "Nothing."]
    memory.within(Scope("ada")).forget(taken, purge=True)
    assert memory.index(notes, user="bob").changed == [str(notes / "b.md")]
    assert ids(memory, notes / "b.md") == [taken]


@pytest.mark.ci
def test_refused_long_file_does_not_count_as_indexed(memory: Memory, notes: Path) -> None:
    """It takes several transactions; if the first is refused, the last must not record the file."""
    note = notes / "long.md"
    taken = squat(memory, note, HEADINGS)
    state = memory.store.files.states([str(note)])
    assert list(memory.index(notes, user="bob").skipped) == [str(note)]
    assert memory.store.files.states([str(note)]) == state
    memory.within(Scope("ada")).forget(taken, purge=True)
    memory.index(notes, user="bob")
    assert len(ids(memory, note)) > 200


def test_refused_move_leaves_the_old_file(memory: Memory, notes: Path) -> None:
    """Its chunks stay under the old path until they can be stored under the new one."""
    squat(memory, notes / "new.md", "Buy milk.")
    (notes / "new.md").unlink()
    memory.index(notes, user="bob")
    (notes / "old.md").write_text("Buy milk.")
    memory.index(notes, user="bob")
    (notes / "old.md").rename(notes / "new.md")
    report = memory.index(notes, user="bob")
    assert (report.moved, report.removed, list(report.skipped)) == ({}, [], [str(notes / "new.md")])
    assert [record.path for record in memory.list(user="bob")] == [str(notes / "old.md")]


@pytest.mark.ci
def test_watch_continues_without_a_refused_file(tmp_path: Path, notes: Path) -> None:
    """`recollect watch` reports it as skipped, and its pass is no failure."""
    with Memory.open(tmp_path / "store.db", embedder="none", settings=Settings()) as memory:
        squat(memory, notes / "b.md", "Buy milk.")
    (notes / "a.md").write_text("About a.")
    command = [sys.executable, "-m", "recollect", "watch", "--once", "--json", "--user", "bob", str(notes)]
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    place = {"RECOLLECT_STORE": str(tmp_path / "store.db"), "RECOLLECT_EMBEDDER": "none"}
    done = subprocess.run(
        command, env={**os.environ, **home, **place}, capture_output=True, text=True, timeout=60, check=True
    )
    line = json.loads(done.stdout)
    assert (line["added"], list(line["skipped"])) == ([str(notes / "a.md")], [str(notes / "b.md")])


def test_key_stays_in_its_store(memory: Memory, notes: Path, tmp_path: Path) -> None:
    """It is neither exported nor imported; imported chunks keep their ids when indexed again."""
    (notes / "a.md").write_text(HEADINGS[:20_000])
    memory.index(notes)
    memory.export(tmp_path / "all.jsonl")
    key = memory.store.files.chunk_key()
    exported = (tmp_path / "all.jsonl").read_text()
    assert key.hex() not in exported
    assert "chunk_key" not in exported
    with Memory.open(tmp_path / "other.db", embedder="none", settings=Settings()) as other:
        other.import_(tmp_path / "all.jsonl")
        assert other.store.files.chunk_key() != key
        (notes / "a.md").write_text(HEADINGS[:20_000] + "\n\nThe end.")
        other.index(notes)
        assert (
            len(set(ids(other, notes / "a.md")) & set(ids(memory, notes / "a.md")))
            >= len(ids(memory, notes / "a.md")) - 1
        )


def test_dry_run_creates_no_key(tmp_path: Path, notes: Path) -> None:
    """It stores nothing, not even that."""
    (notes / "a.md").write_text("Buy milk.")
    with Memory.open(tmp_path / "store.db", embedder="none", settings=Settings()) as memory:
        assert len(memory.index(notes, dry_run=True).added) == 1
        with memory.store._database.read() as connection:
            assert connection.execute("SELECT value FROM meta WHERE key = 'chunk_key'").get is None

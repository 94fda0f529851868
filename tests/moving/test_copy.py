"""Copies: a whole store in another, with the same export, after any interruption; nothing is overwritten."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import StoreError, UsageError
from recollect.moving import Moved

Name = Callable[[], str]


def exported(place: object, tmp_path: Path) -> bytes:
    """The whole export of a store."""
    file = tmp_path / f"{random.getrandbits(64):x}.jsonl"
    moving.export(str(place), file)
    return file.read_bytes()


def nothing(moved: Moved) -> bool:
    return not any(moved.added.values())


@pytest.mark.ci
def test_copy_exports_the_same_bytes(rich: Path, new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """There and back: forgotten, superseded and purged records, history, two vector spaces, files, notes."""
    there, back = new_place(), new_file()
    moved = moving.copy(rich, there)
    assert moved.added == moved.total
    assert min(moved.total.values()) > 0, "every sort of part occurs"
    moving.copy(there, back)
    once = exported(rich, tmp_path)
    assert len(once) > 200_000
    assert exported(there, tmp_path) == once
    assert exported(back, tmp_path) == once
    assert moved.sha256.encode() in once[-200:]


def test_copy_answers_like_its_source(rich: Path, new_place: Name) -> None:
    """The same records, order and scores, by words and by vectors, in every scope; long chunks beside short facts."""
    with Memory.open(rich, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many({"text": "walrus tide " + "reed " * 9 * number, "kind": "chunk"} for number in range(9))
    there = new_place()
    moving.copy(rich, there)
    with (
        Memory.open(rich, embedder="hashing:64", settings=Settings()) as ours,
        Memory.open(there, embedder="hashing:64", settings=Settings()) as theirs,
    ):
        assert ours.status()["language"] == theirs.status()["language"] == "german"
        assert ours.status()["vectors"] == theirs.status()["vectors"]
        for text in ("heron in the Haus", "walrus tide", "東京", "v1.0.21 lighthouse", "put otherwise"):
            for scope in ({}, {"user": "a\0b", "agent": "\x10"}):
                for source in ("keyword", "vector"):
                    one, two = (
                        [
                            (result.record, round(result.shares[source].score, 5))
                            for result in memory.search(text, sources=[source], scope=scope, limit=30).results
                        ]
                        for memory in (ours, theirs)
                    )
                    assert one == two, (text, scope, source)
                    assert one, (text, scope, source)


def test_copy_can_be_changed_further(rich: Path, new_place: Name) -> None:
    """Forgotten records can be restored, new ones get the next number, and all are found."""
    there = new_place()
    moving.copy(rich, there)
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        last = memory.status()["sequence"]
        new = memory.add("a cormorant on the pier")
        assert memory.history(new.id)[0].seq > last
        assert memory.search("cormorant").results[0].record.id == new.id
        forgotten = next(part.values[0] for part in _parts(memory) if part.values[17] and not part.values[18])
        action, record = memory.undo(forgotten)
        assert action == "forget"
        assert memory.search(record.text, scope=record.scope).results[0].record.id == forgotten


def _parts(memory: Memory) -> list[Any]:
    with memory.store.contents.snapshot() as snapshot:
        return [part for part in snapshot.parts() if part.kind == "record"]


def test_second_copy_adds_only_what_is_new(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Run again it finds all there; run after more was added, it adds just that."""
    there = new_place()
    moving.copy(rich, there)
    assert nothing(moving.copy(rich, there))
    with Memory.open(rich, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("one more about herons", id="more")
    added = moving.copy(rich, there).added
    assert {sort: count for sort, count in added.items() if count} == {"record": 1, "history": 1, "vector": 1}
    assert exported(there, tmp_path) == exported(rich, tmp_path)


COPY = """
import sys, time
from recollect import moving

moving.transfer.BATCH_PARTS = moving.following.CHUNK = int(sys.argv[3])
def told(step):
    print(step, flush=True)
    return lambda done, total: print(done, flush=True)
moving.copy(sys.argv[1], sys.argv[2], steps=told)
print("done", flush=True)
"""


def killed_copy(source: object, target: str, batches: int, *, script: str = COPY, size: int = 20) -> None:
    """Copy in a process that is killed when it has copied so many batches, or a moment later."""
    command = [sys.executable, "-c", script, str(source), target, str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = iter(process.stdout.readline, "")
        assert "copying\n" in told
        assert len(list(itertools.islice(told, batches))) == batches, "it was alive until it was killed"
        time.sleep(random.random() / 100)
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_unfinished_copy_answers_with_what_it_has(rich: Path, new_place: Name) -> None:
    """Records come before their history; an open process finds those that come later, too."""
    with (
        moving.opened(rich) as source,
        source.contents.snapshot() as snapshot,
        Memory.open(new_place(), embedder=None, settings=Settings()) as memory,
    ):
        parts = list(snapshot.parts())
        records = [part for part in parts if part.kind == "record"]
        memory.store.contents.load([part for part in parts if part.kind == "meta" and part.values[0] == "language"])
        words, counts = "otter kestrel heron", []
        for batch in (records[:100], records[100:]):
            memory.store.contents.load(batch)
            counts.append(len(memory.search(words, any_scope=True, limit=1000, fetch_k=1000, by="chunk").results))
        assert 0 < counts[0] < counts[1]


def test_altered_text_is_not_copied(rich: Path, tmp_path: Path) -> None:
    """In the copy, nothing would show that it was changed outside Recollect."""
    with contextlib.closing(sqlite3.connect(rich)) as file, file:
        (key,) = file.execute("SELECT id FROM records WHERE kind = 'fact' AND forgotten_at IS NULL LIMIT 1").fetchone()
        file.execute("UPDATE records SET text = 'something else' WHERE id = ?", (key,))
    with pytest.raises(StoreError, match=r"changed outside Recollect.*nothing was copied"):
        moving.copy(rich, tmp_path / "copy.db")


@pytest.mark.ci
def test_killed_copy_continues(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Killed at random moments, it ends like an uninterrupted one."""
    there, chance = new_place(), random.Random()
    left = [sum(moving.copy(rich, there, dry_run=True).total.values())]
    for batches in (chance.randrange(2, 30), chance.randrange(1, 4), chance.randrange(1, 4)):
        killed_copy(rich, there, batches)
        left.append(sum(moving.copy(rich, there, dry_run=True).added.values()))
    assert left == sorted(left, reverse=True)
    assert left[0] > left[-1] > 0
    moving.copy(rich, there)
    assert exported(there, tmp_path) == exported(rich, tmp_path)


@pytest.mark.ci
def test_killed_merge_continues(rich: Path, new_place: Name) -> None:
    """Renumbered events are not renumbered twice."""
    there = new_place()
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("it was here before", id="before")
    for batches in (12, 30):
        killed_copy(rich, there, batches, script=COPY.replace("steps=told", "steps=told, merge=True"))
    moving.copy(rich, there, merge=True)
    with Memory.open(there, embedder="none", settings=Settings()) as memory, Memory.open(rich) as source:
        for part in _parts(source)[::7]:
            ours, theirs = (
                [(event.action, event.at, event.detail) for event in one.store.records.history(part.values[0])]
                for one in (source, memory)
            )
            assert ours == theirs
        assert len(memory.history("before")) == 1


def test_copy_into_itself_is_refused(rich: Path, new_schema: Name, tmp_path: Path) -> None:
    """By any name, and nothing changes."""
    other = tmp_path / "other.db"
    other.symlink_to(rich)
    schema = new_schema()
    moving.copy(rich, schema)
    for one, two in ((rich, rich), (rich, other), (f"sqlite://{rich}", other), (schema, schema)):
        before = exported(one, tmp_path)
        with pytest.raises(UsageError, match="same store"):
            moving.copy(one, two)
        assert exported(one, tmp_path) == before


def test_target_with_other_records_is_refused(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Extra or different records are named; the target is unchanged."""
    there = new_place()
    with Memory.open(there, embedder="none", settings=Settings()) as memory:
        memory.add("a stranger")
    before = exported(there, tmp_path)
    with pytest.raises(UsageError, match="1 that the source does not have"):
        moving.copy(rich, there)
    assert exported(there, tmp_path) == before
    other = new_place()
    moving.copy(rich, other)
    with Memory.open(other, embedder="none", settings=Settings()) as memory:
        memory.edit("~10", text="another word for it")
    with pytest.raises(UsageError, match=r"1 that differ \('~10'\)"):
        moving.copy(rich, other)


def test_merge_adds_what_is_missing_and_overwrites_nothing(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Differences are reported and stay; a second merge adds nothing."""
    there = new_place()
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("a stranger", id="stranger")
        memory.add("what I say of it", id="~10")
    plan = moving.copy(rich, there, merge=True, dry_run=True)
    moved = moving.copy(rich, there, merge=True)
    assert (plan.added, plan.different, plan.others) == (moved.added, moved.different, moved.others)
    assert (moved.different, moved.others) == (("~10",), 1)
    assert moved.added["record"] == moved.total["record"] - 1
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        assert memory.get("~10").text == "what I say of it"
        assert len(memory.history("~10")) == len(memory.history("stranger")) == 1
        assert memory.search("stranger").results[0].record.id == "stranger"
        found = memory.search("lighthouse tide n27n", sources=["keyword"]).results
        assert any("n27n" in result.record.text for result in found)
    before = exported(there, tmp_path)
    assert nothing(moving.copy(rich, there, merge=True))
    assert exported(there, tmp_path) == before


def test_purged_records_do_not_come_back(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """A purged record is copied without content, and merging the old content leaves it purged."""
    old, new, there = new_file(), new_file(), new_place()
    with Memory.open(old, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the secret of the lighthouse", id="secret", tags=["hush"], title="whisper")
        memory.add("the tide", id="tide")
    moving.copy(old, new)
    with Memory.open(new, embedder="hashing:64", settings=Settings()) as memory:
        memory.forget("secret", purge=True)
    moving.copy(new, there)
    for _ in range(2):
        content = exported(there, tmp_path)
        assert b'"purged":true' in content
        assert content.count(b'"part":"vector"') == 1
        for word in (b"lighthouse", b"hush", b"whisper"):
            assert word not in content
        moved = moving.copy(old, there, merge=True)
        assert moved.different == ("secret",)
    if "://" not in there:
        assert b"whisper" not in Path(there).read_bytes()
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        assert memory.get("secret") is None
        assert [result.record.id for result in memory.search("the secret of the lighthouse tide").results] == ["tide"]


@pytest.mark.ci
def test_source_may_be_written_during_a_copy(rich: Path, new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """One snapshot is copied and verified; later changes come with the next run."""
    source, there = new_place(), new_file()
    moving.copy(rich, source)
    before = exported(source, tmp_path)
    with Memory.open(source, embedder="hashing:64", settings=Settings()) as memory:
        moved = moving.copy(source, there, steps=lambda step: memory.add(f"added while {step}") and None)
        assert exported(there, tmp_path) == before
        assert moved.sha256.encode() in before
        assert exported(source, tmp_path) != before
    assert moving.copy(source, there).added["record"] == 3
    assert exported(there, tmp_path) == exported(source, tmp_path)


@pytest.mark.ci
def test_target_may_be_searched_during_a_copy(rich: Path, new_place: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open reader finds in the end what a new one finds."""
    monkeypatch.setattr(moving.transfer, "BATCH_PARTS", 120)
    there, asked = new_place(), []
    options = {"embedder": "hashing:32", "settings": Settings()}

    def found(memory: Memory) -> list[Any]:
        sources = (["keyword"], ["vector"])
        return [
            (result.record.id, round(result.fused, 6))
            for source in sources
            for result in memory.search("lighthouse and heron", sources=source, limit=40).results
        ]

    with Memory.open(there, **options) as memory:
        moving.copy(rich, there, steps=lambda step: lambda done, total: asked.append(len(found(memory))))
        with Memory.open(there, **options) as fresh, Memory.open(rich, **options) as source:
            assert found(memory) == found(fresh) == found(source)
    assert asked[0] == 0
    assert asked[-1] == 80
    assert len(set(asked)) > 2, "it was searched while it grew"


def test_dry_run_creates_nothing(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """It counts what would be copied."""
    there = new_place()
    plan = moving.copy(rich, there, dry_run=True)
    assert plan.dry_run
    assert plan.added == plan.total
    assert not _is_there(there)
    moving.copy(rich, there)
    assert nothing(moving.copy(rich, there, dry_run=True))
    assert _is_there(there)


def _is_there(place: str) -> bool:
    from recollect.stores import exists

    return exists(place)


def test_missing_source_is_not_created(new_place: Name, new_file: Name) -> None:
    """A mistyped name is reported."""
    missing, there = new_place(), new_file()
    with pytest.raises(UsageError, match="there is no store"):
        moving.copy(missing, there)
    assert not _is_there(missing)
    assert not Path(there).exists()


def test_password_is_not_shown_in_errors(new_schema: Name, new_file: Name) -> None:
    """The place that is named in an error is named without it."""
    missing = new_schema().replace("postgres@", "postgres:hush@", 1)
    with pytest.raises(UsageError, match="there is no store") as caught:
        moving.copy(missing, new_file())
    assert "hush" not in caught.value.message


@pytest.mark.ci
def test_copy_command(rich: Path, new_file: Name, run: Callable[..., Any]) -> None:
    """It reports what it did; a refusal is a usage error with a hint."""
    there = new_file()
    dry = run("copy", rich, there, "--dry-run")
    assert (dry.returncode, dry.stdout[:16]) == (0, b"would be copied:")
    done = run("copy", rich, there, "--json")
    assert done.returncode == 0, done.stderr
    assert b'"sha256": "' in done.stdout
    again = run("copy", rich, there)
    assert again.stdout.startswith(b"copied nothing\nalready there: 3")
    same = run("copy", rich, rich)
    assert (same.returncode, b"same store" in same.stderr) == (2, True)
    assert run("--store", there, "add", "a stranger", "--embedder", "none").returncode == 0
    dry = run("copy", rich, there, "--dry-run")
    assert (dry.returncode, dry.stdout[:16]) == (2, b"would be copied:")
    assert b"would be refused" in dry.stderr
    refused = run("copy", rich, there)
    assert (refused.returncode, b"--merge" in refused.stderr) == (2, True)


@pytest.mark.ci
def test_memory_use_is_bounded(
    open_memory: Callable[..., Memory], path: Path, new_file: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten megabytes of text are copied in batches of a few hundred kilobytes."""
    memory = open_memory(embedder="none")
    memory.add_many([{"text": f"heron{' ' * 100_000}{number}", "id": str(number)} for number in range(100)])
    monkeypatch.setattr(moving.transfer, "BATCH_BYTES", 300_000)
    tracemalloc.start()
    moving.copy(path, new_file())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000

"""Copies: all of a store in another, byte for byte in its export, however often interrupted; nothing overwritten."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import RecollectError, UsageError
from recollect.moving import Moved

Name = Callable[[], str]


def exported(place: object, tmp_path: Path) -> bytes:
    """The whole export of a store."""
    file = tmp_path / f"{random.getrandbits(64):x}.jsonl"
    moving.export(str(place), file)
    return file.read_bytes()


def nothing(moved: Moved) -> bool:
    return not any(moved.added.values())


def test_a_copy_exports_the_same_bytes(rich: Path, new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """There and back: forgotten, superseded and purged records, history, two spaces, files, notes, whatever is in them."""
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


def test_a_copy_answers_as_its_source(rich: Path, new_place: Name) -> None:
    """The same records in the same order with the same scores, by words and by vectors, in every scope."""
    there = new_place()
    moving.copy(rich, there)
    with (
        Memory.open(rich, embedder="hashing:64", settings=Settings()) as ours,
        Memory.open(there, embedder="hashing:64", settings=Settings()) as theirs,
    ):
        assert ours.status()["language"] == theirs.status()["language"] == "german"
        assert ours.status()["vectors"] == theirs.status()["vectors"]
        for text in ("heron in the Haus", "what holds now 22", "東京", "v1.0.21 lighthouse", "put otherwise"):
            for scope in ({}, {"user": "a\0b", "agent": "\x10"}):
                for source in ("keyword", "vector"):
                    one, two = (
                        [
                            (result.record, round(result.sources[source].score, 5))
                            for result in memory.search(text, sources=[source], scope=scope, limit=30).results
                        ]
                        for memory in (ours, theirs)
                    )
                    assert one == two, (text, scope, source)
                    assert one, (text, scope, source)


def test_life_goes_on_in_a_copy(rich: Path, new_place: Name) -> None:
    """What is forgotten can be put back, what is new gets the next number, and all of it is found."""
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
    with memory.store.moving.snapshot() as snapshot:
        return [part for part in snapshot.parts() if part.sort == "record"]


def test_a_second_copy_adds_nothing(rich: Path, new_place: Name, tmp_path: Path) -> None:
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
from recollect.moving import transfer
transfer.BATCH_PARTS = int(sys.argv[3])
def told(step):
    print(step, flush=True)
    return lambda done, total: print(done, flush=True)
moving.copy(sys.argv[1], sys.argv[2], steps=told)
print("done", flush=True)
"""


def killed_copy(source: object, target: str, lines: int, *, batch: int = 20) -> bool:
    """Copy in a process that is killed when it has told its progress so many times; whether it was in time to end."""
    command = [sys.executable, "-c", COPY, str(source), target, str(batch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = []
        for line in process.stdout:
            told.append(line.strip())
            if len(told) >= lines:
                break
        time.sleep(random.random() / 100)
        process.kill()
    return "done" in told


def test_a_copy_that_was_killed_goes_on(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Killed at four random moments, of which it makes progress in each, the copy ends as one that was not."""
    there, chance = new_place(), random.Random(7)
    counts = []
    for stop in sorted(chance.sample(range(2, 70), 4)):
        assert not killed_copy(rich, there, stop)
        counts.append(sum(moving.copy(rich, there, dry_run=True).added.values()))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] > 0
    moving.copy(rich, there)
    assert exported(there, tmp_path) == exported(rich, tmp_path)


def test_a_killed_merge_goes_on(rich: Path, new_place: Name) -> None:
    """Events that were given new numbers are not given them twice."""
    there = new_place()
    with Memory.open(there, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("it was here before", id="before")
    for stop in (30, 50):
        merge = COPY.replace("steps=told", "steps=told, merge=True")
        with subprocess.Popen(
            [sys.executable, "-c", merge, str(rich), there, "20"], stdout=subprocess.PIPE, text=True
        ) as process:
            for _, _line in zip(range(stop), process.stdout, strict=False):
                pass
            process.kill()
    moving.copy(rich, there, merge=True)
    with Memory.open(there, embedder="none", settings=Settings()) as memory, Memory.open(rich) as source:
        for part in _parts(source)[::7]:
            ours, theirs = (
                [(event.action, event.at, event.detail) for event in one.store.records.history(part.values[0])]
                for one in (source, memory)
            )
            assert ours == theirs
        assert len(memory.history("before")) == 1


def test_a_copy_into_itself_is_refused(rich: Path, new_schema: Name, tmp_path: Path) -> None:
    """By whatever name, and nothing changes."""
    other = tmp_path / "other.db"
    other.symlink_to(rich)
    schema = new_schema()
    moving.copy(rich, schema)
    for one, two in ((rich, rich), (rich, other), (f"sqlite://{rich}", other), (schema, schema)):
        before = exported(one, tmp_path)
        with pytest.raises(UsageError, match="same store"):
            moving.copy(one, two)
        assert exported(one, tmp_path) == before


def test_a_target_with_other_records_is_refused(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """Records that the source does not have, or has otherwise, are named; the target stays as it is."""
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


def test_a_merge_adds_what_is_missing_and_overwrites_nothing(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """What differs is reported and stays; a second merge adds nothing."""
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
        found = memory.search("lighthouse tide n23n", sources=["keyword"]).results
        assert any("n23n" in result.record.text for result in found)
    before = exported(there, tmp_path)
    assert nothing(moving.copy(rich, there, merge=True))
    assert exported(there, tmp_path) == before


def test_what_was_purged_does_not_come_back(new_place: Name, new_file: Name, tmp_path: Path) -> None:
    """A purged record is copied as such, without a word of it; and merging the old content leaves it purged."""
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


def test_a_dry_run_makes_nothing(rich: Path, new_place: Name, tmp_path: Path) -> None:
    """It counts what would be copied, and there is no target afterwards either."""
    there = new_place()
    plan = moving.copy(rich, there, dry_run=True)
    assert plan.dry_run
    assert plan.added == plan.total
    assert not _is_there(there)
    moving.copy(rich, there)
    assert nothing(moving.copy(rich, there, dry_run=True))
    assert _is_there(there)


def _is_there(place: str) -> bool:
    from recollect.moving.places import exists

    return exists(place)


def test_a_source_that_is_not_there_is_not_made(new_place: Name, new_file: Name) -> None:
    """A name that was mistyped is said to be one."""
    missing, there = new_place(), new_file()
    with pytest.raises(UsageError, match="there is no store"):
        moving.copy(missing, there)
    assert not _is_there(missing)
    assert not Path(there).exists()


def test_the_command_copies(rich: Path, new_file: Name, run: Callable[..., Any]) -> None:
    """It says what it did; a refusal is wrong use, with what to do."""
    there = new_file()
    dry = run("copy", rich, there, "--dry-run")
    assert (dry.returncode, dry.stdout[:16]) == (0, b"would be copied:")
    done = run("copy", rich, there, "--json")
    assert done.returncode == 0, done.stderr
    assert b'"sha256": "' in done.stdout
    again = run("copy", rich, there)
    assert again.stdout.startswith(b"copied 0 records\nthere already: 3")
    same = run("copy", rich, rich)
    assert (same.returncode, b"same store" in same.stderr) == (2, True)
    assert run("--store", there, "add", "a stranger", "--embedder", "none").returncode == 0
    refused = run("copy", rich, there)
    assert (refused.returncode, b"--merge" in refused.stderr) == (2, True)


def test_memory_stays_bounded(open_memory: Callable[..., Memory], path: Path, new_file: Name) -> None:
    """Sixty megabytes of text are copied with a few of them in memory at a time."""
    import tracemalloc

    memory = open_memory(embedder="none")
    memory.add_many([{"text": f"{number} " + "x y " * 250_000, "id": str(number)} for number in range(60)])
    tracemalloc.start()
    moving.copy(path, new_file())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 45_000_000

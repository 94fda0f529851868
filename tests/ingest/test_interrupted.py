"""kill -9 during indexing: the store opens, committed chunks stay, and the next run gives the result of one run."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from support.notes import grow, stir

from recollect import Memory
from recollect.config import Settings

INDEXER = Path(__file__).with_name("indexer.py")


def state(path: Path) -> tuple[list[Any], list[Any], int]:
    """The index without times and ids: records and files, and how many vectors are missing."""
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        records = [(r.path, r.lines, r.title, r.text, r.tags) for r in memory.list(limit=100_000)]
        missing = memory.status()["vectors"]["without"]
    connection = apsw.Connection(str(path))
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    files = list(connection.execute("SELECT path, root, size, digest FROM files ORDER BY path"))
    connection.close()
    return sorted(records), files, missing


def index_until(process: Any, delay: float | None) -> bool:
    """Let a process index and kill it `delay` seconds after it began to read; whether it came to its end."""
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "reading\n"
    if delay is not None:
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    done = process.stdout.readline() == "done\n"
    process.wait(120)
    return done


LONG = [pytest.mark.torture, pytest.mark.timeout(1800)]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rounds", "latest"),
    [
        pytest.param(5, None, id="short"),
        pytest.param(5, 0.3, id="short, early"),
        pytest.param(50, None, id="long", marks=LONG),
        pytest.param(50, 0.3, id="long, early", marks=LONG),
        pytest.param(50, 0.95, id="long, late", marks=LONG),
    ],
)
def test_killed_index_run_ends_like_an_uninterrupted_one(
    tmp_path: Path, notes: Path, start: Callable[..., Any], rounds: int, latest: float | None
) -> None:
    """Killed at random moments or at a share of the walk, with edits between; without confirmation."""
    chance = random.Random(rounds)
    grow(notes, chance, 300)
    store, killed = tmp_path / "killed.db", 0
    committed: set[str] = set()
    if latest is not None:
        assert index_until(start(INDEXER, store, notes), None)
        stir(notes, chance)
    for _ in range(rounds):
        where = [] if latest is None else [chance.uniform(0, latest)]
        delay = chance.uniform(0.0, 0.9) if latest is None else 0.2
        killed += not index_until(start(INDEXER, store, notes, *where), delay)
        with Memory.open(store, embedder="none", settings=Settings()) as memory:
            now = {record.path for record in memory.list(limit=100_000) if record.path}
        there = {str(path) for path in notes.rglob("*.md")}
        assert committed & there <= now, "what was committed stays"
        committed = now
        stir(notes, chance)
    assert killed, "no round was killed before its end"
    assert index_until(start(INDEXER, store, notes), None)
    whole = tmp_path / "whole.db"
    assert index_until(start(INDEXER, whole, notes), None)
    assert state(store) == state(whole)
    assert state(store)[2] == 0


def interrupt(memory: Memory, notes: Path, after: int = 0) -> None:
    """A run that Ctrl-C ends at its first file, or after some files."""

    def stop(done: int, _total: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.index(notes, reading=stop)


def fill(notes: Path, count: int) -> list[Path]:
    """Short notes."""
    paths = [notes / f"{number:03}.md" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text(f"Note n{number}n.\n")
    return paths


def held(memory: Memory) -> set[str]:
    """The files in the index."""
    return {record.path or "" for record in memory.list(limit=1000)}


@pytest.mark.ci
def test_files_of_an_interrupted_first_run_are_not_said_to_be_outdated(
    memory: Memory, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present rules have cut them, which is known while the run goes on and after the next one."""
    fill(notes, 5)
    monkeypatch.setattr("recollect.ingest.folder.BATCH_SECONDS", 0.0)
    interrupt(memory, notes, after=3)
    assert 0 < len(held(memory)) < 5
    assert "outdated_files" not in memory.status()
    memory.index(notes)
    assert "outdated_files" not in memory.status()


def test_deletions_before_interrupted_runs_do_not_add_up(memory: Memory, notes: Path) -> None:
    """Two files are deleted before each of eleven interrupted runs; the twelfth removes all of them."""
    paths = fill(notes, 100)
    memory.index(notes)
    for number in range(11):
        for path in paths[2 * number : 2 * number + 2]:
            path.unlink()
        interrupt(memory, notes)
        assert len(held(memory)) == 100
    report = memory.index(notes)
    assert (len(report.removed), report.unconfirmed) == (22, [])
    assert held(memory) == set(map(str, paths[22:]))


def test_many_vanished_files_wait_for_confirm_after_interrupted_runs_too(memory: Memory, notes: Path) -> None:
    """What earlier walks noted as missing is removed; what this walk misses in large numbers waits for a word."""
    paths = fill(notes, 100)
    memory.index(notes)
    for path in paths[:15]:
        path.unlink()
    interrupt(memory, notes)
    for path in paths[15:60]:
        path.unlink()
    interrupt(memory, notes)
    report = memory.index(notes)
    assert (report.removed, report.unconfirmed) == (list(map(str, paths[:15])), list(map(str, paths[15:60])))
    assert held(memory) == set(map(str, paths[15:]))
    assert len(memory.index(notes, confirm=True).removed) == 45


def test_file_that_comes_back_is_not_missing_any_more(memory: Memory, notes: Path) -> None:
    """It is not removed, and its first absence does not count next time."""
    paths = fill(notes, 60)
    memory.index(notes)
    away = notes.with_name("away")
    away.mkdir()
    for path in paths[:15]:
        path.rename(away / path.name)
    interrupt(memory, notes)
    for path in paths[:15]:
        (away / path.name).rename(path)
    interrupt(memory, notes)
    for path in paths[:40]:
        path.unlink()
    report = memory.index(notes)
    assert (report.removed, len(report.unconfirmed)) == ([], 40)
    assert len(held(memory)) == 60


def test_dry_run_records_nothing_as_missing(memory: Memory, notes: Path) -> None:
    """It lists what a run would remove."""
    paths = fill(notes, 30)
    memory.index(notes)
    before = memory.store.files.known(str(notes))
    for path in paths[:5]:
        path.unlink()
    assert len(memory.index(notes, dry_run=True).removed) == 5
    assert memory.store.files.known(str(notes)) == before


def test_ignored_files_are_removed_without_confirm(memory: Memory, notes: Path) -> None:
    """However many: an ignore file is a decision."""
    (notes / "secret").mkdir()
    fill(notes / "secret", 30)
    paths = fill(notes, 60)
    memory.index(notes)
    (notes / ".recollectignore").write_text("secret/\n")
    for path in paths[:40]:
        path.unlink()
    report = memory.index(notes)
    assert (len(report.removed), len(report.unconfirmed)) == (30, 40)
    assert {Path(path).parent.name for path in report.removed} == {"secret"}
    assert held(memory) == set(map(str, paths))

"""kill -9 during indexing: the store opens, what was committed stays, and the next run ends where one run would."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory
from recollect.config import Settings

INDEXER = Path(__file__).with_name("indexer.py")


def grow(folder: Path, chance: random.Random, files: int) -> None:
    """A tree of notes with sections, some of them long."""
    for number in range(files):
        place = folder / f"part{number % 7}"
        place.mkdir(exist_ok=True)
        body = "".join(
            f"## Section {n}\n\n{' '.join(chance.choices(VOCABULARY, k=chance.randrange(20, 160)))}\n\n"
            for n in range(chance.randrange(1, 12))
        )
        (place / f"{number:04}.md").write_text(f"# Note {number}\n\n{body}")


VOCABULARY = [f"word{number}" for number in range(2000)]


def stir(folder: Path, chance: random.Random) -> None:
    """Edits, moves and deletions between two rounds, fewer than would need confirming."""
    files = sorted(folder.rglob("*.md"))
    for path in chance.sample(files, 12):
        path.write_text(path.read_text() + f"\n## More\n\n{' '.join(chance.choices(VOCABULARY, k=60))}\n")
    for path in chance.sample(files, 12):
        path.rename(path.with_name(f"moved-{chance.randrange(10**9)}-{path.name[-7:]}"))
    chance.choice(sorted(folder.rglob("*.md"))).unlink()


def state(path: Path) -> tuple[list[Any], list[Any], int]:
    """The index as a person could tell it: records and files but for times, and how many vectors are missing."""
    with Memory.open(path, embedder="hashing:64", settings=Settings()) as memory:
        records = [(r.id, r.path, r.lines, r.title, r.text, r.tags) for r in memory.list(limit=100_000)]
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


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(5, id="short"),
        pytest.param(50, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_an_index_that_was_killed_ends_as_one_that_was_not(
    tmp_path: Path, notes: Path, start: Callable[..., Any], rounds: int
) -> None:
    """Killed at random moments while files are read, stored and embedded; edited between; the last run is whole."""
    chance = random.Random(rounds)
    grow(notes, chance, 300)
    store, killed = tmp_path / "killed.db", 0
    committed: set[str] = set()
    for _ in range(rounds):
        killed += not index_until(start(INDEXER, store, notes), chance.uniform(0.0, 0.9))
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

"""SQLite to PostgreSQL to SQLite, interrupted on the way: the same export, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import DOCS
from support import postgres as server_kit

from recollect import Memory, moving
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.models.hashing import HashingEmbedder

WORDS = (DOCS / "guarantees.md").read_text(encoding="utf-8").split()
ADDED_AT_ONCE = 5_000

COPY = """
import sys
from recollect import moving
def told(step):
    print(step, flush=True)
    return lambda done, total: print(done, total, flush=True)
moving.copy(sys.argv[1], sys.argv[2], steps=told)
"""


def grow(path: Path, count: int) -> None:
    """A store of so many records of some dozen words each, some edited, superseded, forgotten and purged."""
    chance = random.Random(count)
    with Memory.open(path, embedder=HashingEmbedder(64), settings=Settings()) as memory:
        for start in range(0, count, ADDED_AT_ONCE):
            memory.add_many(
                {
                    "id": f"r{number}",
                    "text": f"{' '.join(chance.choices(WORDS, k=chance.randint(5, 40)))} {number}",
                    "title": chance.choice(WORDS) if number % 3 else "",
                    "tags": chance.sample(("reed", "tide", "heron"), 2),
                    "importance": chance.random(),
                    "scope": {"user": f"u{number % 50}"} if number % 2 else {},
                }
                for number in range(start, min(start + ADDED_AT_ONCE, count))
            )
        for number in range(0, count, 100):
            memory.edit(f"r{number}", text=f"edited {number}")
            memory.supersede(f"r{number + 1}", text=f"instead of {number}")
        memory.forget(*(f"r{number}" for number in range(2, count, 100)))
        memory.forget(*(f"r{number}" for number in range(3, count, 100)), purge=True)


def interrupted(source: str, target: str, share: float) -> None:
    """Copy in a process that is killed when about that share of the parts is copied."""
    with subprocess.Popen([sys.executable, "-c", COPY, source, target], stdout=subprocess.PIPE, text=True) as process:
        copying = False
        for line in process.stdout:
            copying = copying or line == "copying\n"
            done, _, total = line.partition(" ")
            if copying and total and int(done) >= share * int(total):
                break
        time.sleep(random.random() / 10)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was alive until it was killed"


@pytest.mark.ci
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(2_000, id="short"),
        pytest.param(100_000, id="long", marks=[pytest.mark.torture, pytest.mark.timeout(3600)]),
    ],
)
def test_sqlite_to_postgresql_and_back_is_the_same_export(
    tmp_path: Path, new_schema: Callable[[], str], count: int
) -> None:
    """Killed at two random moments on the way there, and once on the way back."""
    first, there, back = str(tmp_path / "first.db"), new_schema(), str(tmp_path / "back.db")
    spent = [("start", time.monotonic())]

    def passed(step: str) -> None:
        spent.append((step, time.monotonic()))

    grow(Path(first), count)
    passed("made")
    for share in sorted(random.uniform(0.05, 0.9) for _ in range(2)):
        interrupted(first, there, share)
        passed(f"killed at {share:.2f}")
    moving.copy(first, there)
    passed("copied to PostgreSQL")
    interrupted(there, back, random.uniform(0.05, 0.9))
    passed("killed on the way back")
    moving.copy(there, back)
    passed("copied back")
    digests = set()
    for place in (first, there, back):
        file = tmp_path / "export.jsonl"
        moved = moving.export(place, file)
        digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
        passed(f"exported {file.stat().st_size:,} bytes")
        file.unlink()
        assert moved.total["record"] == count + count // 100
    assert len(digests) == 1
    steps = [f"{step} {at - before:.1f} s" for (_, before), (step, at) in itertools.pairwise(spent)]
    print(f"{count:,} records: {', '.join(steps)}")  # noqa: T201


def test_texts_sort_alike_in_every_store(postgres_url: str) -> None:
    """With any characters, including those that PostgreSQL cannot store directly."""
    import psycopg

    from recollect.stores.postgres.connections import ADAPTERS, unescaped
    from recollect.stores.postgres.contents import ascending

    signs = "\0\x01\x02\x03\x0f\x10\x110a\x7fé😀"
    texts = ["".join(some) for length in range(4) for some in itertools.product(signs, repeat=length)]
    with psycopg.connect(postgres_url, context=ADAPTERS) as connection:
        connection.execute("CREATE TEMP TABLE texts (word text)")
        with connection.cursor().copy("COPY texts FROM STDIN") as copy:
            for word in random.sample(texts, len(texts)):
                copy.write_row((word,))
        rows = connection.execute(f"SELECT word FROM texts ORDER BY {ascending('word', 'text')}")
        assert [unescaped(word) for (word,) in rows] == sorted(texts)


def test_role_under_row_level_security_cannot_move_a_store(
    rich: Path, new_schema: Callable[[], str], postgres_url: str, tmp_path: Path
) -> None:
    """It would see one scope only: an error, not a small export."""
    import psycopg

    there = new_schema()
    moving.copy(rich, there)
    schema = there.rpartition("=")[2]
    role = f"r{schema}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    try:
        walled = re.sub("//[^/]*@", f"//{role}:{role}@", there, count=1)
        with pytest.raises(StoreError, match="only the rows of one scope") as caught:
            moving.export(walled, tmp_path / "part.jsonl")
        assert "owns its tables" in caught.value.hint
        assert not (tmp_path / "part.jsonl").exists()
        with pytest.raises(StoreError, match="only the rows of one scope"):
            moving.copy(rich, walled)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def start_again(server: Any) -> None:
    """Start a server that was killed; those it had started may take a moment to notice."""
    for _ in range(100):
        with contextlib.suppress(subprocess.CalledProcessError):
            server.start()
            return
        time.sleep(0.1)
    server.start()


@pytest.mark.ci
def test_killed_server_is_an_error_and_the_copy_continues(
    rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a copy to it and from it; the next run completes it."""
    monkeypatch.setattr(moving.transfer, "BATCH_PARTS", 50)
    server = server_kit.Server.make(**server_kit.QUICK)

    def dies(step: str) -> Callable[[int, int], None] | None:
        return (lambda done, total: server.kill() if done > total / 2 else None) if step == "copying" else None

    try:
        there, back = server.url(schema="killed"), tmp_path / "back.db"
        for one, two in ((rich, there), (there, back)):
            with pytest.raises(StoreError) as caught:
                moving.copy(one, two, steps=dies)
            assert caught.value.hint
            start_again(server)
            moving.copy(one, two)
        for number, place in enumerate((rich, there, back)):
            moving.export(place, tmp_path / f"{number}.jsonl")
        assert len({(tmp_path / f"{number}.jsonl").read_bytes() for number in range(3)}) == 1
    finally:
        server.remove()

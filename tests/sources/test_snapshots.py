"""A search reads the store in one transaction; a source that has a deadline reads in one of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect import Memory

RECORDS = 3_000


@pytest.fixture
def begun(memory: Memory) -> list[str]:
    """The read transactions that are begun from now on."""
    transactions: list[str] = []
    database = memory.store._database
    take = database._take

    def traced() -> apsw.Connection:
        connection = take()
        connection.set_exec_trace(lambda _cursor, sql, _values: sql != "BEGIN" or not transactions.append(sql))
        return connection

    database._take = traced
    return transactions


def warm(memory: Memory, begun: list[str]) -> None:
    """Search once, so that models and caches are there."""
    memory.search("heron")
    begun.clear()


def test_warm_hybrid_search_has_one_snapshot(memory: Memory, begun: list[str]) -> None:
    """Keyword search, vector search and the reading of records share it; with a deadline each source has its own."""
    for number in range(5):
        memory.add(f"a heron, number {number}")
    warm(memory, begun)
    answer = memory.search("heron")
    assert (len(answer.results), answer.trace.mode, answer.trace.lag) == (5, "hybrid", {"files": 0, "vectors": 0})
    assert len(begun) == 1
    begun.clear()
    memory.search("heron", budget_ms=60_000)
    assert 2 <= len(begun) <= 2 + 1  # the stages need one where they read a record that no source has read
    begun.clear()
    memory.search("heron", sources=["keyword"])
    assert len(begun) == 1 + 1  # the lag of the vectors, which no source has counted


def test_stages_read_in_one_snapshot(memory: Memory, begun: list[str], tmp_path: Path) -> None:
    """File states and vectors for MMR are read in the same transaction."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "birds.md").write_text("# Herons\n\nA heron stands.\n\n# Storks\n\nA heron is no stork.\n")
    memory.index(tmp_path / "notes")
    memory.add("a heron flies")
    warm(memory, begun)
    answer = memory.search("heron", mmr=True)
    assert {result.freshness for result in answer.results} == {"fresh", None}
    assert len(begun) == 1


def test_coverage_is_counted_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lag in the trace is the number that the vector source has counted."""
    memory.add("a heron")
    memory.search("heron")
    index = memory.embeddings.serving().index
    counted: list[object] = []
    coverage: Callable[..., tuple[int, int]] = index.coverage
    monkeypatch.setattr(index, "coverage", lambda *where: counted.append(where) or coverage(*where))
    memory.search("heron")
    assert len(counted) == 1


def test_a_search_after_a_change_reads_the_change_alone(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process adds costs the next search the same in a small and in a large store."""
    steps = Counter[str]()

    def count(event: dict[str, Any]) -> None:
        steps[event["sql"]] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    database = memory.store._database
    take = database._take

    def traced() -> apsw.Connection:
        connection = take()
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        return connection

    monkeypatch.setattr(database, "_take", traced)
    memory.add_many([{"text": f"a heron, number {number}"} for number in range(RECORDS)])
    memory.search("heron")
    with Memory.open(database.path, embedder="hashing:64") as other:
        other.add("a stork")
    steps.clear()
    assert memory.search("stork").results[0].record.text == "a stork"
    assert 0 < max(steps.values()) < RECORDS, steps.most_common(3)

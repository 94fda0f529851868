"""Real texts and queries: the top ten with LanceDB compared with the exact one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import DATA

from recollect import Memory
from recollect.stores.lance import table
from recollect.stores.lance.table import LanceTable

EMBEDDER = os.environ.get("RECOLLECT_PARITY_EMBEDDER", "hashing:256")


def lines(name: str) -> Iterator[dict[str, str]]:
    """The lines of all files of that name in the two sets."""
    for folder in sorted([*(DATA / "locomo").glob("*"), DATA / "openclaw_docs"]):
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def pieces() -> Iterator[str]:
    """Turns of conversations, and paragraphs of documentation."""
    for row in lines("corpus.jsonl"):
        yield from (part.strip() for part in row["text"].split("\n\n") if len(part.strip()) > 40)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("records", "asked_for"),
    [pytest.param(3_500, 100, id="short"), pytest.param(5_000, 500, id="long", marks=pytest.mark.torture)],
)
def test_top_ten_of_real_questions_equals_the_sqlite_store(
    opened: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, asked_for: int
) -> None:
    """At least 98 of 100 with the approximate index; common results have the same score."""
    if not (DATA / "openclaw_docs" / "corpus.jsonl").is_file():
        pytest.skip(f"locomo and openclaw_docs are not in {DATA} (RECOLLECT_DATA)")
    monkeypatch.setattr(table, "INDEX_FROM", 1_000)
    asked: list[bool] = []
    nearest = LanceTable.nearest
    monkeypatch.setattr(LanceTable, "nearest", lambda *a, exact: asked.append(exact) or nearest(*a, exact=exact))
    texts = list(dict.fromkeys(pieces()))[:records]
    assert len(texts) == records
    questions = [row["text"] for row in lines("queries.jsonl")]
    questions = questions[:: len(questions) // asked_for][:asked_for]
    ours, theirs = opened(f"lancedb://{tmp_path}/memory", EMBEDDER), opened(tmp_path / "plain.db", EMBEDDER)
    theirs.add_many({"text": text, "id": f"r{i}"} for i, text in enumerate(texts))
    moved(theirs, ours)
    shared = 0.0
    for question in questions:
        exact, found = (top_ten(memory, question) for memory in (theirs, ours))
        assert all(found[key] == exact[key] for key in found.keys() & exact.keys())
        shared += len(found.keys() & exact.keys()) / len(exact)
    assert len(asked) >= len(questions)
    assert not any(asked)
    assert shared / len(questions) >= 0.98


def moved(source: Memory, target: Memory) -> None:
    """Copy the records of one memory with their vectors to another."""
    records = source.list(limit=10_000)
    space = source.store.spaces.active
    target.store.spaces.activate(space)
    vectors = source.store.spaces.open(space).vectors([record.id for record in records])
    index = target.store.spaces.open(space)
    for start in range(0, len(records), 1_000):
        part = records[start : start + 1_000]
        index.save([record.passage for record in part], np.stack([vectors[record.id] for record in part]))
    target.add_many({"text": record.text, "id": record.id, "created_at": record.created_at} for record in records)
    target.embed()


def top_ten(memory: Memory, question: str) -> dict[str, float | None]:
    """The ten nearest records with their similarities."""
    answer = memory.search(question, sources=["vector"], limit=10, plain=True)
    return {result.record.id: result.similarity for result in answer.results}

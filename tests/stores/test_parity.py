"""The same records and questions give the same answers in a file and in PostgreSQL."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import DATA

from recollect import Memory
from recollect.config import Settings
from recollect.types import Answer

CHUNK = 1500


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            yield json.loads(line)


def folders() -> list[Path]:
    """The development sets that the comparison takes."""
    conversations = sorted(path.parent for path in (DATA / "locomo").glob("*/corpus.jsonl"))
    return [*conversations, DATA / "openclaw_docs"]


def corpus() -> Iterator[dict[str, Any]]:
    """Turns of conversations, and documents in pieces."""
    for folder in folders():
        for said in lines(folder / "corpus.jsonl"):
            for start in range(0, max(1, len(said["text"])), CHUNK):
                text = said["text"][start : start + CHUNK]
                if text.strip():
                    key = f"{folder.name}/{said['_id']}/{start}"
                    yield {"id": key, "text": text, "title": said.get("title") or "", "category": folder.name}


@pytest.fixture(
    params=[pytest.param((600, 40), id="short"), pytest.param((5000, 500), id="long", marks=pytest.mark.torture)]
)
def asked(request: pytest.FixtureRequest) -> tuple[list[dict[str, Any]], list[str]]:
    """Records and queries, drawn the same way each time."""
    if not (DATA / "openclaw_docs" / "corpus.jsonl").exists() or len(folders()) == 1:
        pytest.skip(f"locomo and openclaw_docs are not in {DATA} (RECOLLECT_DATA)")
    chance, (records, questions) = random.Random(1), request.param
    every = [said["text"] for folder in folders() for said in lines(folder / "queries.jsonl")]
    return chance.sample(list(corpus()), records), chance.sample(every, questions)


def ranked(answer: Answer) -> list[tuple[str, float]]:
    """The ids of a keyword answer, each with its BM25, to seven places."""
    return [(result.record.id, round(result.shares["keyword"].score, 7)) for result in answer.results]


def same_but_for_ties(first: list[tuple[str, float]], second: list[tuple[str, float]]) -> bool:
    """The same scores in the same order, and above the last score, where more may tie than are shown, the same ids."""
    if [score for _, score in first] != [score for _, score in second]:
        return False
    last = first[-1][1] if first else 0.0
    return {key for key, score in first if score > last} == {key for key, score in second if score > last}


@pytest.mark.ci
@pytest.mark.data
@pytest.mark.timeout(1200)
def test_sqlite_and_postgresql_answer_alike(
    tmp_path: Path, new_schema: Callable[[], str], asked: tuple[list[dict[str, Any]], list[str]]
) -> None:
    """The keyword top ten with scores is equal; the fused top ten shares at least 98 of a hundred."""
    records, questions = asked
    with (
        Memory.open(tmp_path / "m.db", embedder="hashing:256", settings=Settings()) as file,
        Memory.open(new_schema(), embedder="hashing:256", settings=Settings()) as server,
    ):
        for memory in (file, server):
            memory.add_many(records)
        assert file.status()["vectors"] == server.status()["vectors"]
        different = [question for question in questions if not same_by_words(file, server, question)]
        assert different == []
        shared = [overlap(file, server, question) for question in questions]
    print(f"{len(records)} records, {len(questions)} questions: fused overlap {sum(shared) / len(shared):.4f}")  # noqa: T201
    assert sum(shared) / len(shared) >= 0.98


def same_by_words(file: Memory, server: Memory, question: str) -> bool:
    """Whether both give the same by words, among all records and in one category."""
    for options in ({}, {"category": ["openclaw_docs"]}):
        said = {"sources": ["keyword"], "limit": 10, "decay": False, "importance_weight": 0.0, **options}
        if not same_but_for_ties(*(ranked(memory.search(question, plain=True, **said)) for memory in (file, server))):
            return False
    return True


def overlap(file: Memory, server: Memory, question: str) -> float:
    """The share of the first ten that both give."""
    answers = (memory.search(question, limit=10, plain=True) for memory in (file, server))
    first, second = ({result.record.id for result in answer.results} for answer in answers)
    return len(first & second) / max(1, len(first))

"""The same records and questions give the same answers in a file and in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores.test_parity import asked as asked  # noqa: PLC0414  (a fixture)
from stores.test_parity import ranked, same_but_for_ties
from support.tally import note

from recollect import Memory
from recollect.config import Settings

TENANTS = 20


def tenants(records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The records, one in five of them for all, the others of twenty users."""
    for number, record in enumerate(records):
        yield record if number % 5 == 0 else {**record, "user": f"user{number % TENANTS}"}


@pytest.mark.data
@pytest.mark.timeout(3600)
def test_file_and_cluster_answer_alike(
    tmp_path: Path, place: str, asked: tuple[list[dict[str, Any]], list[str]]
) -> None:
    """By words the top ten with scores is equal, of one user and of all; the fused top ten shares 98 of a hundred."""
    records, questions = asked
    with (
        Memory.open(tmp_path / "m.db", embedder="hashing:256", settings=Settings()) as file,
        Memory.open(place, embedder="hashing:256", settings=Settings()) as cluster,
    ):
        for memory in (file, cluster):
            memory.add_many(list(tenants(records)))
        assert file.status()["vectors"] == cluster.status()["vectors"]
        shared = []
        for number, question in enumerate(questions):
            for scope in ({"user": f"user{number % TENANTS}"}, {"any_scope": True}):
                plain = {"limit": 10, "plain": True, **scope}
                words = {"sources": ["keyword"], "decay": False, "importance_weight": 0.0, **plain}
                assert same_but_for_ties(*(ranked(memory.search(question, **words)) for memory in (file, cluster)))
                first, second = (
                    {result.record.id for result in memory.search(question, **plain).results}
                    for memory in (file, cluster)
                )
                shared.append(len(first & second) / max(1, len(first)))
    overlap = sum(shared) / len(shared)
    assert overlap >= 0.98
    note("a file and a cluster", records=len(records), questions=len(questions), fused_overlap=overlap)

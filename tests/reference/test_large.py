"""The real search against the reference in a store that is large enough for files of its index."""

from __future__ import annotations

import contextlib
import random
import string
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import Memory
from recollect.models.hashing import HashingEmbedder
from recollect.types import Put, Scope
from reference.search import World, search
from reference.stores import a_change, a_record, check, described, small_sizes, some_options

QUERIES = 40
VOCABULARY = [first + second for first in ("lake", "boat", "reed", "oar") for second in string.ascii_lowercase]
USERS = [f"user {number}" for number in range(50)]


def a_sentence(chance: random.Random) -> str:
    """Words of which some are much more frequent than others."""
    return " ".join(VOCABULARY[int(len(VOCABULARY) * chance.random() ** 3)] for _ in range(chance.randint(2, 14)))


def fill(chance: random.Random, memory: Memory, count: int) -> list[str]:
    """Store records of many users, a tenth of them duplicates, and return their ids."""
    records = {record.id: record for record in (a_record(chance, ()) for _ in range(count))}
    texts = [a_sentence(chance) for _ in range(9 * count // 10)]
    changes = []
    for record in records.values():
        scope = Scope(chance.choice(USERS)) if chance.random() < 0.5 else Scope()
        changes.append(Put(replace(record, text=chance.choice(texts), title="", scope=scope)))
    memory.store.records.apply([changes[: count // 2]])
    memory.search("lake")
    memory.store.records.apply([[change] for change in changes[count // 2 :]])
    memory.embed()
    return list(records)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.ci)])
@pytest.mark.parametrize("count", [600, pytest.param(5_000, marks=pytest.mark.ci)])
def test_search_in_a_large_store_equals_the_reference(
    seed: int, count: int, path: Path, open_memory: Callable[..., Memory]
) -> None:
    """Vectors of 64 dimensions, changes between the queries, the store reopened; the smaller acts as a large one."""
    with small_sizes(str(path)) if count < 5_000 else contextlib.nullcontext():
        run(random.Random(seed), count, open_memory)


def run(chance: random.Random, count: int, open_memory: Callable[..., Memory]) -> None:
    """Compare answers, with changes between them."""
    embedder = HashingEmbedder(64)
    memory = open_memory(embedder=embedder)
    known = fill(chance, memory, count)
    for number in range(QUERIES):
        if number % 4 == 0:
            for _ in range(10):
                a_change(chance, memory, known)
        if number % 10 == 9:
            memory = open_memory(embedder=embedder)
        compare(chance, memory, embedder, known)


def compare(chance: random.Random, memory: Memory, embedder: HashingEmbedder, known: list[str]) -> None:
    """One random query."""
    options = {**some_options(chance), "mmr": False}
    options |= {"user": chance.choice(USERS)} if chance.random() < 0.5 else {}
    text = a_sentence(chance)
    records = memory.store.records.get(list(dict.fromkeys(known)))
    vectors = {record.id: embedder.query(record.passage).tolist() for record in records}
    world = World(records, vectors, lambda query: embedder.query(query).tolist())
    answer = memory.search(text, **options)
    check(described(answer), search(world, text, options, answer.query.filter.now))

"""The real search against the reference, over random stores and queries."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import Memory
from recollect.config import Settings
from reference.stores import Case, TinyEmbedder, small_sizes

QUERIES = 3  # for each random store, with changes between them
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def compare(chance: random.Random, place: str) -> None:
    """Make a random store, and compare several answers with the reference, with changes between them."""
    embedder = TinyEmbedder(exact=chance.random() < 0.8)

    def reopened() -> Memory:
        return Memory.open(place, embedder=embedder, settings=Settings(), announce=lambda _: None)

    with contextlib.ExitStack() as stack:
        if chance.random() < 0.6:
            stack.enter_context(small_sizes(place))
        case = Case.fill(chance, stack.enter_context(reopened()), embedder)
        for _ in range(QUERIES):
            case.compare(chance)
            for _ in range(chance.choice((1, 1, 3))):
                case.change(chance)
            if chance.random() < 0.3:
                case.memory = stack.enter_context(reopened())
        case.compare(chance)


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@given(st.randoms(use_true_random=False))
def test_search_equals_the_reference(chance: random.Random) -> None:
    """Ids, order, scores, shares, factors, moves, snippets and counts; a failure is made as small as possible."""
    with tempfile.TemporaryDirectory() as folder:
        compare(chance, str(Path(folder) / "memory.db"))


def compare_seeds(seeds: Iterable[int], new_place: Callable[[], str]) -> None:
    """Compare for stores that are the same ones each time."""
    for seed in seeds:
        try:
            compare(random.Random(seed), new_place())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=pytest.mark.ci) for n in range(1, 20))])
def test_search_equals_the_reference_for_many_seeds(block: int, tmp_path: Path) -> None:
    """The same for a hundred stores a block, two thousand in all."""
    numbers = itertools.count()
    compare_seeds(range(block * 100, block * 100 + 100), lambda: str(tmp_path / f"{next(numbers)}.db"))


@pytest.mark.parametrize("stores", [3, pytest.param(60, marks=pytest.mark.ci)])
def test_search_in_postgresql_equals_the_reference(stores: int, new_schema: Callable[[], str]) -> None:
    """The same in PostgreSQL."""
    compare_seeds(range(stores), new_schema)


@pytest.mark.parametrize("stores", [3, pytest.param(60, marks=pytest.mark.ci)])
def test_search_with_lancedb_equals_the_reference(stores: int, tmp_path: Path) -> None:
    """The same with LanceDB."""
    pytest.importorskip("lancedb")
    numbers = itertools.count()
    compare_seeds(range(stores), lambda: f"lancedb://{tmp_path}/{next(numbers)}?batch=10")

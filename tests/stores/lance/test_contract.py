"""The store contract with LanceDB answering: every third vector is committed, and no candidate is to spare."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.stores.lance.table import LanceTable
from recollect.testing import StoreContract
from recollect.testing.harness import StoreFixtures
from recollect.testing.lifecycle import ForgettingContract
from recollect.testing.retrieval import RankingContract, SpacesContract, VisibilityContract

MUST_ASK = (
    "test_hidden_records_change_nothing_in_an_answer",
    "test_equal_scores_are_ordered_by_time_and_id",
    "test_duplicates_are_left_out_and_the_next_records_take_their_places",
    "test_a_shorter_search_returns_the_beginning_of_a_longer_one",
    "test_vectors_saved_by_another_process_are_found",
)
"""Cases that search for fewer records than there are, so that LanceDB chooses the candidates."""


class LanceFixtures(StoreFixtures):
    """A folder that commits every third vector."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], str]:
        """A new folder at each call."""
        counter = itertools.count()
        return lambda: f"lancedb://{tmp_path}/store-{next(counter)}?batch=3"

    @pytest.fixture(autouse=True)
    def _lancedb_answers(
        self, eager: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        """LanceDB must have answered in the cases that search for fewer records than there are."""
        answers: list[int] = []
        nearest = LanceTable.nearest

        def counted(*arguments: Any, **options: Any) -> Any:
            numbers = nearest(*arguments, **options)
            answers.append(len(numbers))
            return numbers

        monkeypatch.setattr(LanceTable, "nearest", counted)
        yield
        if request.node.originalname in MUST_ASK:
            assert any(answers), "LanceDB was not asked"
            assert "lancedb" in sys.modules


class TestVectors(LanceFixtures, RankingContract, SpacesContract, VisibilityContract, ForgettingContract):
    """What depends on the vector index. Records, files and history are those of the SQLite file."""


@pytest.mark.torture
class TestEverything(LanceFixtures, StoreContract):
    """The whole contract."""

"""The contract that every store keeps, as pytest tests that a store's author inherits.

from recollect.testing import StoreContract

class TestMyStore(StoreContract):
opener = "my_package.store:open_store"

@pytest.fixture
def new_place(self, tmp_path):
numbers = itertools.count()
return lambda: f"mystore://{tmp_path}/{next(numbers)}"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

pytest.register_assert_rewrite(
    *(f"recollect.testing.{name}" for name in ("catalog", "concurrency", "lifecycle", "retrieval", "storage"))
)

# ruff: noqa: E402  (pytest rewrites the assertions of these modules when they are imported)
from recollect.testing.catalog import FilesContract
from recollect.testing.concurrency import ChangesContract, CrowdContract
from recollect.testing.harness import OpenStore, open_named
from recollect.testing.lifecycle import ForgettingContract, SupersessionContract
from recollect.testing.retrieval import RankingContract, SpacesContract, VisibilityContract
from recollect.testing.storage import HostileContract, RecordsContract
from recollect.types import Store

__all__ = ["StoreContract"]


class StoreContract(
    RecordsContract,
    SupersessionContract,
    ForgettingContract,
    VisibilityContract,
    RankingContract,
    SpacesContract,
    FilesContract,
    HostileContract,
    ChangesContract,
    CrowdContract,
):
    """What every store must do. Subclass it with a fixture `new_place`, and name your `opener`.

    `opener` is `module:function`, a function of a place (a text) and, by name, the `language` of a new store; it is a
    name because other processes open the same place, too. `new_place` gives a function whose every call names a place
    where nothing is kept yet.
    """

    opener: ClassVar[str] = "recollect.stores:open_store"

    @pytest.fixture
    def new_place(self) -> Callable[[], str]:
        """Override it: names a place where nothing is kept yet, a new one at each call."""
        raise NotImplementedError

    @pytest.fixture
    def open_store(self, new_place: Callable[[], str]) -> Iterator[OpenStore]:
        """Opens stores, and closes them all when the test ends."""
        opened: list[Store] = []

        def open_one(place: str | None = None, **options: Any) -> Store:
            opened.append(open_named(self.opener, place or new_place(), **options))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def place(self, new_place: Callable[[], str]) -> str:
        """Where the test's store is."""
        return new_place()

    @pytest.fixture
    def store(self, open_store: OpenStore, place: str) -> Store:
        """A new store."""
        return open_store(place)

"""The contract put together: what a test class inherits, and the fixtures it stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from recollect.testing.asking import OpenStore
from recollect.testing.changes import ChangesContract
from recollect.testing.crowds import CrowdContract
from recollect.testing.files import FilesContract
from recollect.testing.forgetting import ForgettingContract
from recollect.testing.hostile import HostileContract
from recollect.testing.ranking import RankingContract
from recollect.testing.records import RecordsContract
from recollect.testing.spaces import SpacesContract
from recollect.testing.supersession import SupersessionContract
from recollect.testing.visibility import VisibilityContract
from recollect.testing.worker import open_named
from recollect.types import Store


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

"""The contract that every store keeps, as pytest tests that the author of a store inherits.

    from recollect.testing import StoreContract

    class TestMyStore(StoreContract):
        opener = "my_package.store:open_store"

        @pytest.fixture
        def new_place(self, tmp_path):
            numbers = itertools.count()
            return lambda: f"mystore://{tmp_path}/{next(numbers)}"

This package needs pytest, which the extra `dev` installs.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"recollect.testing.{name}" for name in ("catalog", "concurrency", "lifecycle", "retrieval", "storage"))
)

# ruff: noqa: E402  (pytest rewrites the assertions of these modules when they are imported)
from recollect.testing.catalog import FilesContract
from recollect.testing.concurrency import ChangesContract, CrowdContract
from recollect.testing.harness import StoreFixtures
from recollect.testing.lifecycle import ForgettingContract, SupersessionContract
from recollect.testing.retrieval import RankingContract, SpacesContract, VisibilityContract
from recollect.testing.storage import HostileContract, RecordsContract

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
    StoreFixtures,
):
    """What every store must do. Subclass it with a fixture `new_place`, and name your `opener`."""

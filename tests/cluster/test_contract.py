"""A distributed store keeps the contract of every store."""

from collections.abc import Callable

import pytest

from recollect.testing import StoreContract


class TestCluster(StoreContract):
    """A schema whose tables are distributed."""

    @pytest.fixture
    def new_place(self, new_cluster_place: Callable[[], str]) -> Callable[[], str]:
        """A new distributed store at each call."""
        return new_cluster_place

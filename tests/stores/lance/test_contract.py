"""The contract of every store, for one with LanceDB: as it is, and with everything asked of LanceDB."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.testing import StoreContract


class TestAsItIs(StoreContract):
    """Few vectors wait in the file."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], str]:
        """A new folder at each call."""
        counter = itertools.count()
        return lambda: f"lancedb://{tmp_path}/store-{next(counter)}"


@pytest.mark.torture
@pytest.mark.usefixtures("eager")
class TestByLance(StoreContract):
    """Every third vector is a commit, and nothing is compared without asking LanceDB."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], str]:
        """A new folder at each call."""
        counter = itertools.count()
        return lambda: f"lancedb://{tmp_path}/store-{next(counter)}?batch=3"

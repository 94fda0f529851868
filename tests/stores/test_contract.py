"""Every store keeps the same contract (`recollect.testing`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.testing import StoreContract


class TestSqlite(StoreContract):
    """One file."""

    @pytest.fixture
    def new_place(self, tmp_path: Path) -> Callable[[], str]:
        """A new file at each call."""
        numbers = itertools.count()
        return lambda: str(tmp_path / f"{next(numbers)}.db")


class TestPostgres(StoreContract):
    """One schema of a PostgreSQL server."""

    @pytest.fixture
    def new_place(self, new_schema: Callable[[], str]) -> Callable[[], str]:
        """A new schema at each call."""
        return new_schema

"""The place of a test's store in PostgreSQL."""

from collections.abc import Callable

import pytest


@pytest.fixture
def place(new_schema: Callable[[], str]) -> str:
    """A schema of its own."""
    return new_schema()

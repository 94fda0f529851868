"""What the tests of the programme share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import tally as report


@pytest.fixture
def tally() -> Callable[..., None]:
    """Notes what a test did, once its checks have passed: `tally("kill -9 of writers", rounds=200, lost=0)`."""
    return report.note

"""How many examples a property of the kernel is tried with: 200, or 2,000 where TESTS_PROFILE is `ci`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

MANY = settings(
    max_examples=2_000 if os.environ.get("TESTS_PROFILE") == "ci" else 200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

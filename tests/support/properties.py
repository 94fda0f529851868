"""How many examples a property of the kernel is tried with: 200, or 2,000 where TESTS_PROFILE is `ci`."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("kernel", max_examples=200, deadline=None)
settings.register_profile("kernel-ci", max_examples=2_000, deadline=None)

MANY = settings.get_profile("kernel-ci" if os.environ.get("TESTS_PROFILE") == "ci" else "kernel")

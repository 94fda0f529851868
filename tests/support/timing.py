"""Times of tests. Upper bounds hold on a quiet machine only: `make deadlines` checks them, other runs do not.

Everywhere else a call that does not return in time is found by pytest's own timeout, because what it would wait for
never comes before the test has ended.
"""

import os
from collections.abc import Callable

CHECKED = os.environ.get("TESTS_DEADLINES", "") == "1"
FULL = os.environ.get("TORTURE", "") == "full"


def longest(seconds: int, full: int = 7_200) -> int:
    """How many seconds a long form may take: `make torture` ends it after its share of an hour."""
    return full if FULL else seconds


def within(seconds: float, most: float) -> bool:
    """Whether something took less than `most` seconds; True without looking, unless deadlines are being checked."""
    return not CHECKED or seconds < most


def child_cpu_seconds(action: Callable[[], object], times: int = 3) -> float:
    """The least processor time that the processes started by an action used; a busy machine hardly changes it."""
    spent = []
    for _ in range(times):
        before = os.times()
        action()
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(spent)

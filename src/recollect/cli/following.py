"""Following: what has happened, and then what happens, until somebody presses Ctrl-C."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from recollect.cli.watch import ending

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Event


def follow_history(memory: Memory, record_id: str, show: Callable[[Event], None]) -> None:
    """Show everything that happened to a record, oldest first, and then what happens to it, until it is ended."""
    seen = 0
    with ending(), memory.changes() as ticks:
        for told in itertools.chain([True], ticks):
            for event in memory.history(record_id) if told else ():
                if event.seq > seen:
                    show(event)
                    seen = event.seq

"""Following: what has happened, and then what happens, until somebody presses Ctrl-C."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.types import Event


def follow_history(memory: Memory, record_id: str, show: Callable[[Event], None]) -> None:
    """Show everything that happened to a record, oldest first, and then what happens to it, until it is ended."""
    seen = 0
    with _until_ended(), memory.changes() as ticks:
        for told in itertools.chain([True], ticks):
            for event in memory.history(record_id) if told else ():
                if event.seq > seen:
                    show(event)
                    seen = event.seq


@contextlib.contextmanager
def _until_ended() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how following is meant to end: without a word."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)

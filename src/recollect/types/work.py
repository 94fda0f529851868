"""How much one request may cost: until when it is worked on, how deep it reads, and whether anybody still waits."""

from __future__ import annotations

import math
import time

from recollect.errors import Cancelled, RecollectError, TimedOut


class Work:
    """The limits of one request. Long computations call `check` between their steps.

    `seconds` is counted from the moment the object is made; `deepest` is how many results of a source may be read.
    None means no limit. `cancel` may be called from any thread.
    """

    def __init__(self, seconds: float | None = None, *, deepest: int | None = None) -> None:
        self.deepest = deepest
        self.seconds = math.inf if seconds is None else seconds
        self._deadline = time.monotonic() + self.seconds
        self.cancelled = False

    def cancel(self) -> None:
        """Let the next `check` end the work."""
        self.cancelled = True

    def check(self) -> None:
        """Raise an error if the work was cancelled or its time is over."""
        if self.cancelled:
            raise Cancelled("the request was cancelled: the client has left")
        if time.monotonic() > self._deadline:
            raise self.late()

    def late(self) -> RecollectError:
        """The error that `check` raises when the time is over."""
        hint = "ask for less: a smaller `fetch_k` or `limit`, a shorter query"
        return TimedOut(f"the request took longer than {self.seconds:g} s", hint=hint)

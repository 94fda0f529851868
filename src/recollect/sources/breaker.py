"""A circuit breaker: a system that keeps failing is left alone for a while, then tried once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recollect.errors import LeftAlone, RecollectError
from recollect.types import Notes, Scope

FAILURES = 3
"""Failures in a row after which a system is left alone."""

FIRST_REST_S = 30.0
LONGEST_REST_S = 600.0
"""Each failed probe doubles the rest, up to this."""

ANSWER_SHOWN = 160


@dataclass(frozen=True, slots=True)
class BreakerState:
    """How a system has been doing. `until` is wall-clock time: the state outlives the process."""

    failures: int = 0
    rest: float = 0.0
    until: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Breaker:
    """Watches one system. Its state is kept in the store's notes, so that single commands learn from each other."""

    name: str
    notes: Notes
    clock: Callable[[], float] = time.time
    _state: BreakerState | None = None
    _probing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _bound: dict[Scope, Breaker] = field(default_factory=dict)

    def within(self, scope: Scope) -> Breaker:
        """The breaker of callers who are bound to a scope: their failures do not close the source to anybody else."""
        own = Breaker(f"{self.name} {scope.key}", self.notes, self.clock, _bound=self._bound)
        return self._bound.setdefault(scope, own)

    def enter(self) -> None:
        """Pass, or raise `LeftAlone`. When the rest is over one caller passes, as a probe, and the others wait."""
        with self._lock:
            state = self._load()
            if state.failures < FAILURES:
                return
            left = state.until - self.clock()
            left = 0.0 if left > LONGEST_REST_S else left  # the clock was set back
            if left > 0 or self._probing:
                when = f"for {max(1, round(left))} s more" if left > 0 else "while one question tries it"
                raise LeftAlone(
                    f"it failed {state.failures} times in a row and is left alone {when} (last: {state.reason})",
                    hint="it is tried again by itself",
                )
            self._probing = True

    def succeeded(self) -> None:
        """It answered: all is forgiven."""
        with self._lock:
            self._probing = False
            if self._load() != BreakerState():
                self._keep(BreakerState())

    def failed(self, reason: str) -> None:
        """It failed; from `FAILURES` in a row on it rests."""
        with self._lock:
            probed, self._probing = self._probing, False
            state = self._load()
            state = replace(state, failures=state.failures + 1, reason=reason[:ANSWER_SHOWN])
            # Of many that were under way only the first begins the rest; a failed probe makes the next one longer.
            if state.failures == FAILURES or (probed and state.failures > FAILURES):
                rest = min(LONGEST_REST_S, 2 * state.rest or FIRST_REST_S)
                state = replace(state, rest=rest, until=self.clock() + rest)
            self._keep(state)

    def left(self) -> None:
        """It was not waited for to the end: that says nothing about it."""
        with self._lock:
            self._probing = False

    def seen(self) -> BreakerState:
        """How it has been doing, for who only looks."""
        with self._lock:
            return self._load()

    def _load(self) -> BreakerState:
        if self._state is None:
            self._state = _read(self.notes.get(self._key))
        return self._state

    def _keep(self, state: BreakerState) -> None:
        self._state = state
        try:
            self.notes.put(self._key, json.dumps([state.failures, state.rest, state.until, state.reason]))
        except RecollectError:
            return  # a busy or closed store: this process remembers, the next one will find out for itself

    @property
    def _key(self) -> str:
        return f"breaker:{self.name}"


def _read(kept: str | None) -> BreakerState:
    """What was kept, if it is what we keep."""
    try:
        failures, rest, until, reason = json.loads(kept) if kept else (0, 0.0, 0.0, "")
        return BreakerState(int(failures), float(rest), float(until), str(reason))
    except (ValueError, TypeError):
        return BreakerState()

"""A circuit breaker: a system that keeps failing is not queried for a while, and then tried once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recollect.errors import LeftAlone, RecollectError
from recollect.types import Notes, Scope

FAILURES = 3
"""Failures in a row after which a system is paused."""

FIRST_REST_S = 30.0
LONGEST_REST_S = 600.0
"""Each failed probe doubles the pause, up to this."""

REASON_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The failures of a system. `until` is wall-clock time, because the state outlives the process."""

    failures: int = 0
    rest: float = 0.0
    until: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Breaker:
    """The breaker of one system. Its state is stored in the notes, so that separate commands share it."""

    name: str
    notes: Notes
    clock: Callable[[], float] = time.time
    _state: BreakerState | None = None
    _probing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _scoped: dict[Scope, Breaker] = field(default_factory=dict)

    def within(self, scope: Scope) -> Breaker:
        """The breaker of scoped callers: their failures do not pause the source for anybody else."""
        own = Breaker(f"{self.name} {scope.key}", self.notes, self.clock, _scoped=self._scoped)
        return self._scoped.setdefault(scope, own)

    def enter(self) -> None:
        """Raise `LeftAlone` during a pause. After it, one caller passes as a probe, and the others wait for it."""
        with self._lock:
            state = self._load()
            if state.failures < FAILURES:
                return
            left = state.until - self.clock()
            left = 0.0 if left > LONGEST_REST_S else left  # the clock was set back
            if left > 0 or self._probing:
                when = f"for {max(1, round(left))} s more" if left > 0 else "while one query tries it"
                raise LeftAlone(
                    f"it failed {state.failures} times in a row and is left alone {when} (last: {state.reason})",
                    hint="it is tried again automatically",
                )
            self._probing = True

    def succeeded(self) -> None:
        """The system answered: reset the state."""
        with self._lock:
            self._probing = False
            if self._load() != BreakerState():
                self._store(BreakerState())

    def failed(self, reason: str) -> None:
        """Count a failure; from `FAILURES` in a row on, the system is paused."""
        with self._lock:
            probed, self._probing = self._probing, False
            state = self._load()
            state = replace(state, failures=state.failures + 1, reason=reason[:REASON_CHARACTERS])
            # Of many queries in progress, only the first failure begins the pause; a failed probe makes it longer.
            if state.failures == FAILURES or (probed and state.failures > FAILURES):
                rest = min(LONGEST_REST_S, 2 * state.rest or FIRST_REST_S)
                state = replace(state, rest=rest, until=self.clock() + rest)
            self._store(state)

    def released(self) -> None:
        """The query ended without telling whether the system works."""
        with self._lock:
            self._probing = False

    def state(self) -> BreakerState:
        """The present state, for a report."""
        with self._lock:
            return self._load()

    def _load(self) -> BreakerState:
        if self._state is None:
            self._state = _read(self.notes.get(self._key))
        return self._state

    def _store(self, state: BreakerState) -> None:
        self._state = state
        try:
            self.notes.put(self._key, json.dumps([state.failures, state.rest, state.until, state.reason]))
        except RecollectError:
            return  # a busy or closed store: the state stays in this process

    @property
    def _key(self) -> str:
        return f"breaker:{self.name}"


def _read(note: str | None) -> BreakerState:
    """The state in a note; a new one if the note is not readable."""
    try:
        failures, rest, until, reason = json.loads(note) if note else (0, 0.0, 0.0, "")
        return BreakerState(int(failures), float(rest), float(until), str(reason))
    except (ValueError, TypeError):
        return BreakerState()

"""How often other systems were contacted: a small JSON file in the user's state folder, by host and purpose.

It holds hosts, purposes and numbers, and never a text, an address beyond the host, or a key. All processes of a user
add to it. Where it cannot be written, nothing is counted and nothing fails.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recollect.disk import own_folder, write_private
from recollect.network.addresses import is_local

MOST_ROWS = 500  # pairs of a host and a purpose; the least recent ones beyond it are dropped
FLUSH_SECONDS = 1.0  # the file is written at most so often, and when the process ends
LOCK_SECONDS = 0.5  # how long a process waits for another that writes; then it tries again later

_lock = threading.Lock()
_flushed = [0.0]


@dataclass(frozen=True, slots=True)
class Contact:
    """The calls to one host for one purpose. Bytes are None where another library makes the calls."""

    host: str
    purpose: str
    calls: int = 0
    sent: int | None = 0
    received: int | None = 0
    last: float = 0.0

    @property
    def local(self) -> bool:
        """Whether the host is this machine, so that nothing has left it."""
        return is_local(self.host)

    def as_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        last = datetime.fromtimestamp(self.last, UTC).isoformat(timespec="seconds")
        return {**asdict(self), "last": last, "local": self.local}

    def plus(self, other: Contact) -> Contact:
        """The sum of two rows."""
        sent = None if self.sent is None or other.sent is None else self.sent + other.sent
        received = None if self.received is None or other.received is None else self.received + other.received
        return replace(
            self, calls=self.calls + other.calls, sent=sent, received=received, last=max(self.last, other.last)
        )


_pending: dict[tuple[str, str], Contact] = {}


def record(host: str, purpose: str, *, calls: int = 0, sent: int | None = 0, received: int | None = 0) -> None:
    """Count calls and bytes. They reach the file at the next `flush`."""
    row = Contact(host, purpose, calls, sent, received, time.time())
    with _lock:
        before = _pending.get((host, purpose))
        _pending[host, purpose] = before.plus(row) if before else row


def flush(*, at_once: bool = True) -> None:
    """Add what was counted to the file; without `at_once` only if that was not done a moment ago."""
    if not at_once and time.monotonic() - _flushed[0] < FLUSH_SECONDS:
        return
    with _lock:
        _flushed[0] = time.monotonic()
        if not _pending:
            return
        from filelock import FileLock

        file = ledger_file()
        with contextlib.suppress(OSError, TimeoutError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(file.with_suffix(".lock"), timeout=LOCK_SECONDS):
                rows = _with_pending(_read(file))
                newest = sorted(rows.values(), key=lambda row: -row.last)[:MOST_ROWS]
                write_private(file, json.dumps([asdict(row) for row in newest], indent=1) + "\n")
                _pending.clear()


def contacts() -> list[Contact]:
    """Every row, the most recent first, with what this process has not written yet."""
    with _lock:
        rows = _with_pending(_read(ledger_file()))
    return sorted(rows.values(), key=lambda row: (-row.last, row.host, row.purpose))


def ledger_file() -> Path:
    """The file of the counts."""
    return own_folder("state") / "network.json"


def _with_pending(rows: Mapping[tuple[str, str], Contact]) -> dict[tuple[str, str], Contact]:
    return {**rows, **{key: rows[key].plus(row) if key in rows else row for key, row in _pending.items()}}


def _read(file: Path) -> dict[tuple[str, str], Contact]:
    """The rows of the file; none if it is missing or was damaged."""
    try:
        rows = [Contact(**row) for row in json.loads(file.read_text(encoding="utf-8"))]
        return {(row.host, row.purpose): replace(row, last=float(row.last)) for row in rows}
    except (OSError, ValueError, TypeError):
        return {}


def _begin_in_child() -> None:
    _pending.clear()  # they are the parent's to write
    _lock.release()


atexit.register(flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_begin_in_child)

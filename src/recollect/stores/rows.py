"""How every store keeps times, and what a vector is kept under."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def passage_hash(passage: str) -> bytes:
    """What a vector is kept under."""
    return hashlib.blake2b(passage.encode(), digest_size=16).digest()


def micros(at: datetime | None) -> int | None:
    """A time as a store keeps it: microseconds of UTC."""
    return None if at is None else (at - EPOCH) // timedelta(microseconds=1)


def moment(value: int | None) -> datetime | None:
    """A kept time as a datetime."""
    return None if value is None else EPOCH + timedelta(microseconds=value)

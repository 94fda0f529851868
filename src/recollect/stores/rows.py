"""How every store keeps times, what a vector is kept under, and what it says of a language it does not know."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from recollect.errors import RecollectError, StoreError, UsageError

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


def unknown_language(error: ValueError, asked: str | None, place: str) -> RecollectError:
    """The error for a language that the caller asked for, or that stands in the store itself."""
    if asked is not None:
        return UsageError(str(error), hint="`none` keeps words as they are written")
    return StoreError(
        f"{place} names a language for its words that cannot be used: {error}",
        hint="name one that is known when you open it, for example RECOLLECT_LANGUAGE=english",
    )

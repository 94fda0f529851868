"""What the stores share: times as numbers, the key of a vector, the language of a store."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from recollect.analysis import LANGUAGES, Analyzer
from recollect.errors import StoreError, UsageError

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


def analyzer_of(language: str) -> Analyzer:
    """The analysis of a language that somebody named."""
    try:
        return Analyzer(language)
    except ValueError as error:
        raise UsageError(str(error), hint="`none` keeps words as they are written") from error


def usable_language(language: str | None, named: str | None, place: str) -> str | None:
    """The language that a store has. None where it has none yet, or an unknown one that `named` is to replace."""
    if language is None or language in LANGUAGES:
        return language
    if named is not None:
        return None
    raise StoreError(
        f"{place} has the unknown language {language!r}",
        hint="name a known one, for example RECOLLECT_LANGUAGE=english",
    )

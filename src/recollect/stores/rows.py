"""Helpers of all stores: times as numbers, the key of a vector, the language of a store, distinct texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from recollect.analysis import LANGUAGES, Analyzer
from recollect.errors import EmbedderError, StoreError, UsageError

if TYPE_CHECKING:
    from recollect.types import Vector

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def passage_hash(passage: str) -> bytes:
    """The key of a vector: a hash of the text that was embedded."""
    return hashlib.blake2b(passage.encode(), digest_size=16).digest()


def check_dimension(vector: Vector, dimension: int) -> None:
    """Refuse the vector of a query that does not have the dimension of the store's vectors."""
    if vector.shape != (dimension,):
        raise EmbedderError(
            f"the query's vector has {vector.shape[-1]} dimensions, the store's have {dimension}",
            hint="the embedder used another model than the one it names",
        )


def micros(at: datetime | None) -> int | None:
    """A time as stores keep it: microseconds of UTC."""
    return None if at is None else (at - EPOCH) // timedelta(microseconds=1)


def moment(value: int | None) -> datetime | None:
    """A stored time as a datetime."""
    return None if value is None else EPOCH + timedelta(microseconds=value)


def analyzer_of(language: str) -> Analyzer:
    """The analyzer of a language that the user named."""
    try:
        return Analyzer(language)
    except ValueError as error:
        raise UsageError(str(error), hint="`none` keeps words as they are written") from error


def usable_language(language: str | None, named: str | None, place: str) -> str | None:
    """The language of a store. None where it has none yet, or an unknown one that `named` is to replace."""
    if language is None or language in LANGUAGES:
        return language
    if named is not None:
        return None
    raise StoreError(
        f"{place} has the unknown language {language!r}",
        hint="name a known one, for example RECOLLECT_LANGUAGE=english",
    )


def distinct(ranked: Sequence[tuple[int, bytes, float]], depth: int) -> tuple[dict[int, tuple[float, bytes]], int]:
    """Of ranked (row, fold, score), the first `depth` different texts, and the number of duplicates among them."""
    folds: set[bytes] = set()
    first: dict[int, tuple[float, bytes]] = {}
    duplicates = 0
    for row, fold, score in ranked:
        if fold in folds:
            duplicates += 1
        elif len(first) == depth:
            break
        else:
            folds.add(fold)
            first[row] = (score, fold)
    return first, duplicates

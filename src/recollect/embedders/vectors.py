"""What every embedder does to its vectors and its texts, and how it says what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import EmbedderError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from recollect.types import Matrix, Vector

QUERIES_KEPT = 256
"""Vectors of the last queries are kept: stages, a second page and a repeated call ask for the same one again."""


def unit_rows(rows: ArrayLike, *, name: str) -> Matrix:
    """The rows with length 1. A row without a direction cannot be compared with anything, and is refused."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused for that
        matrix = np.atleast_2d(np.asarray(rows, dtype=np.float32))
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbedderError(
            f"{name} gave a vector that is zero or not finite", hint="the model cannot read this text, or is damaged"
        )
    units: Matrix = matrix / lengths
    return units


def frozen(vector: Vector) -> Vector:
    """The vector, made read-only, since it is kept and handed out again."""
    vector.setflags(write=False)
    return vector


def fingerprint(model: str, *facts: str | int, prefixes: Sequence[str] = ("", "")) -> str:
    """A short readable name of a vector space: the model, what else decides its numbers, that rows have length 1."""
    mark = hashlib.sha256("\0".join(prefixes).encode()).hexdigest()[:8]
    return ":".join([model, *map(str, facts), "unit", f"p={mark}"])

"""Embeddings without a model: words and their letters, hashed.

Weak but dependable: it needs only numpy, is the same on every machine and in every version, and knows no language.
Spellings that share letters come out alike ("colour" and "color"); meanings do not. Good for trying things out, for
tests, and as a tolerant second list where no model may be installed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import UsageError
from recollect.models.embedders import fingerprint

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector

DEFAULT_DIMENSION = 256
LEAST_DIMENSION, MOST_DIMENSION = 8, 65_536

VERSION = 1
"""Part of the fingerprint: raise it when the vectors change."""

WORD = re.compile(r"\w+")
DIGITS = re.compile(r"[0-9]{1,12}")


class HashingEmbedder:
    """Words and character trigrams, each hashed to a place and a sign; length 1."""

    def __init__(self, dimension: int = DEFAULT_DIMENSION) -> None:
        if dimension < LEAST_DIMENSION:
            raise UsageError(
                f"a hashing embedder of {dimension} dimensions tells nothing apart",
                hint=f"give {LEAST_DIMENSION} or more",
            )
        if dimension > MOST_DIMENSION:
            raise UsageError(
                f"a hashing embedder of {dimension:,} dimensions is too large", hint=f"give {MOST_DIMENSION:,} or fewer"
            )
        self.dimension = dimension

    @property
    def name(self) -> str:
        """With its dimension."""
        return f"hashing:{self.dimension}"

    @property
    def fingerprint(self) -> str:
        """The version of the method, and the dimension."""
        return fingerprint(f"hashing@{VERSION}", f"{self.dimension}d")

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self.query(text) for text in texts])

    def query(self, text: str) -> Vector:
        """The same as for a passage: there is no model to tell them apart."""
        vector = self._sum(_features(text))
        length = float(np.linalg.norm(vector))
        if not length:  # nothing to read, or everything cancelled out: the one fixed direction of "no text"
            vector = self._sum({"": 1.0})
            length = float(np.linalg.norm(vector))
        return (vector / length).astype(np.float32)

    def _sum(self, features: Mapping[str, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        vector = np.zeros(self.dimension, dtype=np.float64)
        for feature, weight in features.items():
            number = _hash(feature)
            vector[(number >> 1) % self.dimension] += weight if number & 1 else -weight
        return vector


def _features(text: str) -> dict[str, float]:
    """Words and trigrams with their weights: the root of the count, since a tenth occurrence says little."""
    return {feature: count**0.5 for feature, count in Counter(_each_feature(text)).items()}


def _each_feature(text: str) -> Iterator[str]:
    plain = unicodedata.normalize("NFKC", text).casefold()
    for word in WORD.findall(plain):
        yield f"w{word}"
        padded = f" {word} "
        yield from (f"3{padded[i : i + 3]}" for i in range(len(padded) - 2))


@lru_cache(maxsize=1 << 16)
def _hash(feature: str) -> int:
    digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def from_spec(spec: str) -> HashingEmbedder:
    """`hashing`, or `hashing:512` for another dimension."""
    _, _, dimension = spec.partition(":")
    if dimension and not DIGITS.fullmatch(dimension):
        raise UsageError(
            f"{spec!r} has no whole number after the colon", hint=f"for example hashing:{DEFAULT_DIMENSION}"
        )
    return HashingEmbedder(int(dimension or DEFAULT_DIMENSION))

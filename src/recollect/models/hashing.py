"""Embeddings without a model: words and their letters, hashed.

Simple but reliable: it needs only numpy, gives the same vectors on every machine and in every version, and knows no
language. Words that share letters are similar ("colour" and "color"); words that share only meaning are not. Use it to
try things out, in tests, and as a spelling-tolerant second retriever where no model may be installed.
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
MIN_DIMENSION, MAX_DIMENSION = 8, 65_536

VERSION = 1
"""Part of the fingerprint: raise it when the vectors change."""

WORD = re.compile(r"\w+")
DIGITS = re.compile(r"[0-9]{1,12}")


class HashingEmbedder:
    """Hashes each word and each character trigram to a position and a sign; the sum is scaled to length 1."""

    def __init__(self, dimension: int = DEFAULT_DIMENSION) -> None:
        if not MIN_DIMENSION <= dimension <= MAX_DIMENSION:
            raise UsageError(
                f"a hashing embedder cannot have {dimension:,} dimensions",
                hint=f"choose from {MIN_DIMENSION} to {MAX_DIMENSION:,}",
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
        """The unit vector of a text; queries and passages are treated alike."""
        vector = self._sum(_features(text))
        length = float(np.linalg.norm(vector))
        if not length:  # no words, or everything cancelled out: a fixed vector that stands for "no text"
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
    """Words and trigrams, weighted by the square root of their count: a tenth occurrence adds little."""
    return {feature: count**0.5 for feature, count in Counter(_each_feature(text)).items()}


def _each_feature(text: str) -> Iterator[str]:
    for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        yield f"w{word}"
        padded = f" {word} "
        yield from (f"3{padded[i : i + 3]}" for i in range(len(padded) - 2))


@lru_cache(maxsize=1 << 16)
def _hash(feature: str) -> int:
    digest = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def open_hashing(spec: str) -> HashingEmbedder:
    """Open `hashing`, or `hashing:512` for another dimension."""
    _, _, dimension = spec.partition(":")
    if dimension and not DIGITS.fullmatch(dimension):
        raise UsageError(
            f"{spec!r} has no whole number after the colon", hint=f"for example hashing:{DEFAULT_DIMENSION}"
        )
    return HashingEmbedder(int(dimension or DEFAULT_DIMENSION))

"""Embeddings without a model: words and their letters, hashed. Similar spelling is found, similar meaning is not."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from recollect.errors import UsageError
from recollect.models.embedders import fingerprint
from recollect.types import Matrix, Vector

DEFAULT_DIMENSION = 256
MIN_DIMENSION, MAX_DIMENSION = 8, 65_536

VERSION = 1  # part of the fingerprint: raise it when the vectors change
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
        self.name = f"hashing:{dimension}"
        self.fingerprint = fingerprint(f"hashing@{VERSION}", f"{dimension}d")

    def passages(self, texts: Sequence[str]) -> Matrix:
        rows = [self.query(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.dimension)

    def query(self, text: str) -> Vector:
        """Queries and passages are treated alike."""
        vector = self._sum(Counter(_features(text)))
        if not vector.any():  # no words, or everything cancelled out: a fixed vector that stands for "no text"
            vector = self._sum({"": 1})
        return (vector / float(np.linalg.norm(vector))).astype(np.float32)

    def _sum(self, counts: Mapping[str, int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Weighted by the square root of the count: a tenth occurrence adds little."""
        vector = np.zeros(self.dimension, dtype=np.float64)
        for feature, count in counts.items():
            number = _hash(feature)
            vector[(number >> 1) % self.dimension] += count**0.5 if number & 1 else -(count**0.5)
        return vector


def _features(text: str) -> Iterator[str]:
    for word in WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        yield f"w{word}"
        padded = f" {word} "
        yield from (f"3{padded[i : i + 3]}" for i in range(len(padded) - 2))


@lru_cache(maxsize=1 << 16)
def _hash(feature: str) -> int:
    return int.from_bytes(hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def open_hashing(spec: str) -> HashingEmbedder:
    """Open `hashing`, or `hashing:512` for another dimension."""
    dimension = spec.partition(":")[2]
    if dimension and not DIGITS.fullmatch(dimension):
        hint = f"for example hashing:{DEFAULT_DIMENSION}"
        raise UsageError(f"{spec!r} has no whole number after the colon", hint=hint)
    return HashingEmbedder(int(dimension or DEFAULT_DIMENSION))

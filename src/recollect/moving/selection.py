"""What an import takes over from an export: all of it, or only the records with what belongs to them.

An export may come from anybody. Records, their history and their vectors are data. The rest is what a store knows of
its machine, and it would be believed: which folders are mirrored, and may be opened and read again; what was read for
facts, and is not read again; what an id of another system stands for; answers that were kept.
"""

from __future__ import annotations

import numpy as np

from recollect.moving.transfer import passage
from recollect.types.contents import Part

DATA = ("meta", "space", "record", "history", "vector")
"""The sorts that every import takes over."""

LONGEST_VECTOR = 1.01
"""Vectors have length 1; a longer one would stand above all others in every answer."""


class Selection:
    """Decides part by part, in the order of an export: records come before their vectors."""

    def __init__(self, *, everything: bool) -> None:
        self._everything = everything
        self._passages: set[bytes] = set()

    def takes(self, part: Part) -> bool:
        """Whether a part is taken over. A vector must be of a text in the same export: it may not stand for others."""
        if self._everything:
            return True
        if part.kind == "record":
            self._passages.add(passage(part))
        if part.kind == "vector":
            return part.values[1] in self._passages and _length(part.values[2]) <= LONGEST_VECTOR
        return part.kind in DATA


def _length(vector: bytes) -> float:
    return float(np.linalg.norm(np.frombuffer(vector, dtype="<f4").astype(np.float64)))

"""Which facts are near a new one in meaning: those of the store, and those let in during the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recollect.errors import RecollectError
from recollect.memory.embedding import Embedding, guarded
from recollect.types import Filter, Record, Scope, Serving

if TYPE_CHECKING:
    from recollect.types import Vector

LOOKED_AT = 5
"""The nearest may differ in a number where the next does not."""


class Neighbours:
    """Asks the embedder that serves. Without one, or when it fails, nothing is near, and a warning says so once."""

    def __init__(self, embedding: Embedding, scope: Scope, warnings: list[str]) -> None:
        self._embedding = embedding
        self._scope = scope
        self._warnings = warnings
        self._usable = embedding.configured
        self._serving: Serving | None = None
        self._vectors: dict[str, Vector] = {}
        self._new: list[tuple[Record, Vector]] = []

    def nearest(self, record: Record) -> Sequence[tuple[Record, float]]:
        """Known facts and their cosines, nearest first."""
        vector = self._vector(record)
        if vector is None or self._serving is None:
            return ()
        where = Filter(scope=self._scope, kinds=("fact",))
        stored = [(match.record, match.score) for match in self._serving.index.search(vector, where, LOOKED_AT).found]
        new = [(other, float(np.dot(vector, theirs))) for other, theirs in self._new]
        return sorted((*stored, *new), key=lambda pair: -pair[1])[:LOOKED_AT]

    def remember(self, record: Record) -> None:
        """Count this fact among the known."""
        if (vector := self._vector(record)) is not None:
            self._new.append((record, vector))

    def keep(self, records: Sequence[Record]) -> None:
        """Keep the vectors of facts that are about to be stored."""
        found = [(record.passage, vector) for record in records if (vector := self._vectors.get(record.id)) is not None]
        if found and self._serving is not None:
            self._serving.index.save([passage for passage, _ in found], np.stack([vector for _, vector in found]))

    def _vector(self, record: Record) -> Vector | None:
        if record.id not in self._vectors and self._usable:
            try:
                self._serving = self._serving or self._opened()
                with guarded(self._serving.embedder):
                    self._vectors[record.id] = self._serving.embedder.passages([record.passage])[0]
            except RecollectError as error:
                self._usable = False
                self._warnings.append(f"duplicates were looked for by text only: {error.message}")
        return self._vectors.get(record.id)

    def _opened(self) -> Serving:
        serving = self._embedding.serving()
        missing = serving.index.coverage()[1]
        if missing:
            self._warnings.append(
                f"{missing:,} records have no vector, so near duplicates of them are missed; `recollect embed`"
            )
        return serving

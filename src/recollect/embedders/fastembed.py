"""Embeddings by fastembed, which brings its own models and downloads them itself."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from fastembed import TextEmbedding

from recollect.embedders.vectors import fingerprint, unit_rows
from recollect.models.text import well_formed

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector


class FastembedEmbedder:
    """A model of fastembed's list, with the prefixes that fastembed gives it."""

    def __init__(self, model: str, **options: Any) -> None:
        self.name = f"fastembed:{model}"
        self._model = TextEmbedding(model, **options)
        self._dimension = int(self._model.embedding_size)

    @property
    def fingerprint(self) -> str:
        """With fastembed's minor version: its releases have changed a model's pooling before."""
        release = ".".join(version("fastembed").split(".")[:2])
        return fingerprint(f"{self.name}@{release}", f"{self._dimension}d")

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        if not texts:
            return np.empty((0, self._dimension), dtype=np.float32)
        return unit_rows(list(self._model.passage_embed([well_formed(text) for text in texts])), name=self.name)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        vector: Vector = unit_rows(next(iter(self._model.query_embed(well_formed(text)))), name=self.name)[0]
        return vector


def from_spec(spec: str, **options: Any) -> FastembedEmbedder:
    """`fastembed:MODEL`, fastembed's own default without one; options are those of its `TextEmbedding`."""
    return FastembedEmbedder(spec.partition(":")[2] or "BAAI/bge-small-en-v1.5", **options)

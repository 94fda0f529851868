"""Embeddings by fastembed, which brings its own models, downloads them itself, and gives most of them no prefix."""

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
    """A model of fastembed's list. A model that was trained with prefixes needs them given here."""

    def __init__(self, model: str, prefixes: tuple[str, str], **options: Any) -> None:
        self.name = f"fastembed:{model}"
        self._prefixes = prefixes
        self._model = TextEmbedding(model, **options)
        self._dimension = int(self._model.embedding_size)

    @property
    def fingerprint(self) -> str:
        """With fastembed's minor version: its releases have changed a model's pooling before."""
        release = ".".join(version("fastembed").split(".")[:2])
        return fingerprint(f"{self.name}@{release}", f"{self._dimension}d", prefixes=self._prefixes)

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        rows = list(self._model.passage_embed([self._prefixes[1] + well_formed(text) for text in texts]))
        return unit_rows(rows, name=self.name) if rows else np.empty((0, self._dimension), dtype=np.float32)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        row = next(iter(self._model.query_embed(self._prefixes[0] + well_formed(text))))
        vector: Vector = unit_rows(row, name=self.name)[0]
        return vector


def from_spec(spec: str, *, query_prefix: str = "", passage_prefix: str = "", **options: Any) -> FastembedEmbedder:
    """`fastembed:MODEL`, by default fastembed's own default; further options are those of its `TextEmbedding`."""
    model = spec.partition(":")[2] or "BAAI/bge-small-en-v1.5"
    return FastembedEmbedder(model, (query_prefix, passage_prefix), **options)

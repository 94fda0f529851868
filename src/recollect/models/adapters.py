"""Embedders of other libraries: fastembed and sentence-transformers, imported when one of their models is opened."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.errors import UsageError
from recollect.models.embedders import fingerprint, unit_rows
from recollect.models.endpoint import well_formed

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector


class FastembedEmbedder:
    """A model of fastembed, which downloads its models itself. A model trained with prefixes needs them here."""

    def __init__(self, model: str, prefixes: tuple[str, str], **options: Any) -> None:
        from fastembed import TextEmbedding

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


class SentenceTransformersEmbedder:
    """A model of sentence-transformers, on any device of PyTorch, with the model's own prompts."""

    def __init__(self, model: str, **options: Any) -> None:
        from sentence_transformers import SentenceTransformer

        self.name = f"sentence-transformers:{model}"
        self._revision = options.get("revision") or "main"
        self._model = SentenceTransformer(model, **options)
        self._dimension = len(self.query("dimension"))

    @property
    def fingerprint(self) -> str:
        """Model and revision, tokens read, dimension, prompts."""
        prompts = [f"{kind}={prompt}" for kind, prompt in sorted(self._model.prompts.items())]
        parts = (str(self._model.max_seq_length), f"{self._dimension}d")
        return fingerprint(f"{self.name}@{self._revision}", *parts, prefixes=prompts)

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        rows = self._model.encode_document([well_formed(text) for text in texts], show_progress_bar=False)
        return unit_rows(rows.reshape(len(texts), self._dimension), name=self.name)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        row = self._model.encode_query(well_formed(text), show_progress_bar=False)
        vector: Vector = unit_rows(row, name=self.name)[0]
        return vector


def open_fastembed(spec: str, *, query_prefix: str = "", passage_prefix: str = "", **options: Any) -> FastembedEmbedder:
    """Open `fastembed:MODEL`; further options are those of its `TextEmbedding`."""
    model = spec.partition(":")[2] or "BAAI/bge-small-en-v1.5"
    return FastembedEmbedder(model, (query_prefix, passage_prefix), **options)


def open_sentence_transformers(spec: str, **options: Any) -> SentenceTransformersEmbedder:
    """Open `sentence-transformers:MODEL`; options are those of its `SentenceTransformer`."""
    if model := spec.partition(":")[2]:
        return SentenceTransformersEmbedder(model, **options)
    raise UsageError(f"{spec!r} does not name a model", hint="for example sentence-transformers:all-MiniLM-L6-v2")

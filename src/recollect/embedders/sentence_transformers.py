"""Embeddings by sentence-transformers: any of its models, on whatever device PyTorch finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sentence_transformers import SentenceTransformer

from recollect.embedders.vectors import fingerprint, unit_rows
from recollect.errors import UsageError
from recollect.models.text import well_formed

if TYPE_CHECKING:
    from recollect.types import Matrix, Vector


class SentenceTransformersEmbedder:
    """A model with the prompts that it was published with, one for queries and one for documents."""

    def __init__(self, model: str, **options: Any) -> None:
        self.name = f"sentence-transformers:{model}"
        self._revision = options.get("revision") or "main"
        self._model = SentenceTransformer(model, **options)
        self._dimension = len(self.query("dimension"))

    @property
    def fingerprint(self) -> str:
        """Model and revision as named, tokens read, dimension, prompts."""
        prompts = [f"{kind}={prompt}" for kind, prompt in sorted(self._model.prompts.items())]
        facts = (str(self._model.max_seq_length), f"{self._dimension}d")
        return fingerprint(f"{self.name}@{self._revision}", *facts, prefixes=prompts)

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order."""
        rows = self._model.encode_document([well_formed(text) for text in texts], show_progress_bar=False)
        return unit_rows(rows.reshape(len(texts), self._dimension), name=self.name)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        row = self._model.encode_query(well_formed(text), show_progress_bar=False)
        vector: Vector = unit_rows(row, name=self.name)[0]
        return vector


def from_spec(spec: str, **options: Any) -> SentenceTransformersEmbedder:
    """`sentence-transformers:MODEL`; options are those of its `SentenceTransformer`."""
    if model := spec.partition(":")[2]:
        return SentenceTransformersEmbedder(model, **options)
    raise UsageError(f"{spec!r} does not name a model", hint="for example sentence-transformers:all-MiniLM-L6-v2")

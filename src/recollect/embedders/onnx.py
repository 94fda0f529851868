"""Embeddings by a catalogue model on this machine: no service, no key, no framework."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from recollect.embedders.vectors import QUERIES_KEPT, fingerprint, frozen, unit_rows
from recollect.errors import UsageError
from recollect.models.catalogue import Model, find
from recollect.models.runtime import Runtime

if TYPE_CHECKING:
    from recollect.models.runtime import Array
    from recollect.types import Matrix, Vector


LEAST_LETTERS = 4
"""Fewer are a number or a part of a name, of which nobody can tell the language."""

ILLEGIBLE, LEGIBLE = 1.2, 2.0
"""Letters a token at which a model reads nothing, and from which on it reads enough."""


class OnnxEmbedder:
    """Text to unit vectors by a model's ONNX graph. Nothing is loaded before the first text."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        if model.kind != "embedder" or model.pooling not in POOLINGS:
            raise UsageError(
                f"{model.name} is a {model.kind}, not an embedder", hint="`recollect model list` says which are"
            )
        self.model = model
        self._runtime = Runtime(model, threads=threads)
        self._pool = POOLINGS[model.pooling]
        self._query = lru_cache(maxsize=QUERIES_KEPT)(self._embed_query)

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self.model.name

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.model.dimension

    @property
    def fingerprint(self) -> str:
        """Model, graph and tokenizer by hash, pooling, tokens read, dimension, length, prefixes."""
        model = self.model
        hashes = "+".join(file.sha256[:8] for file in model.files)
        facts = (model.pooling, model.max_tokens, f"{model.dimension}d")
        return fingerprint(f"{model.name}@{hashes}", *facts, prefixes=(model.query_prefix, model.passage_prefix))

    def passages(self, texts: Sequence[str]) -> Matrix:
        """One unit vector a text, in order. A text's vector does not depend on the texts beside it."""
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        rows = self._runtime.each([self.model.passage_prefix + text for text in texts], self._pool)
        return unit_rows(rows, name=self.name)

    def query(self, text: str) -> Vector:
        """The unit vector of a query."""
        return self._query("", text)

    def query_of(self, asker: str, text: str) -> Vector:
        """The same, kept apart for each who asks: how fast it comes does not tell what others have asked."""
        return self._query(asker, text)

    def legibility(self, text: str) -> float:
        """How well the model reads a text: 1 where it sees words, 0 where it sees single letters or unknown signs.

        Measured in letters a token: English questions have four (one in twenty has fewer than three), German ones
        two to three, Hindi and Chinese ones one or fewer.
        """
        letters = sum(map(str.isalpha, text))
        if letters < LEAST_LETTERS:
            return 1.0
        pieces = self._runtime.pieces(text)
        read = sum(len(piece) for piece in pieces)
        return min(1.0, max(0.0, (read / max(1, len(pieces)) - ILLEGIBLE) / (LEGIBLE - ILLEGIBLE)))

    def _embed_query(self, _asker: str, text: str) -> Vector:
        rows = self._runtime.each([self.model.query_prefix + text], self._pool)
        vector: Vector = unit_rows(rows, name=self.name)[0]
        return frozen(vector)


def first_token(states: Array) -> Array:
    """CLS pooling: the state of the token that stands for the whole text. Copied, so that the rest can be let go."""
    state: Array = states[0].copy()
    return state


def mean_of_tokens(states: Array) -> Array:
    """Mean pooling; there is no padding to leave out."""
    mean: Array = states.mean(axis=0, dtype=np.float32)
    return mean


POOLINGS = {"cls": first_token, "mean": mean_of_tokens}


def from_spec(spec: str, *, threads: int | None = None) -> OnnxEmbedder:
    """`arctic-embed-s`: the catalogue's model of that name."""
    return OnnxEmbedder(find(spec), threads=threads)

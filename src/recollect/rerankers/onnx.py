"""Reranking by a catalogue model on this machine: a cross-encoder, which reads question and passage as one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recollect.errors import UsageError
from recollect.models.catalogue import Model, find
from recollect.models.runtime import Runtime

if TYPE_CHECKING:
    from recollect.models.runtime import Array


class OnnxReranker:
    """Pairs to logits by a model's ONNX graph. Nothing is loaded before the first pair."""

    def __init__(self, model: Model, *, threads: int | None = None) -> None:
        if model.kind != "reranker":
            raise UsageError(
                f"{model.name} is an {model.kind}, not a reranker", hint="`recollect model list` says which are"
            )
        self.model = model
        self._runtime = Runtime(model, threads=threads)

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self.model.name

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """The logit of each passage, in order. It does not depend on the passages beside it."""
        return [float(logit[0]) for logit in self._runtime.each([(query, text) for text in passages], _copied)]


def _copied(logits: Array) -> Array:
    """The graph's output, let go of the graph's memory."""
    copy: Array = logits.copy()
    return copy


def from_spec(spec: str) -> OnnxReranker:
    """`minilm-l12-reranker`: the catalogue's model of that name."""
    return OnnxReranker(find(spec))

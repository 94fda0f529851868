"""Embedders by name: text to vectors.

A spec is a name, or a name and what it is to open: `arctic-embed-s`, `hashing:256`, `openai:MODEL`, `ollama:MODEL`,
`fastembed:MODEL`, `sentence-transformers:MODEL`. The part before the first colon is looked up; what it leads to is
called with the whole spec and the options. A package adds its own under the entry point group `recollect.embedders`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recollect.errors import EmbedderError, UsageError
from recollect.models.cache import ensure_model
from recollect.models.catalogue import MODELS
from recollect.registry import Entry, Registry, missing_package

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from recollect.types import Embedder, Matrix, Progress, Vector


EMBEDDERS: Registry[Callable[..., Embedder]] = Registry(
    kind="embedder",
    builtin={
        **{
            model.name: Entry("recollect.models.onnx:open_onnx_embedder", self_contained=True)
            for model in MODELS.values()
            if model.kind == "embedder"
        },
        "hashing": Entry("recollect.models.hashing:from_spec", self_contained=True),
        "openai": Entry("recollect.models.openai:from_spec"),
        "ollama": Entry("recollect.models.openai:from_spec"),
        "fastembed": Entry("recollect.models.adapters:open_fastembed", "fastembed"),
        "sentence-transformers": Entry("recollect.models.adapters:open_sentence_transformers", "sentence-transformers"),
    },
    group="recollect.embedders",
)


def open_embedder(
    spec: str,
    *,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    fetch: bool = True,
    **options: Any,
) -> Embedder:
    """The embedder that a spec names. A catalogue model that is not here is fetched, and `announce` told so.

    With `fetch=False` that is an error instead.
    """
    name = spec.partition(":")[0]
    factory = EMBEDDERS.load(name)
    if options:
        _check(factory, spec, options)
    if name in MODELS:
        ensure_model(name, announce=announce, progress=progress, fetch=fetch)
    try:
        return factory(spec, **options)
    except ImportError as error:
        entry = EMBEDDERS.builtin.get(name)
        raise missing_package(error, f"the embedder {name!r}", entry.extra if entry else None) from error


def is_self_contained(spec: str) -> bool:
    """Whether what a spec names sends nothing and loads only pinned files, so that a store may name it, too."""
    return EMBEDDERS.self_contained(spec.partition(":")[0])


def _check(factory: Callable[..., Embedder], spec: str, options: dict[str, Any]) -> None:
    """Refuse options that the embedder does not have, before anything is fetched or loaded for it."""
    import inspect

    try:
        inspect.signature(factory).bind(spec, **options)
    except TypeError as error:
        raise UsageError(f"{spec} cannot be opened with these options: {error}") from error


QUERIES_KEPT = 256
"""Vectors of the last queries are kept: stages, a second page and a repeated call ask for the same one again."""


def unit_rows(rows: ArrayLike, *, name: str) -> Matrix:
    """The rows with length 1. A row without a direction cannot be compared with anything, and is refused."""
    import numpy as np

    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused for that
        matrix = np.atleast_2d(np.asarray(rows, dtype=np.float32))
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbedderError(
            f"{name} gave a vector that is zero or not finite", hint="the model cannot read this text, or is damaged"
        )
    units: Matrix = matrix / lengths
    return units


def frozen(vector: Vector) -> Vector:
    """The vector, made read-only, since it is kept and handed out again."""
    vector.setflags(write=False)
    return vector


def fingerprint(model: str, *facts: str | int, prefixes: Sequence[str] = ("", "")) -> str:
    """A short readable name of a vector space: the model, what else decides its numbers, that rows have length 1."""
    mark = hashlib.sha256("\0".join(prefixes).encode()).hexdigest()[:8]
    return ":".join([model, *map(str, facts), "unit", f"p={mark}"])

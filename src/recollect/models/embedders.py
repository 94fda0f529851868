"""Embedders by spec, which is a name, perhaps with an argument after a colon: text to vectors.

`EMBEDDERS` leads from the name to a function `(spec) -> Embedder`, which gets the user's settings where it has a
parameter `settings`. A package adds its own under the entry point group `recollect.embedders`.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recollect.errors import EmbedderError, UsageError
from recollect.models.catalogue import MODELS, ensure_model
from recollect.ranking import well_formed
from recollect.registry import Entry, Registry, missing_package
from recollect.types import Embedder, Matrix, Progress, Vector

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from recollect.config import Settings

SERVICES = ("openai", "ollama")  # embedders that send texts to a server
CACHED_QUERIES = 256  # stages, a second page and a repeated search need the same vector again

EMBEDDERS: Registry[Callable[..., Embedder]] = Registry(
    kind="embedder",
    builtin={
        **{
            model.name: Entry("recollect.models.onnx:OnnxEmbedder", self_contained=True)
            for model in MODELS.values()
            if model.kind == "embedder"
        },
        "hashing": Entry("recollect.models.hashing:open_hashing", self_contained=True),
        "openai": Entry("recollect.models.openai:open_openai"),
        "ollama": Entry("recollect.models.openai:open_openai"),
        "fastembed": Entry("recollect.models.embedders:FastembedEmbedder", "fastembed"),
        "sentence-transformers": Entry(
            "recollect.models.embedders:SentenceTransformersEmbedder", "sentence-transformers"
        ),
    },
    group="recollect.embedders",
)


def open_embedder(
    spec: str,
    *,
    settings: Settings | None = None,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    fetch: bool = True,
) -> Embedder:
    """Open the embedder that a spec names.

    A catalogue model that is not on this machine is fetched and `announce` gets a message about it; with `fetch=False`
    that raises ModelMissing instead. `settings` go to an embedder that takes them.
    """
    import inspect

    name = spec.partition(":")[0]
    factory = EMBEDDERS.load(name)
    signature = inspect.signature(factory)
    options = {"settings": settings} if settings is not None and "settings" in signature.parameters else {}
    try:
        signature.bind(spec, **options)
    except TypeError as error:
        raise UsageError(f"{spec} cannot be opened with these options: {error}") from error
    if name in MODELS:
        ensure_model(name, announce=announce, progress=progress, fetch=fetch)
    try:
        return factory(spec, **options)
    except ImportError as error:
        entry = EMBEDDERS.builtin.get(name)
        raise missing_package(error, f"the embedder {name!r}", entry.extra if entry else None) from error


def check_embedder(embedder: str | Embedder) -> None:
    """Refuse an unknown name, and an object that is no embedder, before a store is opened."""
    if isinstance(embedder, str):
        if embedder != "none":
            EMBEDDERS.check(embedder.partition(":")[0])
        return
    needed = ("name", "fingerprint", "passages", "query")
    # The class first: a property may load the model.
    if missing := [name for name in needed if not (hasattr(type(embedder), name) or hasattr(embedder, name))]:
        raise UsageError(
            f"{embedder!r} is no embedder: it has no {', '.join(missing)}", hint="see recollect.types.Embedder"
        )


def is_self_contained(spec: str) -> bool:
    """Whether an embedder sends nothing and loads only pinned files, so that a store may name it, too."""
    return EMBEDDERS.self_contained(spec.partition(":")[0])


def embedder_specs() -> list[str]:
    """What `--embedder` may begin with, for completion: names of this project and of other packages, and `none`.

    A name that needs a model after it ends in a colon.
    """
    whole = [name for name in EMBEDDERS.names() if is_self_contained(name) or name not in EMBEDDERS.builtin]
    return [*whole, "none", *(f"{name}:" for name in EMBEDDERS.builtin if not is_self_contained(name))]


def unit_rows(rows: Sequence[ArrayLike] | NDArray[Any], dimension: int, *, name: str) -> Matrix:
    """The rows scaled to length 1. Raises EmbedderError for a row that is zero or not finite."""
    import numpy as np

    with np.errstate(over="ignore"):  # a number that is too large becomes infinite, and is refused for that
        matrix = np.asarray(rows, dtype=np.float32).reshape(len(rows), dimension)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbedderError(
            f"{name} returned a vector that is zero or not finite",
            hint="the model cannot read this text, or is damaged",
        )
    units: Matrix = matrix / lengths
    return units


def fingerprint(model: str, *parts: str | int, prefixes: Sequence[str] = ("", "")) -> str:
    """A readable name of a vector space: the model, the other things its numbers depend on, unit length, prefixes."""
    mark = hashlib.sha256("\0".join(prefixes).encode()).hexdigest()[:8]
    return ":".join([model, *map(str, parts), "unit", f"p={mark}"])


class CachedQueries:
    """A base of embedders that caches the vectors of the last queries; they are read-only."""

    def __init__(self) -> None:
        own = weakref.proxy(self)  # the cache does not keep the model in memory when nobody else has it

        def embed_once(_asker: str, text: str) -> Vector:
            vector: Vector = own.embed_query(text)
            vector.setflags(write=False)
            return vector

        self._cached = lru_cache(maxsize=CACHED_QUERIES)(embed_once)

    @abstractmethod
    def embed_query(self, text: str) -> Vector:
        """The vector of a query that is not cached."""

    def query(self, text: str) -> Vector:
        return self._cached("", text)

    def query_of(self, asker: str, text: str) -> Vector:
        """The vector of a query, cached for each caller apart: the time does not tell what others have searched for."""
        return self._cached(asker, text)


def _local_files() -> dict[str, Any]:
    """The options of a library that downloads models itself; while offline it uses only files that are here."""
    from recollect.network.addresses import offline

    if not offline():
        return {}
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    return {"local_files_only": True}


class FastembedEmbedder:
    """`fastembed:MODEL`: a model of fastembed, which downloads its models itself."""

    def __init__(self, spec: str) -> None:
        from importlib.metadata import version

        from fastembed import TextEmbedding

        model = spec.partition(":")[2] or "BAAI/bge-small-en-v1.5"
        self.name = f"fastembed:{model}"
        self._model = TextEmbedding(model, **_local_files())
        self._dimension = int(self._model.embedding_size)
        # With fastembed's minor version: its releases have changed a model's pooling before.
        release = ".".join(version("fastembed").split(".")[:2])
        self.fingerprint = fingerprint(f"{self.name}@{release}", f"{self._dimension}d")

    def passages(self, texts: Sequence[str]) -> Matrix:
        rows = list(self._model.passage_embed([well_formed(text) for text in texts]))
        return unit_rows(rows, self._dimension, name=self.name)

    def query(self, text: str) -> Vector:
        rows = list(self._model.query_embed(well_formed(text)))
        vector: Vector = unit_rows(rows, self._dimension, name=self.name)[0]
        return vector


class SentenceTransformersEmbedder:
    """`sentence-transformers:MODEL`, on any device of PyTorch, with the model's own prompts."""

    def __init__(self, spec: str) -> None:
        model = spec.partition(":")[2]
        if not model:
            hint = "for example sentence-transformers:all-MiniLM-L6-v2"
            raise UsageError(f"{spec!r} does not name a model", hint=hint)
        from sentence_transformers import SentenceTransformer

        self.name = f"sentence-transformers:{model}"
        self._model = SentenceTransformer(model, **_local_files())
        self._dimension = len(self._model.encode_query("dimension", show_progress_bar=False))
        prompts = [f"{kind}={prompt}" for kind, prompt in sorted(self._model.prompts.items())]
        parts = (str(self._model.max_seq_length), f"{self._dimension}d")
        self.fingerprint = fingerprint(f"{self.name}@main", *parts, prefixes=prompts)

    def passages(self, texts: Sequence[str]) -> Matrix:
        rows = self._model.encode_document([well_formed(text) for text in texts], show_progress_bar=False)
        return unit_rows(rows, self._dimension, name=self.name)

    def query(self, text: str) -> Vector:
        row = self._model.encode_query(well_formed(text), show_progress_bar=False)
        vector: Vector = unit_rows([row], self._dimension, name=self.name)[0]
        return vector

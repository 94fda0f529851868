"""Text to vectors: one module a system, imported when its name is asked for.

A spec is a name, or a name and what it is to open: `arctic-embed-s`, `hashing:256`, `openai:MODEL`, `ollama:MODEL`,
`fastembed:MODEL`, `sentence-transformers:MODEL`. The part before the first colon is looked up; what it leads to is
called with the whole spec and the options. A package adds its own under the entry point group `recollect.embedders`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recollect.errors import ModelMissing, UsageError
from recollect.models.cache import mend, seems_installed
from recollect.models.catalogue import MODELS
from recollect.registry import Entry, Registry

if TYPE_CHECKING:
    from recollect.types import Embedder, Progress

EMBEDDERS: Registry[Callable[..., Embedder]] = Registry(
    kind="embedder",
    builtin={
        **{
            model.name: Entry("recollect.embedders.onnx:from_spec", self_contained=True)
            for model in MODELS.values()
            if model.kind == "embedder"
        },
        "hashing": Entry("recollect.embedders.hashing:from_spec", self_contained=True),
        "openai": Entry("recollect.embedders.openai:from_spec"),
        "ollama": Entry("recollect.embedders.openai:from_spec"),
        "fastembed": Entry("recollect.embedders.fastembed:from_spec", "fastembed"),
        "sentence-transformers": Entry("recollect.embedders.sentence_transformers:from_spec", "sentence-transformers"),
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
    if name in MODELS and not seems_installed(name):
        if not fetch:
            raise ModelMissing(f"the model {name} is not on this machine", hint=f"`{mend(MODELS[name])}` fetches it")
        from recollect.models.fetch import fetch_unasked

        fetch_unasked(name, announce=announce or _silent, progress=progress)
    return factory(spec, **options)


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


def _silent(message: str) -> None:
    """Where nobody listens."""

"""A question and a passage read together: one module a system, imported when its name is asked for.

A spec is a name, or a name and what it is to open: `minilm-l12-reranker`, `acme:large`. The part before the first colon
is looked up; what it leads to is called with the whole spec. A package adds its own under the entry point group
`recollect.rerankers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recollect.errors import ModelMissing
from recollect.models.cache import mend, seems_installed
from recollect.models.catalogue import MODELS
from recollect.registry import Entry, Registry

if TYPE_CHECKING:
    from recollect.types import Progress, Reranker

RERANKERS: Registry[Callable[[str], Reranker]] = Registry(
    kind="reranker",
    builtin={m.name: Entry("recollect.rerankers.onnx:from_spec") for m in MODELS.values() if m.kind == "reranker"},
    group="recollect.rerankers",
)


def open_reranker(
    spec: str,
    *,
    announce: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    fetch: bool = True,
) -> Reranker:
    """The reranker that a spec names. A catalogue model that is not here is fetched, and `announce` told so.

    With `fetch=False` that is an error instead.
    """
    name = spec.partition(":")[0]
    factory = RERANKERS.load(name)
    if name in MODELS and not seems_installed(name):
        if not fetch:
            raise ModelMissing(f"the model {name} is not on this machine", hint=f"`{mend(MODELS[name])}` fetches it")
        from recollect.models.fetch import fetch_unasked

        fetch_unasked(name, announce=announce or _silent, progress=progress)
    return factory(spec)


def _silent(message: str) -> None:
    """Where nobody listens."""

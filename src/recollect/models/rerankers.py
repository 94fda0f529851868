"""Rerankers by name: a query and a passage read together.

A spec is a name, or a name and what it is to open: `minilm-l12-reranker`, `acme:large`. The part before the first colon
is looked up; what it leads to is called with the whole spec. A package adds its own under the entry point group
`recollect.rerankers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from recollect.analysis import Analyzer, snippet
from recollect.models.cache import ensure_model
from recollect.models.catalogue import MODELS
from recollect.registry import Entry, Registry
from recollect.types import Record

if TYPE_CHECKING:
    from recollect.types import Progress, Reranker


RERANKERS: Registry[Callable[[str], Reranker]] = Registry(
    kind="reranker",
    builtin={
        m.name: Entry("recollect.models.onnx:open_onnx_reranker") for m in MODELS.values() if m.kind == "reranker"
    },
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
    if name in MODELS:
        ensure_model(name, announce=announce, progress=progress, fetch=fetch)
    return factory(spec)


WIDTH = 500
"""Characters of a text that are read: about a hundred tokens, as in the passages that such models learn from.

Twice as many cost twice the time and rank no better (docs/reranking.md).
"""

SEEN = 20_000
"""Characters of a text in which the part is looked for: to look through a book takes longer than to read the part."""


def passage(record: Record, terms: Collection[str], analyzer: Analyzer) -> str:
    """The title, and of a text that is too long the stretch with the most different words of the question."""
    text = record.text
    if len(text) > WIDTH:
        text = snippet(text[:SEEN], terms, analyzer, width=WIDTH)
    return f"{record.title[:WIDTH]}\n{text}" if record.title else text

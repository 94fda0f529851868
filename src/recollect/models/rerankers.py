"""Rerankers by spec, a name perhaps with an argument after a colon: models that score query and passage together."""

from collections.abc import Callable, Collection

from recollect.analysis import Analyzer, snippet
from recollect.models.catalogue import MODELS, ensure_model, is_here
from recollect.registry import Entry, Registry
from recollect.types import Progress, Record, Reranker

RERANKERS: Registry[Callable[[str], Reranker]] = Registry(
    kind="reranker",
    builtin={
        model.name: Entry("recollect.models.onnx:OnnxReranker") for model in MODELS.values() if model.kind == "reranker"
    },
    group="recollect.rerankers",
)

# Characters of a text that are read: about a hundred tokens, as in the passages such models are trained on. Twice as
# many cost twice the time and rank no better (docs/reranking.md).
WIDTH = 500
SEARCHED = 20_000  # characters in which the best part is searched: a whole book would take longer than reading the part


def open_reranker(
    spec: str, *, announce: Callable[[str], None] | None = None, progress: Progress | None = None, fetch: bool = True
) -> Reranker:
    """Open the reranker that a spec names; a catalogue model is fetched as `open_embedder` does."""
    name = spec.partition(":")[0]
    factory = RERANKERS.load(name)
    if name in MODELS:
        ensure_model(name, announce=announce, progress=progress, fetch=fetch)
    return factory(spec)


def is_ready(spec: str) -> bool:
    """Whether a reranker can be used without fetching its files."""
    name = spec.partition(":")[0]
    RERANKERS.check(name)
    return name not in MODELS or is_here(MODELS[name])


def passage(record: Record, terms: Collection[str], analyzer: Analyzer) -> str:
    """What the model reads of a record: the title, and the text or, if it is long, the part with most query terms."""
    text = record.text
    if len(text) > WIDTH:
        text = snippet(text[:SEARCHED], terms, analyzer, width=WIDTH)
    return f"{record.title[:WIDTH]}\n{text}" if record.title else text

"""How a query and the pipeline that answers it are made of options and settings: sources, rerankers, HyDE."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from recollect import config
from recollect.config import LlmSettings, SearchOptions
from recollect.errors import LlmError, ModelError, RecollectError, UsageError
from recollect.memory.embeddings import Embeddings, OpenedModels
from recollect.memory.validation import FILTER_ARGUMENTS, clean
from recollect.models.openai import open_llm
from recollect.models.rerankers import RERANKERS, passage
from recollect.options import FILTERS, SEARCH, described
from recollect.pipeline import Pipeline, described_error
from recollect.sources.external import Screened, screened
from recollect.sources.local import HydeSource, KeywordSource, VectorSource
from recollect.stages import Confidence, Rerank, RerankScores, order
from recollect.types import Filter, Notes, Query, Record, Reranker, Scope, Source, Store, Work

if TYPE_CHECKING:
    from recollect.memory.memory import Memory

RERANK_BATCH = 4
"""Passages scored between two checks of the deadline: one for each thread that a model uses."""

HYDE_PROMPT = (
    "Write one short passage, two or three plain sentences, such as a note or a document would hold that answers the "
    "question. If you do not know the answer, invent a plausible one. No preamble, no quotation marks."
)
HYDE_TOKENS = 160
HYDE_CHARACTERS = 2_000
"""Characters of a query that are sent to the language model."""

F = TypeVar("F", bound=Callable[..., Any])


def with_options(method: F) -> F:
    """List every search option and filter in the docstring of a method that takes them."""
    if method.__doc__:  # there are no docstrings under `python -OO`
        about = inspect.cleandoc(method.__doc__)
        method.__doc__ = f"{about}\n\nOptions:\n\n{described(SEARCH)}\n\nFilters:\n\n{described(FILTERS)}\n"
    return method


def override_options(search: SearchOptions, arguments: Mapping[str, Any]) -> SearchOptions:
    """Search options with those replaced that the arguments of `Memory.search` name."""
    named = {name: value for name, value in arguments.items() if name not in FILTER_ARGUMENTS and value is not None}
    return config.override(search, named)


def assemble(
    memory: Memory, text: str, where: Filter, search: SearchOptions, work: Work | None
) -> tuple[Pipeline, Query]:
    """The query for a text, and the pipeline that answers it."""
    if not isinstance(text, str):
        raise UsageError(f"a query must be text, not {type(text).__name__}", hint='search("…")')
    deadline = None if search.budget_ms is None else time.monotonic() + search.budget_ms / 1000
    weights = search.weights() | {source.name: source.weight for source in memory.settings.sources}
    query = Query(clean(text), search.limit, search.fetch_k, where, search, deadline, work, weights)
    # The store is read in the name of the scope: a database with row-level security then enforces it.
    store = memory.store.within(where.scope)
    embeddings = memory.embeddings.within(store.spaces, memory.caller)
    sources, absent = _sources(memory, store, embeddings, search)
    rerank = confidence = None
    if search.rerank:
        RERANKERS.check(search.rerank_model.partition(":")[0])
        rerank = Rerank(partial(memory.rerankers.scores, search.rerank_model), search.rerank_head)
    if search.wants_confidence:
        # HyDE's list is not judged: it has no calibration.
        judged = tuple(source.name for source in sources if isinstance(source, KeywordSource | VectorSource))
        confidence = Confidence(memory.calibration.gauge, judged)
    stages = order(partial(_vectors_of, embeddings), store.files.states, rerank, confidence)
    if memory.caller is not None:
        sources = [Screened(source) for source in sources]
    return Pipeline(tuple(sources), stages, memory.executor, absent, store.reading), query


def _sources(
    memory: Memory, store: Store, embeddings: Embeddings, search: SearchOptions
) -> tuple[list[Source], tuple[tuple[str, str], ...]]:
    """The sources that the options name, retrievers first, and those that cannot run, with the reason."""
    external = [source.name for source in memory.settings.sources]
    available = ("keyword", "vector", *external)
    names = available if search.sources is None else search.sources
    if unknown := [name for name in names if name not in available]:
        raise UsageError(f"unknown source {unknown[0]!r}", hint=f"there are {', '.join(available)}")
    if not names:
        raise UsageError("no source is named", hint=f"there are {', '.join(available)}")
    alone = len(set(names)) == 1
    sources: list[Source] = [KeywordSource(store.keywords)] if "keyword" in names else []
    if "vector" in names and embeddings.configured:
        sources += _vector_sources(memory, store.notes, embeddings, search, alone=alone)
    for name in external:
        if name in names:
            source = memory.external[name] if memory.caller is None else memory.external[name].within(memory.caller)
            sources.append(replace(source, insist=alone))
    absent = "vector" in names and not embeddings.configured
    return sources, ((("vector", "no embedder is configured"),) if absent else ())


def _vector_sources(
    memory: Memory, notes: Notes, embeddings: Embeddings, search: SearchOptions, *, alone: bool
) -> list[Source]:
    """The vector retriever, with HyDE beside it or in its place if the options say so."""
    vector = VectorSource(embeddings.serving, alone=alone)
    if not search.hyde:
        return [vector]
    write: Callable[[str], str] = partial(_hypothesis, search, memory.settings.llm, notes, memory.caller)
    if memory.caller is not None:
        write = screened("hyde", write)
    replaces = search.hyde == "replace"
    hyde = HydeSource(embeddings.serving, write, replaces=replaces)
    return [hyde] if replaces else [vector, hyde]


def _vectors_of(embeddings: Embeddings, ids: Sequence[str]) -> dict[str, Any]:
    """Vectors for MMR, as far as there are any; without them it compares words."""
    with contextlib.suppress(RecollectError):
        if embeddings.configured:
            return embeddings.vectors(ids)
    return {}


def _hypothesis(search: SearchOptions, settings: LlmSettings, notes: Notes, caller: Scope | None, query: str) -> str:
    """A hypothetical answer for HyDE, written by the language model and cached by query and model.

    It is cached by scope, too, for a scoped caller: how fast one comes must not reveal what others asked.
    """
    model = search.hyde_model or settings.model
    scope = "" if caller is None else caller.key
    text = f"{scope}{HYDE_PROMPT}\0{model or ''}\0{settings.base_url or ''}\0{query}"
    key = "hyde:" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    if (cached := notes.get(key)) is not None:
        return cached
    llm = open_llm(settings, model=model, timeout=search.hyde_timeout, retries=0, max_tokens=HYDE_TOKENS)
    messages = [{"role": "system", "content": HYDE_PROMPT}, {"role": "user", "content": query[:HYDE_CHARACTERS]}]
    answer = llm.chat(messages).strip()
    if not answer:
        raise LlmError("the language model wrote nothing", hint="try another model: `hyde_model` under [search]")
    notes.put(key, answer)
    return answer


class Rerankers:
    """The rerankers of one memory, which score as many records as there is time for."""

    def __init__(self, store: Store, executor: Executor, open_reranker: Callable[[str], Reranker]) -> None:
        self._store = store
        self._executor = executor
        self._open = open_reranker
        self._lock = threading.Lock()
        self._models = OpenedModels(self._tried)
        self._seconds: dict[str, float] = {}

    def scores(self, model: str, query: Query, records: Sequence[Record]) -> RerankScores:
        """As many of the records' scores as there is time for. They are computed in a thread, which can be left."""
        done: list[float] = []
        work = self._executor.submit(self._score, model, query, records, done)
        try:
            work.result(None if query.deadline is None else max(0.0, query.deadline - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (whatever a reranker raises, there is an answer without it)
            if work.done():
                return RerankScores(warning=f"not reranked: {described_error(error)}")
            work.cancel()
        scores = tuple(done)
        warning = f"there was no time to rerank more than {len(scores)} of {len(records)} results"
        warning = warning if len(scores) > 1 else "no time to rerank"
        return RerankScores(scores, "" if len(scores) == len(records) else warning)

    def _score(self, model: str, query: Query, records: Sequence[Record], done: list[float]) -> None:
        """Score batches into `done`, until all are scored or the next batch would exceed the deadline."""
        with self._lock:
            reranker = self._models[model]
        analyzer = self._store.keywords.analyzer
        terms = analyzer.query(query.text)
        size = len(records) if query.deadline is None else RERANK_BATCH
        for first in range(0, len(records), size):
            batch = records[first : first + size]
            start = time.monotonic()
            if query.deadline is not None and start + len(batch) * self._seconds[model] > query.deadline:
                return
            done += _checked_scores(reranker, query.text, [passage(record, terms, analyzer) for record in batch])
            self._seconds[model] = (time.monotonic() - start) / len(batch)

    def _tried(self, model: str) -> Reranker:
        """The reranker after two trials: the first loads the model, the second is timed."""
        try:
            reranker = self._open(model)
            for _ in range(2):
                start = time.monotonic()
                _checked_scores(reranker, "Is it ready?", ["It is."])
        except RecollectError:
            raise
        except Exception as error:  # a reranker may be third-party code
            raise ModelError(f"{model} cannot be used: {type(error).__name__}: {error}") from error
        self._seconds[model] = time.monotonic() - start
        return reranker


def _checked_scores(reranker: Reranker, query: str, passages: Sequence[str]) -> list[float]:
    """The scores of a reranker, which may be third-party code: one finite number a passage, or an error."""
    scores = [float(score) for score in reranker.scores(query, passages)]
    if len(scores) != len(passages) or not all(map(math.isfinite, scores)):
        raise ModelError(f"{reranker.name} did not return one finite number for each of {len(passages)} passages")
    return scores

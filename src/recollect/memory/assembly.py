"""Which sources a search asks, and in which order: settings into a pipeline."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from recollect.config import SYSTEMS, SearchOptions, Settings, SourceSettings
from recollect.errors import LlmError, ModelError, ModelMissing, RecollectError, UsageError
from recollect.memory.calibration import Calibration
from recollect.memory.embeddings import Embeddings
from recollect.memory.peers import Peer
from recollect.models.llm import open_llm
from recollect.models.rerankers import RERANKERS, passage
from recollect.pipeline import Pipeline
from recollect.sources import (
    Breaker,
    ExternalSource,
    HydeSource,
    KeywordSource,
    ResultMatcher,
    Screened,
    VectorSource,
    screened,
)
from recollect.stages import Confidence, Rerank, RerankScores, order
from recollect.types import Notes, Query, Record, Reranker, Scope, Source, Store, System


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a pipeline is made of. `caller` is the scope of a scoped caller, who learns of nothing outside it."""

    store: Store
    embeddings: Embeddings
    settings: Settings
    executor: Executor
    reranking: Reranking
    outside: Mapping[str, ExternalSource]
    calibration: Calibration
    caller: Scope | None = None

    def pipeline(self, search: SearchOptions) -> Pipeline:
        """Sources in their fixed order, whatever order they were named in: ours first, then the outside ones."""
        there = ("keyword", "vector", *self.outside)
        names = there if search.sources is None else search.sources
        if unknown := [name for name in names if name not in there]:
            raise UsageError(f"unknown source {unknown[0]!r}", hint=f"there are {', '.join(there)}")
        if not names:
            raise UsageError("no source is named", hint=f"there are {', '.join(there)}")
        sources: list[Source] = [KeywordSource(self.store.keywords)] if "keyword" in names else []
        absent: list[tuple[str, str]] = []
        if "vector" in names and self.embeddings.configured:
            sources += self._by_meaning(search, alone=set(names) == {"vector"})
        elif "vector" in names:
            absent.append(("vector", "no embedder is configured"))
        sources += [self._outside(name, alone=set(names) == {name}) for name in self.outside if name in names]
        stages = order(
            self._vectors_of, self.store.files.states, self._rerank(search), self._confidence(search, sources)
        )
        told = sources if self.caller is None else [Screened(source) for source in sources]
        return Pipeline(tuple(told), stages, self.executor, tuple(absent))

    def _outside(self, name: str, *, alone: bool) -> ExternalSource:
        source = self.outside[name] if self.caller is None else self.outside[name].within(self.caller)
        return replace(source, insist=alone)

    def _by_meaning(self, search: SearchOptions, *, alone: bool) -> Sequence[Source]:
        """The vector source, with HyDE beside it or in its place where that is asked for."""
        plain = VectorSource(self.embeddings.serving, alone=alone)
        if not search.hyde:
            return [plain]
        write: Callable[[str], str] = Hypotheses(replace(self.settings, search=search), self.store.notes, self.caller)
        if self.caller is not None:
            write = screened("hyde", write)
        if search.hyde == "replace":
            return [HydeSource(self.embeddings.serving, write, replaces=True)]
        return [plain, HydeSource(self.embeddings.serving, write)]

    def _confidence(self, search: SearchOptions, sources: Sequence[Source]) -> Confidence | None:
        """The stage where it is asked for. A list that HyDE writes has no unrelated queries to be compared with."""
        if not search.wants_confidence:
            return None
        read = tuple(source.name for source in sources if isinstance(source, KeywordSource | VectorSource))
        return Confidence(self.calibration.gauge, read)

    def _rerank(self, search: SearchOptions) -> Rerank | None:
        """The reranking stage where it is asked for. A name that nothing has is wrong use, and said at once."""
        if not search.rerank:
            return None
        RERANKERS.check(search.rerank_model.partition(":")[0])
        return Rerank(partial(self.reranking.scores, search.rerank_model), search.rerank_head)

    def _vectors_of(self, ids: Sequence[str]) -> dict[str, Any]:
        """For MMR: vectors where they can be had; without them it compares words."""
        with contextlib.suppress(RecollectError):
            if self.embeddings.configured:
                return self.embeddings.vectors(ids)
        return {}


def open_outside(settings: Settings, store: Store) -> dict[str, ExternalSource]:
    """The outside sources of the settings, by name, ready to be asked."""
    return {
        said.name: ExternalSource(
            said,
            _system(said, settings),
            ResultMatcher(said.name, said.join, store.records, store.joins),
            Breaker(said.fingerprint, store.notes),
        )
        for said in settings.sources
    }


def _system(said: SourceSettings, settings: Settings) -> System:
    """What asks the system. Its kind may be anybody's, so whatever it raises becomes an error of ours."""
    if said.kind == "recollect":
        return Peer.of(said, settings)
    try:
        return SYSTEMS.load(said.kind)(said)
    except RecollectError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"the source {said.name!r} cannot be set up: {what}", hint=f"check its table, and what {said.kind!r} needs"
        ) from error


BATCH = 4
"""Passages scored between two looks at the clock: one for each thread that a model has at the most."""

OpenReranker: TypeAlias = Callable[[str], Reranker]
"""A name → the reranker, or an error that says why not."""


class Reranking:
    """The rerankers of one memory. Each is opened when first needed; one that could not be is not tried again.

    Only a model that is not on this machine is looked for again: somebody may have fetched it meanwhile.
    """

    def __init__(self, store: Store, executor: Executor, open_reranker: OpenReranker) -> None:
        self._store = store
        self._executor = executor
        self._open = open_reranker
        self._lock = threading.Lock()
        self._opened: dict[str, Reranker | RecollectError] = {}
        self._pace: dict[str, float] = {}

    def scores(self, model: str, query: Query, records: Sequence[Record]) -> RerankScores:
        """As many of the records' scores as there is time for. The work is in a thread, so that it can be left."""
        done: list[float] = []
        work = self._executor.submit(self._work, model, query, records, done)
        try:
            work.result(None if query.deadline is None else max(0.0, query.deadline - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (an edge: whatever a reranker does, there is an answer without it)
            if work.done():
                return RerankScores(warning=f"not reranked: {_words(error)}")
            work.cancel()
        scores = tuple(done)
        return RerankScores(scores, _cut_off(len(scores), len(records)))

    def _work(self, model: str, query: Query, records: Sequence[Record], done: list[float]) -> None:
        """Score batch after batch into `done`, until all is done or the next batch would come too late."""
        reranker = self._ready(model)
        analyzer = self._store.keywords.analyzer
        terms = analyzer.query(query.text)
        size = len(records) if query.deadline is None else BATCH
        for first in range(0, len(records), size):
            batch = records[first : first + size]
            start = time.monotonic()
            if query.deadline is not None and start + len(batch) * self._pace[model] > query.deadline:
                return
            done += _checked(reranker, query.text, [passage(record, terms, analyzer) for record in batch])
            self._pace[model] = (time.monotonic() - start) / len(batch)

    def _ready(self, model: str) -> Reranker:
        """The reranker, opened and tried once: a graph is loaded at its first pair."""
        with self._lock:
            if model not in self._opened or isinstance(self._opened[model], ModelMissing):
                self._opened[model] = self._try(model)
        opened = self._opened[model]
        if isinstance(opened, RecollectError):
            raise opened
        return opened

    def _try(self, model: str) -> Reranker | RecollectError:
        try:
            reranker = self._open(model)
            _checked(reranker, "Is it ready?", ["It is."])
            start = time.monotonic()
            _checked(reranker, "Is it ready?", ["It is."])
            self._pace[model] = time.monotonic() - start
        except RecollectError as error:
            return error
        except Exception as error:  # noqa: BLE001  (it may be anybody's)
            return ModelError(f"{model} cannot be used: {type(error).__name__}: {error}")
        return reranker


def _checked(reranker: Reranker, query: str, passages: Sequence[str]) -> list[float]:
    """A reranker may be anybody's, so that what it answers is looked at before it is believed."""
    found = [float(score) for score in reranker.scores(query, passages)]
    if len(found) != len(passages) or not all(map(math.isfinite, found)):
        raise ModelError(f"{reranker.name} did not give {len(passages)} passages as many finite numbers")
    return found


def _cut_off(done: int, wanted: int) -> str:
    if done == wanted:
        return ""
    return f"there was no time to rerank more than {done} of {wanted} results" if done > 1 else "no time to rerank"


def _words(error: BaseException) -> str:
    if not isinstance(error, RecollectError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message} ({error.hint})" if error.hint else error.message


PROMPT = (
    "Write one short passage, two or three plain sentences, such as a note or a document would hold that answers the "
    "question. If you do not know the answer, invent a plausible one. No preamble, no quotation marks."
)
MAX_TOKENS = 160
MOST_ASKED = 2_000
"""Characters of a question that are sent."""


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Answers to questions, from the cache or from the model."""

    settings: Settings
    notes: Notes
    caller: Scope | None = None

    def __call__(self, question: str) -> str:
        """A hypothetical answer, or an error that says why there is none."""
        said, search = self.settings.llm, self.settings.search
        model = search.hyde_model or said.model
        key = _key(model or "", said.base_url or "", question, self.caller)
        kept = self.notes.get(key)
        if kept is not None:
            return kept
        llm = open_llm(
            base_url=said.base_url,
            model=model,
            api_key=os.environ.get(said.api_key_env),
            timeout=search.hyde_timeout,
            retries=0,
            max_tokens=MAX_TOKENS,
            temperature=said.temperature,
        )
        answer = llm.chat(
            [{"role": "system", "content": PROMPT}, {"role": "user", "content": question[:MOST_ASKED]}]
        ).strip()
        if not answer:
            raise LlmError("the language model wrote nothing", hint="try another model: `hyde_model` under [search]")
        self.notes.put(key, answer)
        return answer


def _key(model: str, base_url: str, question: str, caller: Scope | None) -> str:
    asked = f"{'' if caller is None else caller.key}{PROMPT}\0{model}\0{base_url}\0{question}"
    return "hyde:" + hashlib.blake2b(asked.encode(), digest_size=16).hexdigest()

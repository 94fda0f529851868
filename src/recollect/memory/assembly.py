"""How settings become a pipeline: its sources, external systems, rerankers and hypothetical answers."""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from recollect.config import SYSTEMS, SearchOptions, Settings, SourceSettings
from recollect.errors import LlmError, ModelError, ModelMissing, RecollectError, UsageError
from recollect.memory.calibration import Calibration
from recollect.memory.embeddings import Embeddings
from recollect.memory.opening import language_model
from recollect.memory.shapes import iso
from recollect.models.rerankers import RERANKERS, passage
from recollect.pipeline import Pipeline
from recollect.sources.external import FAILURES, Breaker, ExternalSource, Screened, screened
from recollect.sources.local import HydeSource, KeywordSource, VectorSource
from recollect.sources.matcher import ResultMatcher
from recollect.stages import Confidence, Rerank, RerankScores, order
from recollect.types import ExternalSystem, Notes, Query, Record, Reranker, Scope, Source, Store

RERANK_BATCH = 4
"""Passages scored between two checks of the deadline: one for each thread that a model uses."""

HYDE_PROMPT = (
    "Write one short passage, two or three plain sentences, such as a note or a document would hold that answers the "
    "question. If you do not know the answer, invent a plausible one. No preamble, no quotation marks."
)
HYDE_TOKENS = 160
HYDE_CHARACTERS = 2_000
"""Characters of a query that are sent to the language model."""

OpenReranker: TypeAlias = Callable[[str], Reranker]
"""Opens a reranker by name, or raises an error that says why it cannot."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of a pipeline. `caller` is the scope of a scoped caller, who learns of nothing outside it."""

    store: Store
    embeddings: Embeddings
    settings: Settings
    executor: Executor
    rerankers: Rerankers
    external: Mapping[str, ExternalSource]
    calibration: Calibration
    caller: Scope | None = None

    def pipeline(self, search: SearchOptions) -> Pipeline:
        """The pipeline for these settings. Sources are in a fixed order: retrievers first, then external sources."""
        available = ("keyword", "vector", *self.external)
        names = available if search.sources is None else search.sources
        if unknown := [name for name in names if name not in available]:
            raise UsageError(f"unknown source {unknown[0]!r}", hint=f"there are {', '.join(available)}")
        if not names:
            raise UsageError("no source is named", hint=f"there are {', '.join(available)}")
        sources: list[Source] = [KeywordSource(self.store.keywords)] if "keyword" in names else []
        absent: list[tuple[str, str]] = []
        if "vector" in names and self.embeddings.configured:
            sources += self._vector_sources(search, alone=set(names) == {"vector"})
        elif "vector" in names:
            absent.append(("vector", "no embedder is configured"))
        sources += [self._external_source(name, alone=set(names) == {name}) for name in self.external if name in names]
        stages = order(
            self._vectors_of, self.store.files.states, self._rerank(search), self._confidence(search, sources)
        )
        if self.caller is not None:
            sources = [Screened(source) for source in sources]
        return Pipeline(tuple(sources), stages, self.executor, tuple(absent), self.store.reading)

    def _external_source(self, name: str, *, alone: bool) -> ExternalSource:
        source = self.external[name] if self.caller is None else self.external[name].within(self.caller)
        return replace(source, insist=alone)

    def _vector_sources(self, search: SearchOptions, *, alone: bool) -> Sequence[Source]:
        """The vector retriever, with HyDE beside it or in its place if the settings say so."""
        vector = VectorSource(self.embeddings.serving, alone=alone)
        if not search.hyde:
            return [vector]
        write: Callable[[str], str] = Hypotheses(replace(self.settings, search=search), self.store.notes, self.caller)
        if self.caller is not None:
            write = screened("hyde", write)
        if search.hyde == "replace":
            return [HydeSource(self.embeddings.serving, write, replaces=True)]
        return [vector, HydeSource(self.embeddings.serving, write)]

    def _confidence(self, search: SearchOptions, sources: Sequence[Source]) -> Confidence | None:
        """The confidence stage if it is wanted. HyDE's list is not judged: it has no calibration."""
        if not search.wants_confidence:
            return None
        names = tuple(source.name for source in sources if isinstance(source, KeywordSource | VectorSource))
        return Confidence(self.calibration.gauge, names)

    def _rerank(self, search: SearchOptions) -> Rerank | None:
        """The reranking stage if it is wanted. An unknown name is refused at once."""
        if not search.rerank:
            return None
        RERANKERS.check(search.rerank_model.partition(":")[0])
        return Rerank(partial(self.rerankers.scores, search.rerank_model), search.rerank_head)

    def _vectors_of(self, ids: Sequence[str]) -> dict[str, Any]:
        """Vectors for MMR, as far as there are any; without them it compares words."""
        with contextlib.suppress(RecollectError):
            if self.embeddings.configured:
                return self.embeddings.vectors(ids)
        return {}


@runtime_checkable
class Configurable(Protocol):
    """A system that wants the settings of the memory, beside its own table of `[[sources]]`."""

    def configure(self, settings: Settings) -> None:
        """Called once, before the first query."""


def open_system(source: SourceSettings, settings: Settings) -> ExternalSystem:
    """The system of a table of `[[sources]]`. It may be third-party code: whatever it raises becomes our error."""
    try:
        system = SYSTEMS.load(source.kind)(source)
        if isinstance(system, Configurable):
            system.configure(settings)
    except RecollectError:
        raise
    except Exception as error:
        raise UsageError(
            f"the source {source.name!r} cannot be set up: {type(error).__name__}: {error}",
            hint=f"check its table, and what {source.kind!r} needs",
        ) from error
    return system


class ExternalSources(Mapping[str, ExternalSource]):
    """The external sources of the settings by name, opened when one is first used."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._lock = threading.Lock()
        self._opened: dict[str, ExternalSource] | None = None

    def __getitem__(self, name: str) -> ExternalSource:
        with self._lock:
            if self._opened is None:
                self._opened = {source.name: self._open(source) for source in self._settings.sources}
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return (source.name for source in self._settings.sources)

    def __len__(self) -> int:
        return len(self._settings.sources)

    def close(self) -> None:
        """Close the systems that were opened. Whatever one of them raises, the others are closed."""
        for source in (self._opened or {}).values():
            with contextlib.suppress(Exception):
                source.system.close()

    def health(self) -> list[dict[str, Any]]:
        """The state of each source; retrievers are available as long as the store is."""
        retrievers = [{"name": name, "kind": name, "state": "ok", "failures": 0} for name in ("keyword", "vector")]
        return [*retrievers, *(_health(name, source) for name, source in self.items())]

    def _open(self, source: SourceSettings) -> ExternalSource:
        matcher = ResultMatcher(source.name, source.join, self._store.records, self._store.joins)
        breaker = Breaker(source.fingerprint, self._store.notes)
        return ExternalSource(source, open_system(source, self._settings), matcher, breaker)


def _health(name: str, source: ExternalSource) -> dict[str, Any]:
    failures = source.breaker.state()
    resting = failures.failures >= FAILURES and failures.until > time.time()
    state = "resting" if resting else "failing" if failures.failures else "ok"
    return (
        {"name": name, "kind": source.settings.kind, "state": state, "failures": failures.failures}
        | ({"reason": failures.reason} if failures.failures and failures.reason else {})
        | ({"until": iso(datetime.fromtimestamp(failures.until, UTC))} if resting else {})
    )


class Rerankers:
    """The rerankers of one memory. Each is opened when first needed; one that failed to open is not tried again.

    Only a model that is not on this machine is looked for again: it may have been fetched meanwhile.
    """

    def __init__(self, store: Store, executor: Executor, open_reranker: OpenReranker) -> None:
        self._store = store
        self._executor = executor
        self._open = open_reranker
        self._lock = threading.Lock()
        self._opened: dict[str, Reranker | RecollectError] = {}
        self._seconds: dict[str, float] = {}

    def scores(self, model: str, query: Query, records: Sequence[Record]) -> RerankScores:
        """As many of the records' scores as there is time for. They are computed in a thread, which can be left."""
        done: list[float] = []
        work = self._executor.submit(self._score, model, query, records, done)
        try:
            work.result(None if query.deadline is None else max(0.0, query.deadline - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (whatever a reranker raises, there is an answer without it)
            if work.done():
                return RerankScores(warning=f"not reranked: {_message(error)}")
            work.cancel()
        scores = tuple(done)
        return RerankScores(scores, _cut_off(len(scores), len(records)))

    def _score(self, model: str, query: Query, records: Sequence[Record], done: list[float]) -> None:
        """Score batches into `done`, until all are scored or the next batch would exceed the deadline."""
        reranker = self._ready(model)
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

    def _ready(self, model: str) -> Reranker:
        with self._lock:
            if model not in self._opened or isinstance(self._opened[model], ModelMissing):
                self._opened[model] = self._tried(model)
        opened = self._opened[model]
        if isinstance(opened, RecollectError):
            raise opened
        return opened

    def _tried(self, model: str) -> Reranker | RecollectError:
        """The reranker after two trials: the first loads the model, the second is timed."""
        try:
            reranker = self._open(model)
            _checked_scores(reranker, "Is it ready?", ["It is."])
            start = time.monotonic()
            _checked_scores(reranker, "Is it ready?", ["It is."])
            self._seconds[model] = time.monotonic() - start
        except RecollectError as error:
            return error
        except Exception as error:  # noqa: BLE001  (a reranker may be third-party code)
            return ModelError(f"{model} cannot be used: {type(error).__name__}: {error}")
        return reranker


def _checked_scores(reranker: Reranker, query: str, passages: Sequence[str]) -> list[float]:
    """The scores of a reranker, which may be third-party code: one finite number a passage, or an error."""
    scores = [float(score) for score in reranker.scores(query, passages)]
    if len(scores) != len(passages) or not all(map(math.isfinite, scores)):
        raise ModelError(f"{reranker.name} did not return one finite number for each of {len(passages)} passages")
    return scores


def _cut_off(done: int, total: int) -> str:
    if done == total:
        return ""
    return f"there was no time to rerank more than {done} of {total} results" if done > 1 else "no time to rerank"


def _message(error: BaseException) -> str:
    if not isinstance(error, RecollectError):
        return f"{type(error).__name__}: {error}"
    return f"{error.message} ({error.hint})" if error.hint else error.message


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """Hypothetical answers for HyDE, written by the language model and cached by query and model.

    They are cached by scope, too, for a scoped caller: how fast one comes must not reveal what others asked.
    """

    settings: Settings
    notes: Notes
    caller: Scope | None = None

    def __call__(self, query: str) -> str:
        """A hypothetical answer, or an error that says why there is none."""
        search = self.settings.search
        model = search.hyde_model or self.settings.llm.model
        key = self._key(model or "", query)
        cached = self.notes.get(key)
        if cached is not None:
            return cached
        llm = language_model(self.settings, model=model, timeout=search.hyde_timeout, retries=0, max_tokens=HYDE_TOKENS)
        messages = [
            {"role": "system", "content": HYDE_PROMPT},
            {"role": "user", "content": query[:HYDE_CHARACTERS]},
        ]
        answer = llm.chat(messages).strip()
        if not answer:
            raise LlmError("the language model wrote nothing", hint="try another model: `hyde_model` under [search]")
        self.notes.put(key, answer)
        return answer

    def _key(self, model: str, query: str) -> str:
        scope = "" if self.caller is None else self.caller.key
        text = f"{scope}{HYDE_PROMPT}\0{model}\0{self.settings.llm.base_url or ''}\0{query}"
        return "hyde:" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

"""From options and settings to a query and its pipeline: retrievers, HyDE, rerankers, and external systems."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from recollect.config import SYSTEMS, LlmSettings, SearchOptions, Settings, SourceSettings, shown_place
from recollect.dataclass import dataclass
from recollect.disk import at_home
from recollect.errors import (
    LlmError,
    ModelError,
    SearchFailed,
    SourceFailed,
    TimedOut,
    Unreachable,
    UsageError,
    errors_as,
)
from recollect.memory.asking import SearchRequest, as_list, asks_nothing
from recollect.memory.embeddings import Embeddings, OpenedModels, unconfigured_model
from recollect.memory.shapes import answer_dict, iso
from recollect.models.embedders import is_self_contained
from recollect.models.rerankers import RERANKERS, WIDTH, is_ready, passage
from recollect.options import FILTERS, SEARCH, described
from recollect.pipeline import Pipeline, described_error
from recollect.sources.local import HydeSource, KeywordSource, ListSource, Spelling, VectorSource
from recollect.stages import REORDERING, Rerank, RerankScores, order
from recollect.stores import exists, open_store
from recollect.types import ExternalQuery, Notes, Query, Record, Reranker, Scope, Source, Store, Work
from recollect.types.protocols import ExternalSystem

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future
    from logging import Logger

    from recollect.memory.memory import Memory
    from recollect.sources.external import ExternalSource
else:
    Executor = object  # a search that needs no threads does not import them

WORKERS = 64  # threads for sources, started as needed: a source that hangs must not block another
TRIAL = "Is it ready?"
RERANK_BATCH = 4  # passages scored between two checks of the deadline: one for each thread that a model uses
CLOSE_SECONDS = 0.2  # how long `close` waits for a store that is being opened
BODY = {"query": "{query}", "limit": "{fetch_k}", "scope": "{scope}", "by": "chunk"}

HYDE_PROMPT = (
    "Write one short passage, two or three plain sentences, such as a note or a document would hold that answers the "
    "question. If you do not know the answer, invent a plausible one. No preamble, no quotation marks."
)
HYDE_TOKENS = 160
HYDE_CHARACTERS = 2_000  # of a query that are sent to the language model

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


def with_options(method: F) -> F:
    """List every search option and filter in the docstring of a method that takes them."""
    if method.__doc__:  # there are no docstrings under `python -OO`
        about = inspect.cleandoc(method.__doc__)
        method.__doc__ = f"{about}\n\nOptions:\n\n{described(SEARCH)}\n\nFilters:\n\n{described(FILTERS)}\n"
    return method


def assemble(
    memory: Memory, request: SearchRequest, search: SearchOptions, work: Work | None
) -> tuple[Pipeline, Query]:
    """The query of a request, and the pipeline that answers it."""
    # The store is read in the name of the scope: a database with row-level security then enforces it.
    store = memory.store.within(request.where.scope)
    unlikely = False
    with contextlib.suppress(Unreachable):  # the pipeline searches what can be reached
        request = request if search.plain else as_list(request, store)
        unlikely = asks_nothing(request, store)
    where = request.where
    if request.has_only_fields:  # there is nothing to be confident about
        search = replace(search, min_confidence=0.0, rerank=False)
    deadline = None if search.budget_ms is None else time.monotonic() + search.budget_ms / 1000
    weights = search.weights() | {source.name: source.weight for source in memory.settings.sources}
    query = Query(
        request.text, search.limit, search.fetch_k, where, search, deadline, work, weights, request.written,
        request.prefixes, request.period, request.notes, unlikely,
    )  # fmt: skip
    embeddings = memory.embeddings.within(store.spaces, memory.caller)
    sources, absent = _sources(memory, store, embeddings, search)
    if request.has_only_fields:
        sources, absent = [ListSource(store.records, store.keywords.analyzer)], ()
    if sources and not any(weights.get(source.name, 1.0) for source in sources):
        query = replace(query, notes=(*query.notes, "every source has the weight 0, so nothing is found"))
    rerank = None
    if search.rerank:
        RERANKERS.check(search.rerank_model.partition(":")[0])
        rerank = Rerank(partial(memory.rerankers.scores, search.rerank_model), search.rerank_head)
    stages = order(embeddings.vectors, store.files.states, rerank)
    if request.has_only_fields:  # newest first
        stages = tuple(stage for stage in stages if stage[0] not in REORDERING)
    if memory.caller is not None:
        from recollect.sources.external import Screened

        sources = [Screened(source) for source in sources]
    return Pipeline(tuple(sources), stages, memory.executor, absent, store.reading, store.narrowed), query


def _sources(
    memory: Memory, store: Store, embeddings: Embeddings, search: SearchOptions
) -> tuple[list[Source], tuple[tuple[str, str], ...]]:
    """The sources that the options name, retrievers first, and those that cannot run, with the reason."""
    external = [source.name for source in memory.settings.sources]
    available = ("keyword", "vector", *external)
    names = available if search.sources is None else search.sources
    unknown = [f"unknown source {name!r}" for name in names if name not in available]
    if unknown or not names:
        raise UsageError(unknown[0] if unknown else "no source is named", hint=f"there are {', '.join(available)}")
    alone = len(set(names)) == 1
    spelling = Spelling(store.keywords)
    sources: list[Source] = [KeywordSource(store.keywords, spelling)] if "keyword" in names else []
    absent = "vector" in names and not embeddings.configured
    if "vector" in names and not absent and search.hyde != "replace":
        sources.append(VectorSource(embeddings.serving, None if alone else spelling, memory.closeness))
    if "vector" in names and not absent and search.hyde:
        write: Callable[[str], str] = partial(_hypothesis, search, memory.settings.llm, store.notes, memory.caller)
        if memory.caller is not None:
            from recollect.sources.external import screened

            write = screened("hyde")(write)
        from recollect.models.openai import is_remote

        remote = is_remote(memory.settings.llm)
        sources.append(HydeSource(embeddings.serving, write, replaces=search.hyde == "replace", remote=remote))
    for name in external:
        if name in names:
            source = memory.external[name] if memory.caller is None else memory.external[name].within(memory.caller)
            sources.append(replace(source, insist=alone))
    return sources, ((("vector", "no embedder is configured"),) if absent else ())


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
    from recollect.models.openai import open_llm

    llm = open_llm(settings, model=model, timeout=search.hyde_timeout, retries=0, max_tokens=HYDE_TOKENS)
    messages = [{"role": "system", "content": HYDE_PROMPT}, {"role": "user", "content": query[:HYDE_CHARACTERS]}]
    answer = llm.chat(messages).strip()
    if not answer:
        raise LlmError("the language model wrote nothing", hint="try another model: `hyde_model` under [search]")
    notes.put(key, answer)
    return answer


class Threads(Executor):
    """The threads of one memory, started as needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Executor | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function in a thread."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            self._pool = self._pool or ThreadPoolExecutor(WORKERS, thread_name_prefix="recollect")
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the threads, if there are any."""
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)


class Rerankers:
    """The rerankers of one memory, which score as many records as there is time for."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        open_reranker: Callable[[str], Reranker],
        announce: Callable[[str], None],
    ) -> None:
        self._store, self._executor, self._open, self._announce = store, executor, open_reranker, announce
        self._lock = threading.Lock()
        self._models = OpenedModels(self._tried)
        self._seconds: dict[str, float] = {}

    def close(self) -> None:
        """Let go of the models, which hold much memory and are part of a circle of references."""
        self._models = OpenedModels(self._tried)

    def are_ready(self, model: str) -> bool:
        """Whether the reranker can be used without fetching it; if not, it is announced once how to get it."""
        if is_ready(model):
            return True
        key = f"announced:{model}"
        if self._store.notes.get(key) is None:
            self._store.notes.put(key, "")
            get = f"`recollect model fetch {model}` gets it, `rerank = false` under [search] does without"
            self._announce(f"results are not reranked: the model {model} is not on this machine ({get})")
        return False

    def scores(self, model: str, query: Query, records: Sequence[Record]) -> RerankScores:
        """As many of the records' scores as there is time for. They are computed in threads, which can be left.

        The time of `rerank_ms` begins when the model is loaded. There is no warning when that is over: it was meant.
        """
        done: list[float] = []
        until = deadline = query.deadline or math.inf
        try:
            _result_by(deadline, self._executor.submit(self._opened, model))
            if (milliseconds := query.ranking.rerank_ms) is not None:
                until = min(deadline, time.monotonic() + milliseconds / 1000)
            _result_by(until, self._executor.submit(self._score, model, query, records, until, done))
        except TimedOut:
            pass
        except Exception as error:  # noqa: BLE001  (whatever a reranker raises, there is an answer without it)
            return RerankScores(warning=f"not reranked: {described_error(error)}")
        scores = tuple(done)
        warning = f"there was no time to rerank more than {len(scores)} of {len(records)} results"
        warning = warning if len(scores) > 1 else "no time to rerank"
        return RerankScores(scores, "" if len(scores) == len(records) or until < deadline else warning)

    def _opened(self, model: str) -> Reranker:
        with self._lock:
            return self._models[model]

    def _score(self, model: str, query: Query, records: Sequence[Record], until: float, done: list[float]) -> None:
        """Score batches into `done`, until all are scored or no more fit."""
        reranker, analyzer = self._opened(model), self._store.keywords.analyzer
        terms = analyzer.query(query.text)
        while len(done) < len(records):
            start, size = time.monotonic(), len(records)
            if until != math.inf:
                size = min(RERANK_BATCH, int((until - start) / self._seconds[model]))
            batch = records[len(done) : len(done) + max(0, size)]
            if not batch or len(done) + len(batch) < 2:  # noqa: PLR2004  (one score alone orders nothing)
                return
            done += _checked_scores(reranker, query.text, [passage(record, terms, analyzer) for record in batch])
            self._seconds[model] = max(1e-9, (time.monotonic() - start) / len(batch))

    def _tried(self, model: str) -> Reranker:
        """The reranker after two trials: the first loads the model, the second, with a text of usual size, is timed."""
        with errors_as(ModelError, f"{model} cannot be used"):
            reranker = self._open(model)
            _checked_scores(reranker, TRIAL, ["It is."])
            start = time.monotonic()
            _checked_scores(reranker, TRIAL, ["It is. " * (WIDTH // 7)])
        self._seconds[model] = max(1e-9, time.monotonic() - start)
        return reranker


def _result_by(deadline: float, work: Future[T]) -> T:
    """The result of work in a thread; TimedOut at the deadline, a time of `time.monotonic`."""
    try:
        return work.result(None if deadline == math.inf else max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        if work.done():
            raise  # the work itself raised it
        work.cancel()
        raise TimedOut("it was not done in time") from error


def _checked_scores(reranker: Reranker, query: str, passages: Sequence[str]) -> list[float]:
    """The scores of a reranker, which may be third-party code: one finite number a passage, or an error."""
    scores = [float(score) for score in reranker.scores(query, passages)]
    if len(scores) != len(passages) or not all(map(math.isfinite, scores)):
        raise ModelError(f"{reranker.name} did not return one finite number for each of {len(passages)} passages")
    return scores


def open_system(source: SourceSettings, settings: Settings) -> ExternalSystem:
    """The system of a table of `[[sources]]`, which may be third-party code.

    A system with a method `configure` also gets the settings of the memory, once, before the first query.
    """
    hint = f"check its table, and what {source.kind!r} needs"
    with errors_as(UsageError, f"the source {source.name!r} cannot be set up", hint):
        system = SYSTEMS.load(source.kind)(source)
        if (configure := getattr(system, "configure", None)) is not None:
            configure(settings)
    return system


class ExternalSources:
    """The external sources of the settings by name, opened when one is first used."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._lock = threading.Lock()
        self._opened: dict[str, ExternalSource] | None = None

    def __getitem__(self, name: str) -> ExternalSource:
        with self._lock:
            if self._opened is None:
                self._opened = {source.name: self._open(source) for source in self._settings.sources}
        return self._opened[name]

    def close(self) -> None:
        """Close the systems that were opened. Whatever one of them raises, the others are closed."""
        for source in (self._opened or {}).values():
            with contextlib.suppress(Exception):
                source.system.close()

    def health(self) -> Sequence[dict[str, Any]]:
        """The state of each source; retrievers are available as long as the store is."""
        from recollect.sources.external import FAILURES

        health: list[dict[str, Any]] = [
            {"name": name, "kind": name, "state": "ok", "failures": 0} for name in ("keyword", "vector")
        ]
        for source in self._settings.sources:
            breaker = self[source.name].breaker.state()
            resting = breaker.failures >= FAILURES and breaker.until > time.time()
            state = "resting" if resting else "failing" if breaker.failures else "ok"
            health.append({"name": source.name, "kind": source.kind, "state": state, "failures": breaker.failures})
            if breaker.failures and breaker.reason:
                health[-1]["reason"] = breaker.reason
            if resting:
                health[-1]["until"] = iso(datetime.fromtimestamp(breaker.until, UTC))
        return health

    def _open(self, source: SourceSettings) -> ExternalSource:
        from recollect.sources.external import Breaker, ExternalSource
        from recollect.sources.matcher import ResultMatcher

        store = self._store
        matcher = ResultMatcher(
            source.name, source.join, store.records, store.joins, analyzer=lambda: store.keywords.analyzer
        )
        breaker = Breaker(source.fingerprint, self._store.notes)
        return ExternalSource(source, open_system(source, self._settings), matcher, breaker)


def open_peer(source: SourceSettings) -> ExternalSystem:
    """The system of a `[[sources]]` table of kind `recollect`: a `store` of its own, or the `url` of a server."""
    if "store" in source.options:
        return PeerStore(source)
    from recollect.sources.transports import HttpSystem

    url = f"{source.options['url'].rstrip('/')}/v1/search"
    return HttpSystem(replace(source, options={**source.options, "url": url, "method": "POST", "body": BODY}))


def logger() -> Logger:
    """The logger of the package. `logging`, with what it imports, takes 3 ms to load: a command needs none of it."""
    import logging

    return logging.getLogger("recollect")


@dataclass(slots=True)
class PeerStore:
    """Another store, searched as its owner would search it, with the scope of the query.

    It is opened read-only when it is first queried, and never written to.
    """

    source: SourceSettings
    settings: Settings = field(default_factory=Settings)
    _memory: Memory | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def configure(self, settings: Settings) -> None:
        """Use the endpoint and the embedder of these settings."""
        self.settings = settings

    def ask(self, query: ExternalQuery) -> Any:
        """The answer as JSON."""
        left_ms = max(1.0, query.seconds_left * 1000)
        try:
            options: dict[str, Any] = {"limit": query.fetch_k, "scope": query.scope, "origin": query.origins}
            answer = self._open().search(query.text, **options, by="chunk", budget_ms=left_ms)
        except SearchFailed as error:
            if query.seconds_left > 0:
                raise
            raise TimedOut(f"none of its own sources answered in time: {error.message}") from error
        return answer_dict(answer)

    def close(self) -> None:
        """Close the store, if it is open."""
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            memory, self._memory = self._memory, None
            self._lock.release()
            if memory is not None:
                memory.close()

    def _open(self) -> Memory:
        from recollect.memory.memory import Memory

        with self._lock:
            if self._memory is None:
                place = self.source.options["store"]
                if not exists(place):
                    hint = "check `store` in its table of [[sources]]"
                    raise SourceFailed(f"there is no store at {shown_place(place)}", hint=hint)
                store = open_store(place if "://" in place else str(at_home(place)), read_only=True)
                embedder = self.source.options.get("embedder") or self._embedder_of(store)
                self._memory = Memory(store, Settings(openai=self.settings.openai), embedder, announce=logger().debug)
            return self._memory

    def _embedder_of(self, store: Store) -> str:
        """The model of the store's vectors, if the store may name it; else `none`, for keyword search only."""
        name = store.spaces.active.embedder if store.spaces.active else "none"
        if name in ("none", self.settings.embedder) or is_self_contained(name):
            return name
        advice = "name it as `embedder` in its table of [[sources]] to use it"
        logger().warning(
            "the source %r is searched by keywords: %s; %s", self.source.name, unconfigured_model(name), advice
        )
        return "none"

"""Which reranker a search asks, and what happens when it is missing, broken or slow: the fused order stays."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeAlias

from recollect.errors import ModelError, ModelMissing, RecollectError
from recollect.rerankers.passages import passage
from recollect.stages.rerank import Scored
from recollect.types import Query, Record, Reranker, Store

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

    def scores(self, model: str, query: Query, records: Sequence[Record]) -> Scored:
        """As many of the records' scores as there is time for. The work is in a thread, so that it can be left."""
        done: list[float] = []
        work = self._executor.submit(self._work, model, query, records, done)
        try:
            work.result(None if query.deadline is None else max(0.0, query.deadline - time.monotonic()))
        except Exception as error:  # noqa: BLE001  (an edge: whatever a reranker does, there is an answer without it)
            if work.done():
                return Scored(warning=f"not reranked: {_words(error)}")
            work.cancel()
        scores = tuple(done)
        return Scored(scores, _cut_off(len(scores), len(records)))

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

"""Which sources a search asks, and in which order: settings into a pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from recollect.config import SYSTEMS, SearchSettings, Settings, SourceSettings
from recollect.errors import RecollectError, UsageError
from recollect.memory.calibration import Calibration
from recollect.memory.embedding import Embedding
from recollect.memory.hypotheses import Hypotheses
from recollect.memory.peers import Peer
from recollect.memory.reranking import Reranking
from recollect.pipeline import Pipeline
from recollect.rerankers import RERANKERS
from recollect.sources import (
    Breaker,
    HydeSource,
    Joiner,
    KeywordSource,
    OutsideSource,
    Screened,
    VectorSource,
    screened,
)
from recollect.stages import Confidence, Rerank, order
from recollect.types import Scope, Source, Store, System


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a pipeline is made of; `bound` is the scope of callers who may not learn of anything beyond it."""

    store: Store
    embedding: Embedding
    settings: Settings
    executor: Executor
    reranking: Reranking
    outside: Mapping[str, OutsideSource]
    calibration: Calibration
    bound: Scope | None = None

    def pipeline(self, search: SearchSettings) -> Pipeline:
        """Sources in their fixed order, whatever order they were named in: ours first, then the outside ones."""
        there = ("keyword", "vector", *self.outside)
        names = there if search.sources is None else search.sources
        if unknown := [name for name in names if name not in there]:
            raise UsageError(f"unknown source {unknown[0]!r}", hint=f"there are {', '.join(there)}")
        if not names:
            raise UsageError("no source is named", hint=f"there are {', '.join(there)}")
        sources: list[Source] = [KeywordSource(self.store.keywords)] if "keyword" in names else []
        absent: list[tuple[str, str]] = []
        if "vector" in names and self.embedding.configured:
            sources += self._by_meaning(search, alone=set(names) == {"vector"})
        elif "vector" in names:
            absent.append(("vector", "no embedder is configured"))
        sources += [self._outside(name, alone=set(names) == {name}) for name in self.outside if name in names]
        stages = order(
            self._vectors_of, self.store.files.states, self._rerank(search), self._confidence(search, sources)
        )
        told = sources if self.bound is None else [Screened(source) for source in sources]
        return Pipeline(tuple(told), stages, self.executor, tuple(absent))

    def _outside(self, name: str, *, alone: bool) -> OutsideSource:
        source = self.outside[name] if self.bound is None else self.outside[name].within(self.bound)
        return replace(source, insist=alone)

    def _by_meaning(self, search: SearchSettings, *, alone: bool) -> Sequence[Source]:
        """The vector source, with HyDE beside it or in its place where that is asked for."""
        plain = VectorSource(self.embedding.serving, alone=alone)
        if not search.hyde:
            return [plain]
        write: Callable[[str], str] = Hypotheses(replace(self.settings, search=search), self.store.notes, self.bound)
        if self.bound is not None:
            write = screened("hyde", write)
        if search.hyde == "replace":
            return [HydeSource(self.embedding.serving, write, replaces=True)]
        return [plain, HydeSource(self.embedding.serving, write)]

    def _confidence(self, search: SearchSettings, sources: Sequence[Source]) -> Confidence | None:
        """The stage where it is asked for. A list that HyDE writes has no unrelated queries to be compared with."""
        if not search.confidence and search.min_confidence <= 0:
            return None
        read = tuple(source.name for source in sources if isinstance(source, KeywordSource | VectorSource))
        return Confidence(self.calibration.gauge, read)

    def _rerank(self, search: SearchSettings) -> Rerank | None:
        """The reranking stage where it is asked for. A name that nothing has is wrong use, and said at once."""
        if not search.rerank:
            return None
        RERANKERS.check(search.rerank_model.partition(":")[0])
        return Rerank(partial(self.reranking.scores, search.rerank_model), search.rerank_head)

    def _vectors_of(self, ids: Sequence[str]) -> dict[str, Any]:
        """For MMR: vectors where they can be had; without them it compares words."""
        with contextlib.suppress(RecollectError):
            if self.embedding.configured:
                return self.embedding.vectors(ids)
        return {}


def open_outside(settings: Settings, store: Store) -> dict[str, OutsideSource]:
    """The outside sources of the settings, by name, ready to be asked."""
    return {
        said.name: OutsideSource(
            said,
            _system(said, settings),
            Joiner(said.name, said.join, store.records, store.joins),
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

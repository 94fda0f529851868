"""Which sources a search asks, and in which order: settings into a pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from recollect.config import SearchSettings, Settings
from recollect.errors import RecollectError, UsageError
from recollect.memory.embedding import Embedding
from recollect.memory.hypotheses import Hypotheses
from recollect.pipeline import Pipeline
from recollect.sources import HydeSource, KeywordSource, VectorSource
from recollect.stages import order
from recollect.types import Source, Store


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a pipeline is made of."""

    store: Store
    embedding: Embedding
    settings: Settings
    executor: Executor

    def pipeline(self, search: SearchSettings) -> Pipeline:
        """Sources in their fixed order, whatever order they were named in."""
        names = search.sources
        if unknown := [name for name in names if name not in ("keyword", "vector")]:
            raise UsageError(f"unknown source {unknown[0]!r}", hint="there are keyword, vector")
        if not names:
            raise UsageError("no source is named", hint="there are keyword, vector")
        sources: list[Source] = [KeywordSource(self.store.keywords)] if "keyword" in names else []
        absent: list[tuple[str, str]] = []
        if "vector" in names and self.embedding.configured:
            sources += self._by_meaning(search)
        elif "vector" in names:
            absent.append(("vector", "no embedder is configured"))
        stages = order(self._vectors_of, self.store.files.states)
        return Pipeline(tuple(sources), stages, self.executor, tuple(absent))

    def _by_meaning(self, search: SearchSettings) -> Sequence[Source]:
        """The vector source, with HyDE beside it or in its place where that is asked for."""
        plain = VectorSource(self.embedding.serving, alone=list(search.sources) == ["vector"])
        if not search.hyde:
            return [plain]
        write = Hypotheses(replace(self.settings, search=search), self.store.notes)
        if search.hyde == "replace":
            return [HydeSource(self.embedding.serving, write, replaces=True)]
        return [plain, HydeSource(self.embedding.serving, write)]

    def _vectors_of(self, ids: Sequence[str]) -> dict[str, Any]:
        """For MMR: vectors where they can be had; without them it compares words."""
        with contextlib.suppress(RecollectError):
            if self.embedding.configured:
                return self.embedding.serving().index.vectors(ids)
        return {}

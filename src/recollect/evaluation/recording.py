"""Every source's list for every question, read once, so that any number of settings can be tried on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.config.sources import OURS
from recollect.evaluation.scoring import Run
from recollect.memory import Memory
from recollect.pipeline import Reply
from recollect.sources.keyword import COVERED, COVERED_ALONE
from recollect.types import Progress

DEPTH = 200
"""How deep the sources are read: as deep as any setting that is tried."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the sources of one memory answered. Fusion and stages run on it as they would in a search."""

    memory: Memory
    texts: Mapping[str, str]
    replies: Mapping[str, Sequence[Reply]]

    def run(self, options: Mapping[str, Any], *, limit: int = 100) -> Run:
        """Every question's ranking under these options of `search`. The score is one over the place."""
        return {key: self._rank(key, options, limit) for key in self.texts}

    def _rank(self, key: str, options: Mapping[str, Any], limit: int) -> dict[str, float]:
        pipeline, query = self.memory.prepare(self.texts[key], **{**options, "limit": limit})
        asked = {source.name for source in pipeline.sources}
        replies = [cut(reply, query.fetch_k) for reply in self.replies[key] if reply.source.name in asked]
        results = pipeline.answer(query, replies, time.perf_counter()).results
        return {result.record.id: 1.0 / rank for rank, result in enumerate(results, 1)}


def record(
    memory: Memory,
    questions: Mapping[str, str],
    *,
    depth: int = DEPTH,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Recording:
    """Ask every source every question, once. `options` are those of `search` that all settings to be tried share."""
    replies: dict[str, Sequence[Reply]] = {}
    for done, (key, text) in enumerate(questions.items(), 1):
        pipeline, query = memory.prepare(text, **{**(options or {}), "fetch_k": depth})
        replies[key] = pipeline.ask(query)
        if progress:
            progress(done, len(questions))
    return Recording(memory, dict(questions), replies)


def cut(reply: Reply, fetch_k: int) -> Reply:
    """The reply of a source that had been read only so deep: a shorter list is the head of a longer one."""
    found = reply.found
    if reply.source.name not in OURS:
        return reply  # an outside system is read as deep as it is set to, whatever the query says
    among = min(found.among, fetch_k) if found.among and len(found.hits) < fetch_k else None
    trust = found.trust
    if found.among and among is None:
        # A list that ends is trusted less easily than one that goes on (sources/keyword.py); now it goes on.
        trust = min(1.0, trust * COVERED_ALONE / COVERED)
    return replace(reply, found=replace(found, hits=found.hits[:fetch_k], among=among, trust=trust))

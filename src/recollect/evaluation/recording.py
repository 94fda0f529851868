"""Every source's list for every question, read once, so that any number of settings can be tried on them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recollect.config.sources import OURS
from recollect.evaluation.corpora import Bars, Targets, find_targets
from recollect.evaluation.datasets import Dataset, fingerprint_of
from recollect.evaluation.scoring import Run, deepest, evaluate
from recollect.memory import Memory
from recollect.pipeline import reason
from recollect.sources.local import COVERED, COVERED_ALONE
from recollect.types import Progress, RankedList

Options: TypeAlias = Mapping[str, Any]
"""Some settings of `[search]`, by name."""

DEPTH = 200
"""How deep the sources are read: as deep as any setting that is tried."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the sources of one memory answered. Fusion and stages run on it as they would in a search."""

    memory: Memory
    texts: Mapping[str, str]
    replies: Mapping[str, Sequence[RankedList]]

    def run(self, options: Mapping[str, Any], *, limit: int = 100) -> Run:
        """Every question's ranking under these options of `search`. The score is one over the place."""
        return {key: self._rank(key, options, limit) for key in self.texts}

    def _rank(self, key: str, options: Mapping[str, Any], limit: int) -> dict[str, float]:
        pipeline, query = self.memory.prepare(self.texts[key], **{**options, "limit": limit})
        asked = {source.name for source in pipeline.sources}
        replies = [cut(reply, query.fetch_k) for reply in self.replies[key] if reply.source in asked]
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
    replies: dict[str, Sequence[RankedList]] = {}
    for done, (key, text) in enumerate(questions.items(), 1):
        pipeline, query = memory.prepare(text, **{**(options or {}), "fetch_k": depth})
        replies[key] = pipeline.ask(query)
        if progress:
            progress(done, len(questions))
    return Recording(memory, dict(questions), replies)


def cut(reply: RankedList, fetch_k: int) -> RankedList:
    """The reply of a source that had been read only so deep: a shorter list is the head of a longer one."""
    if reply.source not in OURS:
        return reply  # an outside system is read as deep as it is set to, whatever the query says
    among = min(reply.among, fetch_k) if reply.among and len(reply.entries) < fetch_k else None
    trust = reply.trust
    if reply.among and among is None:
        # A list that ends is trusted less easily than one that goes on (sources/local.py); now it goes on.
        trust = min(1.0, trust * COVERED_ALONE / COVERED)
    return replace(reply, entries=reply.entries[:fetch_k], among=among, trust=trust)


MEASURE = "nDCG@10"
TOP = 10
"""How much of a ranking is compared between settings."""

DEEPEST = 100
"""How many results a measure without a cut-off reads."""


@dataclass(frozen=True, slots=True)
class Part:
    """One corpus: its questions and judgments, what its sources answered, and for the user's own store the files."""

    dataset: Dataset
    recording: Recording
    targets: Targets | None = None

    def run(self, options: Options, *, limit: int) -> Run:
        """Every question's ranking under these options; of files where files are judged."""
        run = self.recording.run(options, limit=limit)
        return self.targets.run(run, self.recording.memory, self.dataset.qrels) if self.targets else run

    @property
    def failures(self) -> Counter[str]:
        """What sources gave as the reason not to answer, and how often."""
        replies = (reply for several in self.recording.replies.values() for reply in several)
        return Counter(f"{reply.source}: {reason(reply.error)}" for reply in replies if reply.error is not None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What some settings come to: each question's value, and the head of its ranking."""

    values: Mapping[str, float]
    tops: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Judged:
    """One corpus or several whose questions, none of which has the id of another, count as one set."""

    name: str
    parts: tuple[Part, ...]
    measure: str = MEASURE

    def __call__(self, options: Options) -> Outcome:
        """Replay every question under these options."""
        values: dict[str, float] = {}
        tops: dict[str, tuple[str, ...]] = {}
        for part in self.parts:
            run = part.run(options, limit=max(TOP, deepest([self.measure]) or DEEPEST))
            (scored,) = evaluate(part.dataset.qrels, run, [self.measure]).values()
            values |= scored
            tops |= {key: tuple(run[key])[:TOP] for key in scored}
        return Outcome(values, tops)

    @property
    def questions(self) -> int:
        """How many questions are judged."""
        return sum(len(part.dataset.qrels) for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """What the figures of a study are about; other texts, questions or judgments have another fingerprint."""
        mark = fingerprint_of(part.dataset for part in self.parts)
        corpora = [{"name": part.dataset.name, "questions": len(part.dataset.qrels)} for part in self.parts]
        return {"name": self.name, "fingerprint": mark, "questions": self.questions, "corpora": corpora}


def ask(
    memory: Memory,
    dataset: Dataset,
    *,
    depth: int,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Part:
    """Every question, asked of every source once; of the user's own store, judged files are found in it first."""
    targets = find_targets(memory, dataset) if dataset.own else None
    recording = record(memory, dataset.queries, depth=depth, options=options, progress=progress)
    return Part(targets.dataset(dataset) if targets else dataset, recording, targets)


@contextmanager
def asked(
    name: str,
    sets: Sequence[Dataset],
    open_set: Callable[[Dataset], Memory],
    *,
    depth: int,
    measure: str = MEASURE,
    progress: Bars = lambda _: None,
) -> Iterator[Judged]:
    """The sets, each opened and its sources asked every question, at least so deep."""
    with ExitStack() as stack:
        parts = []
        for dataset in sets:
            memory = stack.enter_context(open_set(dataset))
            deep = max(depth, memory.settings.search.fetch_k)
            parts.append(ask(memory, dataset, depth=deep, progress=progress(f"asking {dataset.name}")))
        yield Judged(name, tuple(parts), measure)

"""Record what every source answers to every judged question once, then replay any number of settings on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recollect.config.sources import RETRIEVERS
from recollect.evaluation.corpora import Bars, Targets, find_targets
from recollect.evaluation.datasets import Dataset, fingerprint_of
from recollect.evaluation.scoring import Run, deepest, evaluate
from recollect.memory import Memory
from recollect.pipeline import reason
from recollect.sources.local import COVERED, COVERED_ALONE
from recollect.types import Progress, RankedList, Work

Options: TypeAlias = Mapping[str, Any]
"""Some settings of `[search]`, by name."""

OpenSet: TypeAlias = Callable[[Dataset], AbstractContextManager[Memory]]
"""Opens the memory that a set is measured on."""

DEPTH = 200
"""How deep the sources are read by default: as deep as any setting that is tried."""

MEASURE = "nDCG@10"
LIMIT = 100
"""Results of a ranking that are scored, where no measure reads more."""

TOP = 10
"""Results of a ranking that are compared between settings."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What the sources of one memory answered. Fusion and stages run on it as they would in a search."""

    memory: Memory
    texts: Mapping[str, str]
    replies: Mapping[str, Sequence[RankedList]]
    work: Work | None = None

    def run(self, options: Options, *, limit: int = LIMIT) -> Run:
        """Rank the results of every question under these search options. The score is 1 / rank."""
        return {key: self._rank(key, options, limit) for key in self.texts}

    def _rank(self, key: str, options: Options, limit: int) -> dict[str, float]:
        pipeline, query = self.memory.prepare(self.texts[key], work=self.work, **{**options, "limit": limit})
        names = {source.name for source in pipeline.sources}
        replies = [cut(reply, query.fetch_k) for reply in self.replies[key] if reply.source in names]
        results = pipeline.answer(query, replies, time.perf_counter()).results
        return {result.record.id: 1.0 / rank for rank, result in enumerate(results, 1)}


def record(
    memory: Memory,
    questions: Mapping[str, str],
    *,
    depth: int = DEPTH,
    options: Options | None = None,
    progress: Progress | None = None,
    work: Work | None = None,
) -> Recording:
    """Send every question to every source once. `options` are search options that all replays share."""
    replies: dict[str, Sequence[RankedList]] = {}
    for done, (key, text) in enumerate(questions.items(), 1):
        pipeline, query = memory.prepare(text, work=work, **{**(options or {}), "fetch_k": depth})
        replies[key] = pipeline.ask(query)
        if progress:
            progress(done, len(questions))
    return Recording(memory, dict(questions), replies, work)


def cut(reply: RankedList, fetch_k: int) -> RankedList:
    """Turn a reply into that of a source read only `fetch_k` deep: a shorter list is the head of a longer one."""
    if reply.source not in RETRIEVERS:
        return reply  # an external source is read as deep as its own settings say
    among = min(reply.among, fetch_k) if reply.among and len(reply.entries) < fetch_k else None
    trust = reply.trust
    if reply.among and among is None:
        # The keyword source trusts a complete list less than a truncated one (sources/local.py).
        trust = min(1.0, trust * COVERED_ALONE / COVERED)
    return replace(reply, entries=reply.entries[:fetch_k], among=among, trust=trust)


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """One corpus with its judgments and recorded replies; `targets` are the judged files of the user's own store."""

    dataset: Dataset
    recording: Recording
    targets: Targets | None = None

    def run(self, options: Options, *, limit: int) -> Run:
        """Rank the results of every question; where files are judged, a file stands for its chunks."""
        run = self.recording.run(options, limit=limit)
        return self.targets.run(run, self.recording.memory, self.dataset.qrels) if self.targets else run

    def depth(self, measure: str) -> int:
        """How many results to rank for `measure`: its cutoff, or more where the chunks of a file count as one."""
        cutoff = deepest([measure])
        files = self.targets is not None and bool(self.targets.paths)
        return max(LIMIT, cutoff) if files or not cutoff else max(TOP, cutoff)

    @property
    def failures(self) -> Counter[str]:
        """Why sources did not answer, and how often."""
        replies = (reply for group in self.recording.replies.values() for reply in group)
        return Counter(f"{reply.source}: {reason(reply.error)}" for reply in replies if reply.error is not None)


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of one configuration: each question's value, and its top results."""

    values: Mapping[str, float]
    tops: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class JudgedSets:
    """One or several recorded corpora, measured together. Question ids are unique across them."""

    name: str
    parts: tuple[JudgedSet, ...]
    measure: str = MEASURE

    def __call__(self, options: Options) -> ReplayOutcome:
        """Replay every question under these options."""
        values: dict[str, float] = {}
        tops: dict[str, tuple[str, ...]] = {}
        for part in self.parts:
            run = part.run(options, limit=part.depth(self.measure))
            (scored,) = evaluate(part.dataset.qrels, run, [self.measure]).values()
            values |= scored
            tops |= {key: tuple(run[key])[:TOP] for key in scored}
        return ReplayOutcome(values, tops)

    @property
    def questions(self) -> int:
        """The number of judged questions."""
        return sum(len(part.dataset.qrels) for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """Describe the data. The fingerprint changes with the texts, questions and judgments."""
        mark = fingerprint_of(part.dataset for part in self.parts)
        corpora = [{"name": part.dataset.name, "questions": len(part.dataset.qrels)} for part in self.parts]
        return {"name": self.name, "fingerprint": mark, "questions": self.questions, "corpora": corpora}


def record_set(memory: Memory, dataset: Dataset, **recording: Any) -> JudgedSet:
    """Record one set with the arguments of `record`; judged files of the user's own store are located first."""
    targets = find_targets(memory, dataset) if dataset.own else None
    recorded = record(memory, dataset.queries, **recording)
    return JudgedSet(targets.dataset(dataset) if targets else dataset, recorded, targets)


@contextmanager
def record_sets(
    name: str,
    sets: Sequence[Dataset],
    open_set: OpenSet,
    *,
    depth: int,
    measure: str = MEASURE,
    progress: Bars = lambda _: None,
    work: Work | None = None,
) -> Iterator[JudgedSets]:
    """Open and record every set, each source at least `depth` deep."""
    with ExitStack() as stack:
        parts = []
        for dataset in sets:
            memory = stack.enter_context(open_set(dataset))
            deep, bar = max(depth, memory.settings.search.fetch_k), progress(f"asking {dataset.name}")
            parts.append(record_set(memory, dataset, depth=deep, progress=bar, work=work))
        yield JudgedSets(name, tuple(parts), measure)

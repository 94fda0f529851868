"""Systems tried on judged questions: each source is asked each question once, every system ranks what it answered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from recollect.config import SearchSettings
from recollect.errors import UsageError
from recollect.evaluation.corpora import Bars
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.judged import ask
from recollect.evaluation.recording import Recording
from recollect.evaluation.runs import read_run
from recollect.evaluation.scoring import MEASURES, MOST, Run, by_place, deepest, evaluate, without_self
from recollect.evaluation.targets import Targets
from recollect.memory import Memory

SYSTEMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "keyword": {"sources": ["keyword"]},
        "vector": {"sources": ["vector"]},
        "rrf": {"fusion": "rrf", "text_weight": 1.0, "vector_weight": 1.0},
        "weighted": {"fusion": "weighted", "normalisation": "none", "text_weight": 0.3, "vector_weight": 0.7},
        "default": {},
    }
)
"""System → the options of `search` that make it; `default` is the settings as they are."""

LIMIT = 100
"""Results that are scored, where no measure reads more."""

MOST_SAID = 5
"""Different warnings of the sources that are passed on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tried and how it is measured.

    `seeing` are filters, `latency` is how many searches are timed, `against` which system the others are compared with.
    """

    systems: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"default": SYSTEMS["default"]})
    measures: Sequence[str] = MEASURES
    seeing: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    exclude_self: bool = False
    latency: int = 0
    against: str | None = None

    @property
    def depth(self) -> int:
        """How many results are scored."""
        return self.limit or max(LIMIT, deepest(self.measures))


@dataclass(frozen=True, slots=True)
class Corpus:
    """One corpus, asked: every system's run, and how many milliseconds its searches took.

    `mark` is the corpus's fingerprint, or how many changes the user's own store has seen; behind a wall it is empty.
    """

    dataset: Dataset
    documents: int
    mark: str
    unknown: int
    runs: Mapping[str, Run] = field(default_factory=dict)
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)
    targets: Targets | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One system, measured: measure → question → value, the run it is of, and how long its searches took."""

    system: str
    options: Mapping[str, Any]
    values: Mapping[str, Mapping[str, float]]
    run: Run
    times: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Rival:
    """Someone else's run, from a file."""

    name: str
    file: str
    run: Run


def named_systems(words: str) -> dict[str, Mapping[str, Any]]:
    """The systems between commas; `none` is none of ours."""
    names = [word.strip() for word in words.split(",") if word.strip()]
    if names == ["none"]:
        return {}
    if unknown := [name for name in names if name not in SYSTEMS] or ([""] if not names else []):
        raise UsageError(f"there is no system {unknown[0]!r}", hint=f"there are {', '.join(SYSTEMS)}, and none")
    return {name: SYSTEMS[name] for name in names}


def read_rival(name: str, file: str, data: bytes, questions: Collection[str]) -> Rival:
    """The run in a file's bytes, as the same code scores it."""
    found = {key: by_place(entry.id for entry in ranking) for key, ranking in read_run(data, file).items()}
    run = {key: ranking for key, ranking in found.items() if key is not None}
    if not run.keys() & set(questions):
        raise UsageError(
            f"{file} answers none of the {len(questions):,} judged questions",
            hint="is it a run of this set? its first column must hold the ids of these questions",
        )
    return Rival(name, file, run)


def conduct(
    plan: Plan,
    sets: Sequence[Dataset],
    open_set: Callable[[Dataset], Memory],
    *,
    rivals: Sequence[Rival] = (),
    progress: Bars = lambda _: None,
) -> tuple[list[Trial], list[Corpus]]:
    """Every system on every corpus, then the rivals, all scored by the same code over all questions."""
    _check_names([*plan.systems, *(rival.name for rival in rivals)], plan.against)
    corpora = list(_corpora(plan, sets, open_set, progress))
    qrels = {key: grades for corpus in corpora for key, grades in corpus.dataset.qrels.items()}
    selves = {key: key.removeprefix(corpus.dataset.prefix) for corpus in corpora for key in corpus.dataset.qrels}

    def trial(name: str, options: Mapping[str, Any], run: Run, times: Sequence[float] = ()) -> Trial:
        judged = without_self(run, selves) if plan.exclude_self else run
        return Trial(name, options, evaluate(qrels, judged, plan.measures), judged, times)

    ours = [
        trial(name, options, _merged([corpus.runs[name] for corpus in corpora]), _times(name, corpora))
        for name, options in plan.systems.items()
    ]
    theirs = [trial(rival.name, {"run": rival.file}, _their(rival.run, corpora)) for rival in rivals]
    return [*ours, *theirs], corpora


def _check_names(names: Sequence[str], against: str | None) -> None:
    if not names:
        raise UsageError("nothing is measured", hint="name a system with --compare, or a run with --run")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"two systems are called {twice[0]!r}", hint="--run NAME=FILE gives a run another name")
    if against is not None and against not in names:
        raise UsageError(f"there is no system {against!r} to compare with", hint=f"there are {', '.join(names)}")


def _corpora(
    plan: Plan, sets: Sequence[Dataset], open_set: Callable[[Dataset], Memory], bars: Bars
) -> Iterator[Corpus]:
    total = sum(len(one.queries) for one in sets)
    for dataset in sets:
        if not plan.systems:
            yield Corpus(dataset, len(dataset.corpus), dataset.fingerprint, dataset.unknown)
            continue
        with open_set(dataset) as memory:
            yield _ask(plan, dataset, memory, bars, -(-plan.latency * len(dataset.queries) // total))


def _ask(plan: Plan, dataset: Dataset, memory: Memory, bars: Bars, timed: int) -> Corpus:
    """Every system on one corpus, whose sources are asked once for all of them."""
    search, status = memory.settings.search, memory.status()
    _check_embedder(plan, memory)
    shared = {**plan.seeing, "sources": _sources(plan, search)}
    part = ask(memory, dataset, depth=search.fetch_k, options=shared, progress=bars(f"asking {dataset.name}"))
    limit = min(plan.depth + plan.exclude_self, MOST)  # one more, since a question's own document may be dropped
    return Corpus(
        part.dataset,
        status["records"]["total"] if part.targets else len(dataset.corpus),
        str(status.get("sequence", "")) if part.targets else dataset.fingerprint,
        part.targets.unknown if part.targets else dataset.unknown,
        {name: part.run({**plan.seeing, **options}, limit=limit) for name, options in plan.systems.items()},
        {name: list(_clock(plan, memory, dataset, options, timed)) for name, options in plan.systems.items()},
        part.targets,
        _said(part.recording),
    )


def _check_embedder(plan: Plan, memory: Memory) -> None:
    for name, options in plan.systems.items():
        if options.get("sources") == ["vector"] and not memory.embedding.configured:
            raise UsageError(f"the system {name!r} needs an embedder", hint="--embedder arctic-embed-s")


def _sources(plan: Plan, search: SearchSettings) -> list[str] | None:
    """All sources that a system asks; None is whatever there is."""
    named = [options.get("sources", search.sources) for options in plan.systems.values()]
    return None if None in named else list(dict.fromkeys(name for names in named for name in names))


def _clock(plan: Plan, memory: Memory, dataset: Dataset, options: Mapping[str, Any], timed: int) -> Iterator[float]:
    """Milliseconds of real searches for questions spread over the set; the first is asked twice, to warm up."""
    if not timed:
        return
    texts = list(dataset.queries.values())
    picked = texts[:: max(1, len(texts) // timed)][:timed]
    for number, text in enumerate([picked[0], *picked]):
        start = time.perf_counter()
        memory.search(text, **{**plan.seeing, **options})
        if number:
            yield (time.perf_counter() - start) * 1000


def _said(recording: Recording) -> tuple[str, ...]:
    """What the sources complained of, and for how many questions."""
    said: Counter[str] = Counter()
    questions = len(recording.texts)
    for reply in (reply for replies in recording.replies.values() for reply in replies):
        said.update(reply.found.warnings)
        if reply.error is not None:
            said[f"{reply.trace.name} did not answer: {reply.trace.reason}"] += 1
    return tuple(f"{message} ({count:,} of {questions:,} questions)" for message, count in said.most_common(MOST_SAID))


def _their(run: Run, corpora: Sequence[Corpus]) -> Run:
    for corpus in corpora:
        run = corpus.targets.theirs(run) if corpus.targets else run
    return run


def _merged(runs: Sequence[Run]) -> Run:
    return {key: ranking for run in runs for key, ranking in run.items()}


def _times(name: str, corpora: Sequence[Corpus]) -> list[float]:
    return [took for corpus in corpora for took in corpus.times.get(name, ())]

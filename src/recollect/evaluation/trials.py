"""Systems tried on judged questions: each source is asked each question once, every system ranks what it answered."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from recollect import __version__
from recollect.config import SearchOptions, Settings
from recollect.errors import UsageError
from recollect.evaluation.corpora import Bars, Targets
from recollect.evaluation.datasets import Dataset, fingerprint_of, lines
from recollect.evaluation.recording import Recording, ask
from recollect.evaluation.runs import read_run
from recollect.evaluation.scoring import (
    MEASURES,
    MOST,
    Comparison,
    Run,
    by_place,
    compare,
    deepest,
    estimate,
    evaluate,
    noticeable,
    without_self,
)
from recollect.memory import Memory
from recollect.pipeline import reason
from recollect.types import now

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
        if options.get("sources") == ["vector"] and not memory.embeddings.configured:
            raise UsageError(f"the system {name!r} needs an embedder", hint="--embedder arctic-embed-s")


def _sources(plan: Plan, search: SearchOptions) -> list[str] | None:
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
        said.update(reply.warnings)
        if reply.error is not None:
            said[f"{reply.source} did not answer: {reason(reply.error)}"] += 1
    return tuple(f"{message} ({count:,} of {questions:,} questions)" for message, count in said.most_common(MOST_SAID))


def _their(run: Run, corpora: Sequence[Corpus]) -> Run:
    for corpus in corpora:
        run = corpus.targets.theirs(run) if corpus.targets else run
    return run


def _merged(runs: Sequence[Run]) -> Run:
    return {key: ranking for run in runs for key, ranking in run.items()}


def _times(name: str, corpora: Sequence[Corpus]) -> list[float]:
    return [took for corpus in corpora for took in corpus.times.get(name, ())]


FORMAT = 1
"""Grows when the shape changes so that an older reader would be wrong."""

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Report:
    """Trials with what they were made on and with; `against` is the system that the others are compared with."""

    data: Mapping[str, Any]
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    against: str
    warnings: tuple[str, ...] = ()
    version: str = __version__
    at: str = field(default_factory=lambda: now().isoformat(timespec="seconds"))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of docs/evaluation.md."""
        return {
            "format": FORMAT,
            "version": self.version,
            "at": self.at,
            "data": self.data,
            "settings": self.settings,
            "systems": {trial.system: _system(trial) for trial in self.trials},
            "comparisons": self._comparisons(),
            "warnings": list(self.warnings),
        }

    def _comparisons(self) -> list[dict[str, Any]]:
        base = next(trial for trial in self.trials if trial.system == self.against)
        return [
            {"a": trial.system, "b": base.system, "measure": measure, **asdict(compare(values, base.values[measure]))}
            for trial in self.trials
            for measure, values in trial.values.items()
            if trial is not base
        ]


def make_report(
    name: str, plan: Plan, settings: Settings, trials: Sequence[Trial], corpora: Sequence[Corpus], *, split: str = ""
) -> Report:
    """Everything about the trials that someone else would need to judge them."""
    names = [trial.system for trial in trials]
    return Report(
        _data(name, split, corpora),
        {
            "embedder": settings.embedder if plan.systems else None,
            "language": settings.language,
            "depth": plan.depth,
            "exclude_self": plan.exclude_self,
            "filters": {key: value for key, value in plan.seeing.items() if value},
            "search": asdict(settings.search),
        },
        tuple(trials),
        plan.against or ("default" if "default" in names else names[0]),
        tuple(_warnings(plan, settings, trials, corpora)),
    )


def read_report(path: Path) -> dict[str, Any]:
    """A report that was saved, checked as far as a reader relies on it."""
    if not path.is_file():
        raise UsageError(f"{path} is no file", hint="eval run … --save FILE makes a report")
    text = "\n".join(line for _, line in lines(path))
    try:
        report = json.loads(text)
        values = [value for system in report["systems"].values() for of in system["per_query"].values()
                  for value in of.values()]  # fmt: skip
        whole = isinstance(report["data"]["fingerprint"], str) and all(isinstance(one, int | float) for one in values)
        known = report["format"] == FORMAT
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is no report of `eval run`: {error!r}", hint="eval run … --save FILE") from error
    if not whole or not known:
        raise UsageError(f"{path} is no report of the form {FORMAT}", hint="make it again: eval run … --save FILE")
    return dict(report)


def _system(trial: Trial) -> dict[str, Any]:
    return {
        "options": dict(trial.options),
        "measures": {measure: asdict(estimate(list(values.values()))) for measure, values in trial.values.items()},
        "per_query": {measure: dict(values) for measure, values in trial.values.items()},
        "latency_ms": _latency(trial.times),
    }


def _latency(times: Sequence[float]) -> dict[str, Any]:
    import numpy as np

    if not times:
        return {}
    spread = {f"p{at}": round(float(np.percentile(times, at)), 3) for at in PERCENTILES}
    mean, values = round(float(np.mean(times)), 3), [round(time, 3) for time in times]
    return {"n": len(times), "mean": mean, **spread, "values": values}


def _data(name: str, split: str, corpora: Sequence[Corpus]) -> dict[str, Any]:
    return {
        "name": name,
        "split": split,
        "fingerprint": fingerprint_of(corpus.dataset for corpus in corpora),
        "documents": sum(corpus.documents for corpus in corpora),
        "questions": sum(len(corpus.dataset.queries) for corpus in corpora),
        "corpora": [
            {"name": corpus.dataset.name, "fingerprint": corpus.mark, "documents": corpus.documents,
             "questions": len(corpus.dataset.queries)}
            for corpus in corpora
        ],
        "left_out": _left_out(corpora),
    }  # fmt: skip


def _left_out(corpora: Sequence[Corpus]) -> dict[str, int]:
    return {
        "unjudged": sum(corpus.dataset.unjudged for corpus in corpora),
        "without_text": sum(corpus.dataset.without_text for corpus in corpora),
        "unknown_documents": sum(corpus.unknown for corpus in corpora),
    }


def _warnings(plan: Plan, settings: Settings, trials: Sequence[Trial], corpora: Sequence[Corpus]) -> list[str]:
    """What one who reads the numbers should know."""
    left = _left_out(corpora)
    said = [f"{left['unjudged']:,} questions without judgments are left out"] if left["unjudged"] else []
    said += [f"{left['without_text']:,} judged questions have no text and are left out"] if left["without_text"] else []
    if unknown := left["unknown_documents"]:
        said.append(f"{unknown:,} judged documents are not there, and count as not found")
    if plan.systems and deepest(plan.measures) > settings.search.fetch_k:
        deep = deepest(plan.measures)
        said.append(f"a measure reads {deep:,} results, and sources are read {settings.search.fetch_k} deep: --fetch-k")
    questions = sum(len(corpus.dataset.queries) for corpus in corpora)
    for trial in trials:
        missing = questions - sum(bool(trial.run.get(key)) for corpus in corpora for key in corpus.dataset.queries)
        said += [f"{trial.system} has no results for {missing:,} questions, which count as zero"] if missing else []
    return [*said, *dict.fromkeys(warning for corpus in corpora for warning in corpus.warnings)]


@dataclass(frozen=True, slots=True)
class Check:
    """One measure of one system, before and after.

    A fall of more than `noticeable` would have been noticed; None where too few questions changed for any.
    """

    system: str
    measure: str
    before: float
    after: float
    comparison: Comparison
    noticeable: float | None

    @property
    def fell(self) -> bool:
        """Whether it is lower by more than the noise."""
        return self.comparison.difference.mean < 0 and self.comparison.significant

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        numbers = {"before": self.before, "after": self.after, "noticeable": self.noticeable, "fell": self.fell}
        return {"system": self.system, "measure": self.measure, **numbers, **asdict(self.comparison)}


def gate(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> list[Check]:
    """Every measure of every system that both reports have."""
    for what, old, current in (
        ("the data's fingerprint", baseline["data"]["fingerprint"], new["data"]["fingerprint"]),
        *(
            (what, *(report.get("settings", {}).get(what) for report in (baseline, new)))
            for what in ("exclude_self", "depth", "filters")
        ),
    ):
        if old != current:
            message = f"the two reports cannot be compared: {what} was {old} and is {current}"
            raise UsageError(message, hint="make a new baseline: eval run … --save FILE")
    if not (checks := list(_checks(baseline["systems"], new["systems"]))):
        raise UsageError(
            f"the two reports have no measure of one system in common (baseline: {_contents(baseline)})",
            hint="measure the same systems: --compare and --measures",
        )
    return checks


def _checks(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Check]:
    for system in (name for name in old if name in new):
        for measure, before in old[system]["per_query"].items():
            after = new[system]["per_query"].get(measure)
            if after is None:
                continue
            if before.keys() != after.keys() or not before:
                message = f"{system} has values of {measure} for other questions than before"
                raise UsageError(message, hint="make a new baseline: eval run … --save FILE")
            means = fmean(before.values()), fmean(after.values())
            yield Check(system, measure, *means, compare(after, before), noticeable(after, before))


def _contents(report: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {', '.join(system['per_query'])}" for name, system in report["systems"].items())

"""Measure search systems on judged questions, report the figures as JSON, and compare two reports (the gate)."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from recollect import __version__
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation import scoring
from recollect.evaluation.datasets import Dataset, fingerprint_of, read_json
from recollect.evaluation.recording import AS_WRITTEN, LIMIT, OpenSet, Options, record_set
from recollect.evaluation.runs import read_run
from recollect.evaluation.scoring import MEASURES, MOST, Run, compare, estimate
from recollect.memory import Memory
from recollect.options import LIKELY
from recollect.types import Progress, Steps, Work, now

SYSTEMS: Mapping[str, Options] = {  # system → its search options; `default` uses the settings unchanged
    "keyword": {"sources": ["keyword"]},
    "vector": {"sources": ["vector"]},
    "rrf": {"fusion": "rrf", "text_weight": 1.0, "vector_weight": 1.0},
    "weighted": {"fusion": "weighted", "normalisation": "none", "text_weight": 0.3, "vector_weight": 0.7},
    "default": {},
}

FORMAT = 1  # version of the report's JSON; raised when an older reader would misread it
NEW_BASELINE = "make a new baseline: eval run … --save FILE"


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Which systems are measured, and how.

    `latency` is the number of timed searches, `against` the system that the others are compared with, `work` the limits
    of the whole study.
    """

    systems: Mapping[str, Options] = field(default_factory=lambda: {"default": SYSTEMS["default"]})
    measures: Sequence[str] = MEASURES
    filters: Options = field(default_factory=dict)
    limit: int | None = None
    exclude_self: bool = False
    latency: int = 0
    against: str | None = None
    work: Work | None = None

    @property
    def depth(self) -> int:
        """How many results of each ranking are scored."""
        return self.limit or max(LIMIT, scoring.deepest(self.measures))


@dataclass(frozen=True, slots=True)
class MeasuredCorpus:
    """One corpus on which systems were measured.

    `mark` is the corpus's fingerprint; for the user's own store it is the number of changes, empty for scoped callers.
    """

    dataset: Dataset
    documents: int
    mark: str
    unknown: int
    paths: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class Trial:
    """One measured system: its run, the milliseconds of its timed searches, and measure → question → value.

    `confidences` are those of every question's first results, with whether they are relevant. The options of another
    system, whose run was read from a file, are `{"run": FILE}`.
    """

    system: str
    options: Options
    run: Run = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    confidences: list[list[tuple[float, bool]]] = field(default_factory=list)


def named_systems(names: str) -> dict[str, Options]:
    """Parse a comma-separated list of systems; `none` is an empty list."""
    words = [word.strip() for word in names.split(",") if word.strip()]
    if words == ["none"]:
        return {}
    if unknown := [word for word in words if word not in SYSTEMS] or ([""] if not words else []):
        raise UsageError(f"there is no system {unknown[0]!r}", hint=f"choose from {', '.join(SYSTEMS)}, or none")
    return {word: SYSTEMS[word] for word in words}


def read_external(name: str, file: str, data: bytes, questions: Collection[str]) -> Trial:
    """Read another system's run from the bytes of a file; it has no values yet."""
    rankings = read_run(data, file).items()
    run = {key: scoring.by_place(hit.id for hit in ranking) for key, ranking in rankings if key is not None}
    if not run.keys() & set(questions):
        hint = "check that the run is of this set: its first column must hold the ids of these questions"
        raise UsageError(f"{file} answers none of the {len(questions):,} judged questions", hint=hint)
    return Trial(name, {"run": file}, run)


def run_trials(
    plan: TrialPlan,
    sets: Sequence[Dataset],
    open_set: OpenSet,
    *,
    external: Sequence[Trial] = (),
    progress: Steps = lambda _: None,
) -> tuple[list[Trial], list[MeasuredCorpus]]:
    """Measure every system on every corpus, then score the external runs with the same code."""
    names = [*plan.systems, *(one.system for one in external)]
    if not names:
        raise UsageError("nothing is measured", hint="name a system with --compare, or a run with --run")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"two systems are called {twice[0]!r}", hint="--run NAME=FILE gives a run another name")
    if plan.against not in (None, *names):
        hint = f"choose from {', '.join(names)}"
        raise UsageError(f"there is no system {plan.against!r} to compare with", hint=hint)
    ours, corpora = [Trial(*system) for system in plan.systems.items()], []
    total = sum(len(one.queries) for one in sets)
    for dataset in sets:
        if ours:
            timed = -(-plan.latency * len(dataset.queries) // total)
            with open_set(dataset) as memory:
                bar = progress(f"asking {dataset.name}")
                corpora.append(_measure(ours, plan, dataset, memory, timed=timed, bar=bar))
        else:
            corpora.append(MeasuredCorpus(dataset, len(dataset.corpus), dataset.fingerprint, dataset.unknown))
    qrels = {key: grades for corpus in corpora for key, grades in corpus.dataset.qrels.items()}
    selves = {key: key.removeprefix(corpus.dataset.prefix) for corpus in corpora for key in corpus.dataset.qrels}
    theirs = [replace(one) for one in external]
    paths = {name: path for one in corpora for name, path in one.paths.items()}
    for trial in theirs:  # judged files are named by their paths in the store
        rankings = trial.run.items()
        trial.run = {key: scoring.by_place(paths.get(name, name) for name in ranking) for key, ranking in rankings}
    for trial in (*ours, *theirs):
        trial.run = scoring.without_self(trial.run, selves) if plan.exclude_self else trial.run
        trial.values = scoring.evaluate(qrels, trial.run, plan.measures)
    return [*ours, *theirs], corpora


def _measure(
    trials: Sequence[Trial], plan: TrialPlan, dataset: Dataset, memory: Memory, *, timed: int, bar: Progress | None
) -> MeasuredCorpus:
    """Record the answers to one corpus's questions, and add the runs and times of every system to its trial."""
    search, status = memory.settings.search, memory.status()
    for trial in trials:
        if trial.options.get("sources") == ["vector"] and not memory.embeddings.configured:
            raise UsageError(f"the system {trial.system!r} needs an embedder", hint="--embedder small-embedder")
    named = [trial.options.get("sources", search.sources) for trial in trials]
    sources = None if None in named else list(dict.fromkeys(name for names in named for name in names))
    shared = {**plan.filters, "sources": sources, "confidence": True}
    part = record_set(memory, dataset, depth=search.fetch_k, options=shared, progress=bar, work=plan.work)
    limit = min(plan.depth + plan.exclude_self, MOST)  # one more, since a question's own document may be dropped
    texts = list(dataset.queries.values())
    sample = texts[:: max(1, len(texts) // timed)][:timed] if timed else []
    for trial in trials:
        options = {**plan.filters, **trial.options}
        trial.run = {**trial.run, **part.run(options, limit=limit)}
        trial.confidences += part.confidences(options, exclude_self=plan.exclude_self)
        for number, text in enumerate([*sample[:1], *sample]):
            start = time.perf_counter()
            memory.search(text, work=plan.work, **AS_WRITTEN, **options)
            if number:  # the first is to warm up
                trial.times.append((time.perf_counter() - start) * 1000)
    total, mark = len(dataset.corpus), dataset.fingerprint
    if dataset.own:
        total, mark = status["records"]["total"], str(status.get("sequence", ""))
    return MeasuredCorpus(part.dataset, total, mark, part.unknown, part.paths, part.recording.warnings)


def make_report(
    name: str,
    plan: TrialPlan,
    settings: Settings,
    trials: Sequence[Trial],
    corpora: Sequence[MeasuredCorpus],
    *,
    split: str = "",
) -> dict[str, Any]:
    """Make the JSON report of docs/evaluation.md: figures, data and settings."""
    names = [trial.system for trial in trials]
    left_out = {name: sum(getattr(one.dataset, name) for one in corpora) for name in ("unjudged", "without_text")}
    left_out["unknown_documents"] = sum(corpus.unknown for corpus in corpora)
    base = trials[names.index(plan.against or ("default" if "default" in names else names[0]))]
    questions = [key for corpus in corpora for key in corpus.dataset.queries]
    empty = {trial.system: sum(not trial.run.get(key) for key in questions) for trial in trials}
    return {
        "format": FORMAT,
        "version": __version__,
        "at": now().isoformat(timespec="seconds"),
        "data": {
            "name": name,
            "split": split,
            "as_files": any(corpus.dataset.as_files for corpus in corpora),
            "fingerprint": fingerprint_of(corpus.dataset for corpus in corpora),
            "documents": sum(corpus.documents for corpus in corpora),
            "questions": len(questions),
            "corpora": [
                {"name": corpus.dataset.name, "fingerprint": corpus.mark, "documents": corpus.documents,
                 "questions": len(corpus.dataset.queries)}
                for corpus in corpora
            ],
            "left_out": left_out,
        },
        "settings": {
            "embedder": settings.embedder if plan.systems else None,
            "language": settings.language,
            "depth": plan.depth,
            "exclude_self": plan.exclude_self,
            "filters": {key: value for key, value in plan.filters.items() if value},
            "search": asdict(settings.search),
        },
        "systems": {trial.system: _system(trial, settings.search.min_confidence or LIKELY) for trial in trials},
        "comparisons": [
            {"a": trial.system, "b": base.system, "measure": measure, **asdict(compare(values, base.values[measure]))}
            for trial in trials
            for measure, values in trial.values.items()
            if trial is not base
        ],
        "warnings": _warnings(plan, settings.search.fetch_k, left_out, empty, corpora),
    }  # fmt: skip


def _warnings(
    plan: TrialPlan,
    fetch_k: int,
    left_out: Mapping[str, int],
    empty: Mapping[str, int],
    corpora: Sequence[MeasuredCorpus],
) -> list[str]:
    """What was left out, not found or read too shallowly; `empty` counts each system's questions without results."""
    unjudged, wordless, unknown = (left_out[name] for name in ("unjudged", "without_text", "unknown_documents"))
    deep = scoring.deepest(plan.measures)
    warnings = {
        f"{unjudged:,} questions without judgments are left out": unjudged,
        f"{wordless:,} judged questions have no text and are left out": wordless,
        f"{unknown:,} judged documents are missing and count as not found": unknown,
        f"a measure reads {deep:,} results, but each source returns at most {fetch_k}: raise --fetch-k": (
            plan.systems and deep > fetch_k
        ),
        **{f"{name} has no results for {zero:,} questions, which count as zero": zero for name, zero in empty.items()},
        **{warning: True for corpus in corpora for warning in corpus.warnings},
    }
    return [text for text, holds in warnings.items() if holds]


def read_report(path: Path) -> dict[str, Any]:
    """Read a saved report, and check the parts that the gate uses."""
    hint = "make it again: eval run … --save FILE"
    report = read_json(path, hint)
    try:
        values = [value for system in report["systems"].values() for of in system["per_query"].values()
                  for value in of.values()]  # fmt: skip
        whole = isinstance(report["data"]["fingerprint"], str) and all(isinstance(one, int | float) for one in values)
        known = report["format"] == FORMAT
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no report of `eval run`: {error!r}", hint=hint) from error
    if not whole or not known:
        raise UsageError(f"{path} is no report of format {FORMAT}", hint=hint)
    return report


def _system(trial: Trial, threshold: float) -> dict[str, Any]:
    import numpy as np

    latency: dict[str, Any] = {}
    if times := trial.times:
        percentiles = {f"p{at}": round(float(np.percentile(times, at)), 3) for at in (50, 95, 99)}
        mean, values = round(float(np.mean(times)), 3), [round(time, 3) for time in times]
        latency = {"n": len(times), "mean": mean, **percentiles, "values": values}
    return {
        "options": dict(trial.options),
        "measures": {measure: asdict(estimate(list(values.values()))) for measure, values in trial.values.items()},
        "per_query": {measure: dict(values) for measure, values in trial.values.items()},
        "latency_ms": latency,
        "confidence": _confidence(trial.confidences, threshold) if trial.confidences else {},
    }


def _confidence(questions: Sequence[Sequence[tuple[float, bool]]], threshold: float) -> dict[str, Any]:
    """How well confidence agrees with the judgments, and what a threshold leaves out."""
    results = [result for question in questions for result in question]
    right = [question[0][0] for question in questions if question and question[0][1]]
    answered = [any(confidence >= threshold for confidence, _ in question) for question in questions]
    return {
        "results": len(results),
        "calibration_error": scoring.calibration_error(*zip(*results, strict=True)) if results else None,
        "threshold": threshold,
        "right_first": len(right),
        "kept": fmean(confidence >= threshold for confidence in right) if right else None,
        "unanswered": 1 - fmean(answered),
    }


def gate(baseline: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare every measure of every system that both reports have: one row for each, as in the JSON of `eval gate`.

    `fell` says whether the measure is significantly lower. `noticeable` is the size from which a fall would be
    significant; None where too few questions changed.
    """
    settings = [report.get("settings", {}) for report in (baseline, new)]
    pairs = {"the data's fingerprint": [report["data"]["fingerprint"] for report in (baseline, new)]}
    pairs |= {name: [one.get(name) for one in settings] for name in ("exclude_self", "depth", "filters")}
    for name, (old, current) in pairs.items():
        if old != current:
            message = f"the two reports cannot be compared: {name} was {old} and is {current}"
            raise UsageError(message, hint=NEW_BASELINE)
    checks = []
    for system, body in baseline["systems"].items():
        measured = new["systems"].get(system, {"per_query": {}})["per_query"]
        for measure, before in body["per_query"].items():
            if (after := measured.get(measure)) is None:
                continue
            if before.keys() != after.keys() or not before:
                message = f"{system} has values of {measure} for other questions than before"
                raise UsageError(message, hint=NEW_BASELINE)
            means = {"before": fmean(before.values()), "after": fmean(after.values())}
            checks.append({"system": system, "measure": measure, **means, **scoring.check_fall(after, before)})
    if not checks:
        contents = "; ".join(f"{name}: {', '.join(body['per_query'])}" for name, body in baseline["systems"].items())
        message = f"the two reports have no measure of one system in common (baseline: {contents})"
        raise UsageError(message, hint="measure the same systems: --compare and --measures")
    return checks

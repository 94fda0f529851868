"""What an evaluation says, as JSON of a fixed shape: written here, read again by the gate and the report page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recollect import __version__
from recollect.config import Settings
from recollect.errors import UsageError
from recollect.evaluation.datasets import fingerprint_of
from recollect.evaluation.judgments import lines
from recollect.evaluation.scoring import deepest
from recollect.evaluation.statistics import compare, estimate
from recollect.evaluation.trials import Corpus, Plan, Trial
from recollect.types import now

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

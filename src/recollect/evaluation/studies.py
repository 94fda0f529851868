"""Studies of a memory that others use too: questions and judgments come with the request, as in the HTTP API.

The memory stays open, and `work` limits how long a study may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from recollect.errors import UsageError
from recollect.evaluation.corpora import within_reach
from recollect.evaluation.datasets import Dataset, fingerprint, judged_documents
from recollect.evaluation.overlap import overlap_report
from recollect.evaluation.recording import MEASURE, record_sets
from recollect.evaluation.results import label
from recollect.evaluation.sweep import DEPTHS, curves_of, sweep_report
from recollect.evaluation.trials import TrialPlan, make_report, run_trials
from recollect.memory import Memory
from recollect.types import Work

NAME = "own questions"
KEY_LENGTH = 100
"""Characters of a question that are its id, so that a report can be read."""

SECONDS = 300.0
"""The default time limit of a study: its caller waits for the answer."""

_NAMED = 3
"""Unknown ids that an error names."""


class StudyWork(Work):
    """The limits of one study."""

    def late(self) -> UsageError:
        """Return the error for a study that takes too long."""
        hint = "send fewer questions; `recollect eval` on the command line has no time limit"
        return UsageError(f"the study takes longer than {self.seconds:g} s", hint=hint)


def make_dataset(questions: Sequence[tuple[str, Mapping[str, int]]], name: str = NAME) -> Dataset:
    """Make a set of texts and judgments. A question's id is the beginning of its text."""
    queries: dict[str, str] = {}
    for place, (text, _) in enumerate(questions, 1):
        if not text.strip():
            raise UsageError(f"question {place} has no text", hint='{"text": "…", "relevant": ["…"]}')
        queries[_key(text, queries)] = text
    qrels = {key: dict(grades) for key, (_, grades) in zip(queries, questions, strict=True)}
    return Dataset(name, (), queries, qrels, "", judged=fingerprint(queries, qrels))


def check_known(memory: Memory, dataset: Dataset) -> None:
    """Refuse judgments of records that do not exist or that the caller cannot read."""
    judged = judged_documents(dataset.qrels)
    unknown = judged - {record.id for record in memory.store.records.get(sorted(judged), within_reach(memory))}
    if unknown:
        named = ", ".join(repr(one[:KEY_LENGTH]) for one in sorted(unknown)[:_NAMED])
        more = f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
        raise UsageError(f"there is no record {named}{more}", hint="`relevant` names records by their ids")


def run(memory: Memory, dataset: Dataset, plan: TrialPlan, *, work: Work | None = None) -> dict[str, Any]:
    """Return what `recollect eval run --json` prints for these questions."""
    check_known(memory, dataset)
    trials, corpora = run_trials(replace(plan, work=work), [dataset], lambda _: nullcontext(memory))
    return make_report(dataset.name, plan, memory.settings, trials, corpora)


def sweep(memory: Memory, dataset: Dataset, measure: str = MEASURE, *, work: Work | None = None) -> dict[str, Any]:
    """Return what `recollect eval sweep --json` prints for these questions."""
    check_known(memory, dataset)
    curves, depth = curves_of(memory.settings.search), max(DEPTHS)
    with record_sets(
        dataset.name, [dataset], lambda _: nullcontext(memory), measure=measure, depth=depth, work=work
    ) as judged:
        return sweep_report(judged, curves, DEPTHS)


def overlap(memory: Memory, dataset: Dataset, *, work: Work | None = None) -> dict[str, Any]:
    """Return what `recollect eval overlap --json` prints for these questions."""
    check_known(memory, dataset)
    pipeline, query = memory.prepare("")
    if len(pipeline.sources) < 2:  # noqa: PLR2004
        hint = "set an embedder, or configure an external source: docs/sources.md"
        raise UsageError("overlap compares two sources, and there are fewer", hint=hint)
    with record_sets(dataset.name, [dataset], lambda _: nullcontext(memory), depth=query.fetch_k, work=work) as judged:
        return overlap_report(judged, query.fetch_k)


def _key(text: str, taken: Mapping[str, str]) -> str:
    """Return the beginning of a text, numbered where another question begins alike."""
    head = label(text, KEY_LENGTH)
    names = (head if number == 1 else f"{head} ({number})" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)

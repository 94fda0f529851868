"""Questions that are given with their judgments, asked of a memory that others use: what a server is asked to study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.errors import UsageError
from recollect.evaluation.corpora import within_reach
from recollect.evaluation.datasets import Dataset, fingerprint, judged_documents
from recollect.evaluation.overlap import shared
from recollect.evaluation.recording import MEASURE, asked
from recollect.evaluation.results import label
from recollect.evaluation.sweep import DEPTHS, curves_of, swept
from recollect.evaluation.trials import Plan, conduct, make_report
from recollect.memory import Memory
from recollect.pipeline import Pipeline
from recollect.types import Query, Work

NAME = "own questions"
KEY_LENGTH = 100
"""Letters of a question that are its id, so that a report can be read."""

SECONDS = 300.0
"""How long a study may take where nothing else is said: its caller waits for the answer."""

_NAMED = 3
"""Unknown ids that an error names."""


class StudyWork(Work):
    """The limits of one study."""

    def late(self) -> UsageError:
        """The study was asked for with too many questions."""
        hint = "ask fewer questions; `recollect eval` on the command line has no limit"
        return UsageError(f"the study takes longer than {self.seconds:g} s", hint=hint)


class Lent(Memory):
    """A memory of somebody else: leaving it does not close it, and it answers only within the limits of a study."""

    def __init__(self, memory: Memory, work: Work | None = None, *, seconds: float = SECONDS) -> None:
        vars(self).update(vars(memory))
        self._work = work or StudyWork(seconds)

    def close(self) -> None:
        """Leave it open for its owner."""

    def prepare(self, text: str, *, work: Work | None = None, **options: Any) -> tuple[Pipeline, Query]:
        """As the memory does, within the limits of the study."""
        self._work.check()
        return super().prepare(text, work=work or self._work, **options)


def given(questions: Sequence[tuple[str, Mapping[str, int]]], name: str = NAME) -> Dataset:
    """The set of these texts and judgments; a question's id is its own text, as far as that is short."""
    queries: dict[str, str] = {}
    for place, (text, _) in enumerate(questions, 1):
        if not text.strip():
            raise UsageError(f"question {place} has no text", hint='{"text": "…", "relevant": ["…"]}')
        queries[_key(text, queries)] = text
    qrels = {key: dict(grades) for key, (_, grades) in zip(queries, questions, strict=True)}
    return Dataset(name, (), queries, qrels, "", judged=fingerprint(queries, qrels))


def check_known(memory: Memory, dataset: Dataset) -> None:
    """Refuse judgments of records that are not there, or not for this caller: they would count as not found."""
    judged = judged_documents(dataset.qrels)
    unknown = judged - {record.id for record in memory.store.records.get(sorted(judged), within_reach(memory))}
    if unknown:
        named = ", ".join(repr(one[:KEY_LENGTH]) for one in sorted(unknown)[:_NAMED])
        more = f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
        raise UsageError(f"there is no record {named}{more}", hint="`relevant` names records by their ids")


def run(memory: Memory, dataset: Dataset, plan: Plan, *, work: Work | None = None) -> dict[str, Any]:
    """What `recollect eval run --json` prints for these questions."""
    check_known(memory, dataset)
    trials, corpora = conduct(plan, [dataset], lambda _: Lent(memory, work))
    return make_report(dataset.name, plan, memory.settings, trials, corpora).as_dict()


def sweep(memory: Memory, dataset: Dataset, measure: str = MEASURE, *, work: Work | None = None) -> dict[str, Any]:
    """What `recollect eval sweep --json` prints for these questions."""
    check_known(memory, dataset)
    lines = curves_of(memory.settings.search)
    with asked(dataset.name, [dataset], lambda _: Lent(memory, work), measure=measure, depth=max(DEPTHS)) as judged:
        return swept(judged, lines, DEPTHS)


def overlap(memory: Memory, dataset: Dataset, *, work: Work | None = None) -> dict[str, Any]:
    """What `recollect eval overlap --json` prints for these questions."""
    check_known(memory, dataset)
    pipeline, query = memory.prepare("")
    if len(pipeline.sources) < 2:  # noqa: PLR2004
        hint = "set an embedder, or name another source: docs/sources.md"
        raise UsageError("overlap compares two sources, and there are fewer", hint=hint)
    with asked(dataset.name, [dataset], lambda _: Lent(memory, work), depth=query.fetch_k) as judged:
        return shared(judged, query.fetch_k)


def _key(text: str, taken: Mapping[str, str]) -> str:
    """The head of a text, with a number where another begins alike."""
    head = label(text, KEY_LENGTH)
    names = (head if number == 1 else f"{head} ({number})" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)

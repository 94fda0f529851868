"""Studies of a memory that others use too: questions come with the request, and `work` limits the time of a study."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from recollect.errors import UsageError
from recollect.evaluation.datasets import Dataset, fingerprint, judged_documents
from recollect.evaluation.overlap import overlap_report
from recollect.evaluation.recording import JudgedSets, record_sets, within_reach
from recollect.evaluation.results import label
from recollect.evaluation.scoring import MEASURES, parse_measures
from recollect.evaluation.trials import SYSTEMS, TrialPlan, make_report, run_trials
from recollect.evaluation.tuning import DEPTHS, curves_of, sweep_report
from recollect.memory import Memory
from recollect.types import Work

NAME = "own questions"
KEY_LENGTH = 100  # characters of a question that are its id, so that a report can be read

SECONDS = 300.0  # the default time limit of a study: its caller waits for the answer
_NAMED = 3  # unknown ids that an error names


class StudyWork(Work):
    """The limits of one study."""

    def late(self) -> UsageError:
        """Return the error for a study that takes too long."""
        hint = "send fewer questions; `recollect eval` on the command line has no time limit"
        return UsageError(f"the study takes longer than {self.seconds:g} s", hint=hint)


def make_dataset(questions: Sequence[tuple[str, Mapping[str, int]]], name: str = NAME) -> Dataset:
    """Make a set of texts and judgments. A question's id is the beginning of its text, numbered where it repeats."""
    queries: dict[str, str] = {}
    for place, (text, _) in enumerate(questions, 1):
        if not text.strip():
            raise UsageError(f"question {place} has no text", hint='{"text": "…", "relevant": ["…"]}')
        head = label(text, KEY_LENGTH)
        names = (head if number == 1 else f"{head} ({number})" for number in range(1, place + 1))
        queries[next(name for name in names if name not in queries)] = text
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


def run(
    memory: Memory,
    work: Work | None,
    dataset: Dataset,
    compare: Sequence[str] = ("default",),
    measures: Sequence[str] = MEASURES,
) -> dict[str, Any]:
    """Return what `recollect eval run --json` prints for these questions."""
    check_known(memory, dataset)
    plan = TrialPlan({name: SYSTEMS[name] for name in compare}, parse_measures(measures), work=work)
    trials, corpora = run_trials(plan, [dataset], lambda _: nullcontext(memory))
    return make_report(dataset.name, plan, memory.settings, trials, corpora)


def sweep(
    memory: Memory, work: Work | None, dataset: Dataset, measures: Sequence[str] = MEASURES[:1]
) -> dict[str, Any]:
    """Return what `recollect eval sweep --json` prints for these questions."""
    (measure,) = parse_measures(measures)
    with _recorded(memory, work, dataset, depth=max(DEPTHS), measure=measure) as judged:
        return sweep_report(judged, curves_of(memory.settings.search), DEPTHS)


def overlap(memory: Memory, work: Work | None, dataset: Dataset) -> dict[str, Any]:
    """Return what `recollect eval overlap --json` prints for these questions."""
    pipeline, query = memory.prepare("")
    if len(pipeline.sources) < 2:  # noqa: PLR2004
        hint = "set an embedder, or configure an external source: docs/sources.md"
        raise UsageError("overlap compares two sources, and there are fewer", hint=hint)
    with _recorded(memory, work, dataset, depth=query.fetch_k) as judged:
        return overlap_report(judged, query.fetch_k)


@contextmanager
def _recorded(memory: Memory, work: Work | None, dataset: Dataset, **options: Any) -> Iterator[JudgedSets]:
    check_known(memory, dataset)
    with record_sets(dataset.name, [dataset], lambda _: nullcontext(memory), work=work, **options) as judged:
        yield judged

"""What a study is about: judged questions, to a public set or to the user's own store, opened and asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.options import load_settings, notice, open_memory, progress
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.evaluation.datasets import Dataset
    from recollect.evaluation.judged import Judged
    from recollect.memory import Memory

F = TypeVar("F", bound=Callable[..., Any])


def on_data(command: F) -> F:
    """Where judged questions come from, as for `eval run`."""
    for option in (
        click.option("--queries", metavar="FILE", help="Questions to your own store, as JSON lines or id<TAB>text."),
        click.option("--qrels", metavar="FILE", help="Their judgments, in BEIR's or TREC's form."),
        click.option("--split", default="", metavar="NAME", help="train, dev or test, where the set has splits."),
        click.argument("dataset", required=False),
    ):
        command = option(command)
    return command


@contextmanager
def judged_by(options: Mapping[str, Any], measure: str, depth: int) -> Iterator[Judged]:
    """The set or the user's own store, opened and asked once, as deep as any setting that is tried."""
    from recollect.evaluation.judged import asked
    from recollect.evaluation.scoring import parse_measures

    if len(measures := parse_measures(measure)) > 1:
        raise UsageError(f"one measure is swept or tuned, not {len(measures)}", hint="--measure nDCG@10")
    name, sets = _sets(options)
    opening = partial(_open, options)
    with asked(name, sets, opening, measure=measures[0], depth=depth, progress=progress) as judged:
        for part in judged.parts:
            for reason, count in part.failures.items():
                notice(f"note: {part.dataset.name}: no answer to {count:,} questions from {reason}")
        yield judged


def _sets(options: Mapping[str, Any]) -> tuple[str, list[Dataset]]:
    from recollect.evaluation.datasets import read_any, read_judged
    from recollect.evaluation.questions.telling import bias

    dataset, queries, qrels = (options[name] for name in ("dataset", "queries", "qrels"))
    if dataset and not (queries or qrels):
        if said := bias(Path(dataset)):
            notice(f"note: {said}; do not choose settings by it alone")
        return Path(dataset).resolve().name, read_any(Path(dataset), split=options["split"])
    if dataset or not (queries and qrels):
        hint = "a folder, or --queries FILE --qrels FILE for your own store"
        raise UsageError("a study needs one set of judged questions", hint=hint)
    return Path(qrels).stem, [read_judged(Path(queries), Path(qrels), Path(qrels).stem)]


def _open(options: Mapping[str, Any], dataset: Dataset) -> Memory:
    """The user's own store, or that of the corpus, made where there is none."""
    from recollect.evaluation.corpora import open_corpus

    if dataset.own:
        return open_memory(options, reads=True)
    settings = load_settings(options).settings
    return open_corpus(dataset, settings=settings, progress=progress, announce=notice, fetching=progress("fetching"))

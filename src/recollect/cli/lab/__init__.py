"""`recollect eval`: the laboratory on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recollect.cli.app import Commands
from recollect.cli.flags import load_settings, open_memory
from recollect.cli.terminal import notice, progress
from recollect.errors import FailedError, UsageError

if TYPE_CHECKING:
    from recollect.evaluation.datasets import Dataset
    from recollect.evaluation.recording import Judged
    from recollect.memory import Memory
    from recollect.types import Progress


STUDIES: dict[str, tuple[str, str]] = {
    "run": ("run", "Measure search on judged questions."),
    "sweep": ("tune", "Measure a grid of settings, and find the depth beyond which results no longer change."),
    "overlap": ("tune", "Say what each source finds, and whether fusing is worth it."),
    "tune": ("tune", "Choose settings by cross-validation, if that gains anything."),
    "make-set": ("run", "Make questions from your own store."),
    "gate": ("run", "Fail when a measure fell by more than the noise."),
    "report": ("run", "Write one page with the plots."),
}
"""Study → the module that has it, and its line in the help."""


@click.command(cls=Commands, table=STUDIES, package="recollect.cli.lab")
def eval_() -> None:
    """Measure search on judged questions: yours, or public sets."""


F = TypeVar("F", bound=Callable[..., Any])


def on_data(command: F) -> F:
    """The set that a study is about: DATASET, or questions to the user's own store."""
    return click.argument("dataset", required=False)(on_questions(command))


def on_questions(command: F) -> F:
    """Where judged questions come from, for every command that measures."""
    for option in (
        click.option("--queries", metavar="FILE", help="Questions to your own store, as JSON lines or id<TAB>text."),
        click.option("--qrels", metavar="FILE", help="Their judgments, in BEIR's or TREC's form."),
        click.option("--split", default="", metavar="NAME", help="train, dev or test, where the set has splits."),
    ):
        command = option(command)
    return command


@contextmanager
def judged_by(options: Mapping[str, Any], measure: str, depth: int) -> Iterator[Judged]:
    """The set or the user's own store, opened and asked once, as deep as any setting that is tried."""
    from recollect.evaluation.recording import asked
    from recollect.evaluation.scoring import parse_measures

    if len(measures := parse_measures(measure)) > 1:
        raise UsageError(f"one measure is swept or tuned, not {len(measures)}", hint="--measure nDCG@10")
    name, sets = read_sets(options["dataset"], options)
    opening = partial(open_set, options, {})
    with asked(name, sets, opening, measure=measures[0], depth=depth, progress=progress) as judged:
        for part in judged.parts:
            for reason, count in part.failures.items():
                notice(f"note: {part.dataset.name}: no answer to {count:,} questions from {reason}")
        yield judged


def read_sets(dataset: str | None, options: Mapping[str, Any], *, asking: bool = True) -> tuple[str, list[Dataset]]:
    """The corpora of a set, or judged questions to the user's own store, and the name of it all.

    Where nothing is asked, but only runs are scored, the judgments alone will do.
    """
    from recollect.evaluation.datasets import read_any, read_judged
    from recollect.evaluation.questions.files import bias

    queries, qrels = options["queries"], options["qrels"]
    if dataset is not None:
        if queries or qrels:
            raise UsageError("a set has its own questions and judgments", hint="leave out --qrels and --queries")
        if said := bias(Path(dataset)):
            notice(f"note: {said}; do not choose settings by them alone")
        return Path(dataset).resolve().name, read_any(Path(dataset), split=options["split"])
    if not qrels or (asking and not queries):
        hint = "name the folder of a set, or --queries FILE --qrels FILE for your own store"
        raise UsageError("there is nothing to measure on", hint=hint)
    return Path(qrels).stem, [read_judged(Path(queries) if queries else None, Path(qrels), Path(qrels).stem)]


def open_set(options: Mapping[str, Any], ranking: Mapping[str, Any], dataset: Dataset) -> Memory:
    """The user's own store, or that of the corpus, made where there is none."""
    from recollect.evaluation.corpora import open_corpus

    if dataset.own:
        return open_memory(options, ranking, reads=True)
    settings = load_settings(options, ranking).settings
    return open_corpus(dataset, settings=settings, progress=_told, announce=notice, fetching=progress("fetching"))


def read_bytes(file: str, hint: str) -> bytes:
    """What a file holds, or an error that names it."""
    try:
        return Path(file).read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UsageError(f"{file} is no file", hint=hint) from error
    except OSError as error:
        raise FailedError(f"{file} cannot be read: {error.strerror or error}", hint="may you read it?") from error


def _told(label: str) -> Progress:
    """A bar on a terminal; elsewhere one line that says what takes so long, if there is anything to do."""
    told: list[str] = []

    def tell(_done: int, total: int) -> None:
        if not told:
            told.append(label)
            notice(f"{label}: {total:,} documents, kept for the next run")

    return progress(label) or tell

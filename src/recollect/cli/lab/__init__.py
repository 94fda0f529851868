"""`recollect eval`: the commands, the flags that name judged questions, and the stores they are measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import Commands
from recollect.cli.flags import flags, load_settings, open_memory
from recollect.cli.terminal import echo, notice, print_table, progress, width
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.evaluation.datasets import Dataset
    from recollect.evaluation.recording import JudgedSets
    from recollect.memory import Memory

AS_FILES = "leave it out: your own store is measured as it is"
STUDIES: dict[str, tuple[str, str]] = {  # study → the module of its command, and its line in the help
    "run": ("run", "Measure search on judged questions."),
    "sweep": ("tune", "Measure a grid of settings, and find the depth beyond which results no longer change."),
    "overlap": ("tune", "Count what each source finds, and advise whether to fuse them."),
    "tune": ("tune", "Choose settings by cross-validation, if they gain anything."),
    "make-set": ("run", "Make questions from your own store."),
    "gate": ("run", "Fail when a measure fell significantly."),
    "report": ("run", "Write an HTML page with the plots."),
}


@click.command(cls=Commands, table=STUDIES, package="recollect.cli.lab")
def eval_() -> None:
    """Measure search on judged questions: yours, or public sets."""


question_options = flags(
    click.option("--split", default="", metavar="NAME", help="train, dev or test, if the set has splits."),
    click.option("--qrels", metavar="FILE", help="Their judgments, in BEIR's or TREC's form."),
    click.option("--queries", metavar="FILE", help="Questions to your own store, as JSON lines or id<TAB>text."),
)
dataset_options = flags(click.argument("dataset", required=False), question_options)
"""The flags that name judged questions, and DATASET with them."""

as_files_option = click.option(
    "--as-files", is_flag=True, help="Index each document as a markdown file, and judge results by their files."
)


@contextmanager
def recorded(options: Mapping[str, Any], measure: str, depth: int) -> Iterator[JudgedSets]:
    """Open the set or the user's own store, and record every source's answers at least `depth` deep."""
    from recollect.evaluation.recording import record_sets
    from recollect.evaluation.scoring import parse_measures

    if len(measures := parse_measures(measure)) > 1:
        raise UsageError(f"only one measure can be swept or tuned, not {len(measures)}", hint="--measure nDCG@10")
    name, sets = read_sets(options["dataset"], options)
    opener = partial(open_set, options, {})
    with record_sets(name, sets, opener, measure=measures[0], depth=depth, progress=progress) as judged:
        for part in judged.parts:
            for warning in part.recording.warnings:
                notice(f"note: {part.dataset.name}: {warning}")
        yield judged


def read_sets(dataset: str | None, options: Mapping[str, Any], *, asking: bool = True) -> tuple[str, list[Dataset]]:
    """Read a set, or judged questions to the user's own store, and its name.

    Without `asking`, only runs are scored, and the judgments suffice.
    """
    from recollect.evaluation.datasets import read_dataset, read_judged
    from recollect.evaluation.sets import bias

    queries, qrels = options["queries"], options["qrels"]
    if dataset is not None:
        if queries or qrels:
            raise UsageError("a set has its own questions and judgments", hint="leave out --qrels and --queries")
        if warning := bias(Path(dataset)):
            notice(f"note: {warning}; do not choose settings by them alone")
        sets = read_dataset(Path(dataset), split=options["split"])
        if options.get("as_files") and any(one.own for one in sets):
            raise UsageError("--as-files needs a set with a corpus.jsonl", hint=AS_FILES)
        return Path(dataset).resolve().name, [replace(one, as_files=bool(options.get("as_files"))) for one in sets]
    if options.get("as_files"):
        raise UsageError("--as-files needs the folder of a set", hint=AS_FILES)
    if options.get("split"):
        raise UsageError("--split needs the folder of a set", hint="name the files of the split: --queries, --qrels")
    if not qrels or (asking and not queries):
        hint = "name the folder of a set, or --queries FILE --qrels FILE for your own store"
        raise UsageError("there is nothing to measure on", hint=hint)
    return Path(qrels).stem, [read_judged(Path(queries) if queries else None, Path(qrels), Path(qrels).stem)]


def open_set(options: Mapping[str, Any], ranking: Mapping[str, Any], dataset: Dataset) -> Memory:
    """Open the user's own store, or the corpus's cached store, which is made if missing."""
    from recollect.evaluation.recording import open_corpus

    if dataset.own:
        return open_memory(options, ranking, reads=True)
    settings = load_settings(options, ranking).settings
    return open_corpus(dataset, settings=settings, progress=progress, announce=notice, fetching=progress("fetching"))


def check_output(file: Path | None, *, force: bool) -> None:
    """Refuse to overwrite a file without `force`, and to write into a folder that does not exist."""
    if file and file.exists() and not force:
        raise UsageError(f"{file} exists already", hint="choose another name, or --force to overwrite it")
    if file and not file.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", hint="make it, or choose another file")


def interval(estimate: Mapping[str, float], *, signed: bool = False) -> str:
    """Write a mean and its 95 % interval."""
    form = "+.3f" if signed else ".3f"
    return f"{estimate['mean']:{form}} [{estimate['low']:{form}}, {estimate['high']:{form}}]"


def print_findings(report: Mapping[str, Any], *tables: str) -> None:
    """Print the findings of a study as its page has them: the tables of these sections, then all findings in words."""
    from recollect.evaluation.report import compose

    sections = compose([report]).values()
    for table in (table for section in sections if section.slug in tables for table in section.tables):
        print_table([tuple(row) for row in (table.head, *table.rows)])
        echo()
    for words in (words for section in sections for words in (section.lead, *section.more)):
        wrap(words)


def wrap(words: str) -> None:
    """Print words in lines that fit the terminal."""
    echo(click.wrap_text(words, width()))

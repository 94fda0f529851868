"""A question set in a folder, whose files a person can edit.

`queries.jsonl` and `qrels.tsv` are the test split, to report on; `queries_dev.jsonl` and `qrels_dev.tsv` are the dev
split, to try settings on. `manifest.json` lists every question ever made, so that a deleted one does not come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.errors import FailedError, UsageError
from recollect.evaluation.datasets import QUERIES_FORM, json_object, lines, read_qrels, write_lines
from recollect.evaluation.questions.generation import SPLITS
from recollect.evaluation.questions.prose import MOST, LeakRow

MANIFEST, CORPUS, README = "manifest.json", "corpus.jsonl", "README.md"
IGNORE = ".recollectignore"
MADE_BY = "recollect eval make-set"
FORMAT = 1
HEADING = "query-id\tcorpus-id\tscore"
OTHER_FOLDER = "name another folder: -o FOLDER"

COLUMNS = ("kind", "questions", "words in target", "most of them", "own word", "first by words", "copied")

LEGEND = {
    "words in target": "the share of a question's words that one passage of its target has",
    "most of them": "questions for which that share is more than half",
    "own word": "questions with a word that only their target has",
    "first by words": "questions whose target keyword search (BM25) ranks first",
    "copied": "those of them whose every word is in one passage of the target, so that being first proves little",
}
"""Column → its meaning."""

PAGE = """# Questions to a store, made by `recollect eval make-set`

| file | contents |
|---|---|
| `queries.jsonl`, `qrels.tsv` | the test split, to report on: {test} questions and their targets |
| `queries_dev.jsonl`, `qrels_dev.tsv` | the dev split, to try settings on: {dev} questions |
{corpus}| `manifest.json` | how the set was made, and the ids of all questions that were ever in it |

    recollect eval run FOLDER{run}

You may edit it: change the text of a question, delete its line, or add your own (`{{"_id": "mine-1", "text": "…"}}`,
and in the qrels a line with its id, a file's path or a record's id, and 1). `recollect eval make-set -o FOLDER
--update` keeps your changes, does not bring back deleted questions, and adds questions about new records.

A question asks for one known target. Other files may answer it as well, but finding those counts as not finding it:
compare settings by these numbers, and do not read them as the quality of search.

## What the questions give away

{table}

{legend}
"""


@dataclass(slots=True)
class QuestionLine:
    """One question as it stands in the files, its split, and its judgments (target → grade)."""

    row: dict[str, Any]
    split: str
    grades: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id in both files."""
        return str(self.row["_id"])

    @property
    def text(self) -> str:
        """The question."""
        return str(self.row["text"])

    @property
    def metadata(self) -> dict[str, Any]:
        """How it was made; empty for a line that a person added."""
        metadata = self.row.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def kind(self) -> str:
        """The kind of question; `own` for one that a person added."""
        return str(self.metadata.get("kind", "own"))

    @property
    def target(self) -> str | None:
        """The document with the best grade."""
        relevant = (target for target, grade in self.grades.items() if grade > 0)
        return max(relevant, key=self.grades.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class SetFiles:
    """The contents of a folder: its questions, and the ids of all questions ever made for it."""

    lines: list[QuestionLine] = field(default_factory=list)
    known: frozenset[str] = frozenset()
    manifest: Mapping[str, Any] = field(default_factory=dict)


def check_folder(folder: Path, *, force: bool, update: bool) -> None:
    """Refuse to overwrite anything that make-set did not make."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a folder: -o FOLDER")
    made = (folder / MANIFEST).exists()
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if update and not made:
        raise UsageError(f"{folder} holds no set that could be updated", hint="leave --update out to make one")
    if names and not made:
        raise UsageError(f"{folder} holds {names[0]}, which make-set did not make", hint=OTHER_FOLDER)
    if made:
        _manifest(folder)
        if not (force or update):
            hint = "--update keeps your edits and adds new questions; --force replaces the set"
            raise UsageError(f"{folder} holds a set already", hint=hint)


def read_folder(folder: Path) -> SetFiles:
    """Read the set with all edits."""
    manifest = _manifest(folder)
    questions = [line for split in SPLITS for line in _read_split(folder, split)]
    ids = [line.id for line in questions]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise UsageError(f"{folder}: two questions have the id {min(twice)!r}", hint="give one of them another _id")
    return SetFiles(questions, frozenset(manifest.get("known", ())), manifest)


def write_folder(
    folder: Path, questions: Sequence[QuestionLine], manifest: Mapping[str, Any], readme: str, corpus: list[str]
) -> None:
    """Write all files of the set; the manifest last, since it says that the others are complete."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not corpus:
            (folder / CORPUS).unlink(missing_ok=True)
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror or error}"
        raise FailedError(message, hint="name another folder") from error
    if corpus:
        _replace(folder / CORPUS, corpus)
    for split in SPLITS:
        queries, qrels = _files(split)
        here = [line for line in questions if line.split == split]
        _replace(folder / queries, (json.dumps(line.row, ensure_ascii=False) for line in here))
        grades = (f"{line.id}\t{name}\t{grade}" for line in here for name, grade in line.grades.items())
        _replace(folder / qrels, [HEADING, *grades])
    _replace(folder / README, [readme.rstrip("\n")])
    _replace(folder / IGNORE, ["# Questions are not notes: `recollect index` leaves this folder out.", "*"])
    _replace(folder / MANIFEST, [json.dumps({"made_by": MADE_BY, "format": FORMAT, **manifest}, indent=1)])


def _replace(path: Path, text: Iterable[str]) -> None:
    """Replace a file at once, since it may hold a person's edits."""
    beside = path.with_name(f"{path.name}.new")
    write_lines(beside, text)
    beside.replace(path)


def _read_split(folder: Path, split: str) -> list[QuestionLine]:
    queries, qrels = (folder / name for name in _files(split))
    rows = [_row(text, place) for place, text in lines(queries)] if queries.exists() else []
    judged = qrels.exists() and any(text.strip() != HEADING for _, text in lines(qrels))
    grades = read_qrels(qrels) if judged else {}
    return [QuestionLine(row, split, grades.get(row["_id"], {})) for row in rows]


def _row(text: str, place: str) -> dict[str, Any]:
    row = json_object(text, place, QUERIES_FORM)
    if not all(isinstance(row.get(key), str) and row[key].strip() for key in ("_id", "text")):
        raise UsageError(f'{place} has no "_id" or no "text"', hint=QUERIES_FORM)
    return row


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=OTHER_FOLDER) from error
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}", hint="check its permissions") from error
    if not isinstance(manifest, dict) or manifest.get("made_by") != MADE_BY or manifest.get("format") != FORMAT:
        raise UsageError(f"{path} was not made by this version of make-set", hint=OTHER_FOLDER)
    return manifest


def _files(split: str) -> tuple[str, str]:
    end = "" if split == "test" else f"_{split}"
    return f"queries{end}.jsonl", f"qrels{end}.tsv"


def cells(row: LeakRow) -> tuple[str, ...]:
    """Return a row of the table as text."""
    shares = (row.shared, row.leaking, row.giveaway, row.first, row.copied)
    return (row.kind, f"{row.questions:,}", *(f"{100 * share:.0f} %" for share in shares))


def readme(sides: dict[str, int], rows: Sequence[LeakRow], *, masked: bool) -> str:
    """Return the README of a set."""
    table = "\n".join(f"| {' | '.join(row)} |" for row in [COLUMNS, ("---",) * len(COLUMNS), *map(cells, rows)])
    legend = "\n".join(f"- *{name}*: {meaning}" for name, meaning in LEGEND.items())
    corpus = "| `corpus.jsonl` | the records, without the words of the questions about them |\n" if masked else ""
    return PAGE.format(run="" if masked else " --store STORE", corpus=corpus, table=table, legend=legend, **sides)


def leak_warning(rows: Sequence[LeakRow]) -> list[str]:
    """Warn where more than half of the questions consist of their targets' words."""
    total = rows[-1].leaking if rows else 0.0
    if total <= MOST:
        return []
    leak = f"{100 * total:.0f} % of the questions share most of their words with their target"
    return [f"{leak}, which favours keyword search: --llm asks in other words, --masked removes the words from a copy"]


def bias(folder: Path) -> str:
    """Return how a set made by `make-set` is biased; empty if it is not."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        leaking = next(row["leaking"] for row in manifest["leakage"] if row["kind"] == "all")
        masked = bool(manifest.get("masked"))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return ""
    if masked:
        return "this set was made without the words of its answers: it favours vector search"
    if leaking > MOST:
        share = f"{leaking:.0%} of these questions share most of their words with their answer"
        return f"{share}: they favour keyword search"
    return ""

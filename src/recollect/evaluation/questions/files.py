"""A question set in a folder: questions and judgments that a person can edit, in two parts that stay as they are.

`queries.jsonl` and `qrels.tsv` are the part to report on, `queries_dev.jsonl` and `qrels_dev.tsv` the one to try things
on. `manifest.json` knows every question that was ever put there, so that one that was taken out is not brought back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.errors import FailedError, UsageError
from recollect.evaluation.datasets import QUERIES_FORM, lines, read_qrels, write_lines
from recollect.evaluation.questions.generation import SPLITS
from recollect.evaluation.questions.notes import MOST, Row

MANIFEST, CORPUS, README = "manifest.json", "corpus.jsonl", "README.md"
IGNORE = ".recollectignore"
MADE_BY = "recollect eval make-set"
FORMAT = 1
HEADING = "query-id\tcorpus-id\tscore"


@dataclass(slots=True)
class Line:
    """One question as it stands in the files, on which side, and what it is judged by (target → grade)."""

    row: dict[str, Any]
    split: str
    grades: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name in both files."""
        return str(self.row["_id"])

    @property
    def text(self) -> str:
        """What is asked."""
        return str(self.row["text"])

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known of it; a line that a person added need not have any."""
        said = self.row.get("metadata")
        return said if isinstance(said, dict) else {}

    @property
    def kind(self) -> str:
        """How it was made; `own` is by hand."""
        return str(self.metadata.get("kind", "own"))

    @property
    def target(self) -> str | None:
        """What it asks for: the document with the best grade."""
        return max(
            (target for target, grade in self.grades.items() if grade > 0), key=self.grades.__getitem__, default=None
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """What a folder holds: its lines, and the ids of all questions that were ever made for it."""

    lines: list[Line]
    known: frozenset[str]
    manifest: Mapping[str, Any]


def check(folder: Path, *, force: bool, update: bool) -> None:
    """Refuse what would overwrite somebody's work."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", hint="name a folder: -o FOLDER")
    held = [name for name in (*_files("test"), *_files("dev"), CORPUS, README, MANIFEST) if (folder / name).exists()]
    if update and MANIFEST not in held:
        raise UsageError(f"{folder} holds no set that could be updated", hint="leave --update out to make one")
    others = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if others and MANIFEST not in held:
        raise UsageError(
            f"{folder} holds {others[0]}, which make-set did not make", hint="name another folder: -o FOLDER"
        )
    if held:
        _manifest(folder)
        if not (force or update):
            hint = "--update keeps your edits and adds what is new; --force makes it anew"
            raise UsageError(f"{folder} holds a set already", hint=hint)


def read(folder: Path) -> Kept:
    """The set as it stands, edits and all."""
    manifest = _manifest(folder)
    found = [line for split in SPLITS for line in _read_split(folder, split)]
    twice = {line.id for line in found if sum(other.id == line.id for other in found) > 1}
    if twice:
        raise UsageError(f"{folder}: two questions have the id {min(twice)!r}", hint="give one of them another _id")
    return Kept(found, frozenset(manifest.get("known", ())), manifest)


def write(folder: Path, written: Iterable[Line], manifest: Mapping[str, Any], readme: str, corpus: list[str]) -> None:
    """All files of the set; the manifest last, since it says that the others are whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not corpus:
            (folder / CORPUS).unlink(missing_ok=True)
    except OSError as error:
        raise FailedError(
            f"{folder} cannot be written: {error.strerror or error}", hint="name another folder"
        ) from error
    everything = list(written)
    if corpus:
        _put(folder / CORPUS, corpus)
    for split in SPLITS:
        queries, qrels = _files(split)
        here = [line for line in everything if line.split == split]
        _put(folder / queries, (json.dumps(line.row, ensure_ascii=False) for line in here))
        grades = (f"{line.id}\t{name}\t{grade}" for line in here for name, grade in line.grades.items())
        _put(folder / qrels, [HEADING, *grades])
    _put(folder / README, [readme.rstrip("\n")])
    _put(folder / IGNORE, ["# Questions are no notes: `recollect index` leaves this folder out.", "*"])
    _put(folder / MANIFEST, [json.dumps({"made_by": MADE_BY, "format": FORMAT, **manifest}, indent=1)])


def _put(path: Path, written: Iterable[str]) -> None:
    """A file that is the old one or the new one, whatever happens: it may hold somebody's edits."""
    beside = path.with_name(f"{path.name}.new")
    write_lines(beside, written)
    beside.replace(path)


def _read_split(folder: Path, split: str) -> list[Line]:
    queries, qrels = (folder / name for name in _files(split))
    rows = [_row(text, place) for place, text in lines(queries)] if queries.exists() else []
    judged = qrels.exists() and any(text.strip() != HEADING for _, text in lines(qrels))
    grades = read_qrels(qrels) if judged else {}
    return [Line(row, split, grades.get(row["_id"], {})) for row in rows]


def _row(text: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}", hint=QUERIES_FORM) from error
    if not isinstance(row, dict) or not all(
        isinstance(row.get(key), str) and row[key].strip() for key in ("_id", "text")
    ):
        raise UsageError(f'{place} has no "_id" or no "text"', hint=QUERIES_FORM)
    return row


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name another folder: -o FOLDER") from error
    except OSError as error:
        raise FailedError(f"{path} cannot be read: {error.strerror or error}", hint="may you read it?") from error
    if not isinstance(manifest, dict) or manifest.get("made_by") != MADE_BY or manifest.get("format") != FORMAT:
        raise UsageError(f"{path} is not make-set's, or another version's", hint="name another folder: -o FOLDER")
    return manifest


def _files(split: str) -> tuple[str, str]:
    end = "" if split == "test" else f"_{split}"
    return f"queries{end}.jsonl", f"qrels{end}.tsv"


COLUMNS = ("kind", "questions", "words in target", "most of them", "own word", "first by words", "copied")

PAGE = """# Questions to a store, made by `recollect eval make-set`

| file | what is in it |
|---|---|
| `queries.jsonl`, `qrels.tsv` | the part to report on: {test} questions and what each asks for |
| `queries_dev.jsonl`, `qrels_dev.tsv` | the part to try settings on: {dev} questions |
{corpus}| `manifest.json` | how it was made, and the ids of all questions that ever were in it |

    recollect eval run FOLDER{run}

Edit it: change the text of a question, delete its line, add one of your own (`{{"_id": "mine-1", "text": "…"}}`, and in
the qrels a line with its id, a file's path or a record's id, and 1). `recollect eval make-set -o FOLDER --update` keeps
what you changed, does not bring back what you deleted, and adds questions about what is new.

A question asks for one known thing. Other files may answer it as well, and finding those counts as not finding it:
compare settings by these numbers, and do not read them as how good search is.

## What the questions give away

{table}

- *words in target*: the share of a question's words that stand in one passage of what it asks for;
- *most of them*: questions of which that is more than half;
- *own word*: questions with a word that what they ask for has, and nothing else;
- *first by words*: questions for which plain keyword search (BM25) puts what they ask for first;
- *copied*: those of them whose every word stands in one passage of it, so that being first says little.
"""


def cells(row: Row) -> tuple[str, ...]:
    """A row of the table as text."""
    shares = (row.shared, row.leaking, row.giveaway, row.first, row.copied)
    return (row.kind, f"{row.questions:,}", *(f"{100 * share:.0f} %" for share in shares))


def readme(sides: dict[str, int], rows: Sequence[Row], *, masked: bool) -> str:
    """The page in the folder of a set."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(cells, rows)]
    corpus = (
        "| `corpus.jsonl` | the records, without the words of the questions that ask for them |\n" if masked else ""
    )
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return PAGE.format(run="" if masked else " --store STORE", corpus=corpus, table=table, **sides)


def leak_warning(rows: Sequence[Row]) -> list[str]:
    """Said where more than half of the questions are made of their targets' words."""
    total = rows[-1].leaking if rows else 0.0
    if total <= MOST:
        return []
    said = f"{100 * total:.0f} % of the questions share most of their words with what they ask for"
    why = "so that search by words looks better than it is"
    return [f"{said}, {why}: --llm asks in other words, --masked takes the words out of a copy"]


def bias(folder: Path) -> str:
    """What a set that `make-set` made favours by its making, in words; empty where that is nothing."""
    try:
        made = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        leaking = next(row["leaking"] for row in made["leakage"] if row["kind"] == "all")
        masked = bool(made.get("masked"))
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return ""
    if masked:
        return "this set was made with its answers' own words taken out: it favours meaning over words"
    if leaking > MOST:
        return f"{leaking:.0%} of these questions share most of their words with their answer: they favour words"
    return ""

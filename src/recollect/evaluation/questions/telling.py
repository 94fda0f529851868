"""What a set says of itself: the page in its folder, the table, and the warnings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from recollect.evaluation.questions.leakage import MOST, Row

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

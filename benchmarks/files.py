"""Search among files: `python -m benchmarks.files [SET…] [--part tuning] [--write]`.

Each document of a set is indexed as a markdown file, which becomes chunks, and results are judged by their files. The
questions are those of `benchmarks.quality`: what is reported is held out, `--part tuning` is for choosing. Reads
RECOLLECT_DATA (default ../shared/data). Stores are kept in the user's cache; the first run embeds every chunk.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from benchmarks.quality import cell, gain, questions, table, write
from recollect.evaluation.recording import open_corpus, record_set
from recollect.evaluation.scoring import compare, estimate, evaluate
from recollect.evaluation.trials import SYSTEMS

MEASURES = ("nDCG@10", "R@5")
WHOLE, CHUNK, FILE = "whole documents", "files, by chunk", "files, by file (the default)"
ROWS: dict[str, tuple[bool, dict[str, Any]]] = {  # row → whether documents are files, and the search options
    WHOLE: (False, {}),
    CHUNK: (True, {"by": "chunk"}),
    FILE: (True, {"by": "file"}),
    "files, keyword alone": (True, dict(SYSTEMS["keyword"])),
    "files, vector alone": (True, dict(SYSTEMS["vector"])),
}
Values: TypeAlias = dict[str, dict[str, Mapping[str, float]]]
"""Row → measure → question → value."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=("openclaw_docs",))
    parser.add_argument("--part", choices=("held-out", "tuning"), default="held-out")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    arguments = parser.parse_args()
    shown = [line for name in arguments.sets for line in lines(name, measure(name, arguments.part))]
    head = ("set", "questions", "results", *MEASURES, f"{MEASURES[0]} against whole documents")
    text = table([head, *shown])
    print(text)
    if arguments.write:
        if arguments.part != "held-out":
            sys.exit("--write is for the held-out questions")
        write("benchmarks.md", "files", text)


def measure(name: str, part: str) -> Values:
    """The values of every question under every row."""
    values: Values = {}
    for dataset in questions(name, part):
        for as_files in (False, True):
            chosen = replace(dataset, as_files=as_files)
            with open_corpus(chosen) as memory:
                judged = record_set(memory, chosen)
                for row, (needs_files, options) in ROWS.items():
                    if needs_files == as_files:
                        of = values.setdefault(row, {})
                        run = judged.run(options, limit=100)
                        for measure_, scored in evaluate(dataset.qrels, run, MEASURES).items():
                            of[measure_] = {**of.get(measure_, {}), **scored}
    return values


def lines(name: str, values: Values) -> list[tuple[str, ...]]:
    """The rows of the table."""
    shown = []
    for row, of in values.items():
        means = (cell(estimate(list(of[measure_].values()))) for measure_ in MEASURES)
        against = gain(compare(of[MEASURES[0]], values[WHOLE][MEASURES[0]])) if row != WHOLE else ""
        shown.append((name, f"{len(of[MEASURES[0]]):,}", row, *means, against))
    return shown


if __name__ == "__main__":
    main()

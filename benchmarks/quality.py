"""Search quality on the development sets: `make eval`, or `python -m benchmarks.quality [SET…]`.

Reads RECOLLECT_DATA (default ../shared/data). Reports on the test splits; `--split train` is for tuning. Stores are
kept in the user's cache by the corpus's fingerprint, so that a second run embeds nothing. `--write` puts the table
into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import mean

import platformdirs

from recollect.config import Settings
from recollect.evaluation import Dataset, evaluate, rank_all, read_dataset
from recollect.memory import Memory
from recollect.types import Answer, Query

SETS = ("scifact", "nfcorpus", "cranfield", "locomo", "openclaw_docs")
SYSTEMS = {
    "keyword": {"sources": ["keyword"]},
    "vector": {"sources": ["vector"]},
    "weighted .7/.3": {"fusion": "weighted", "vector_weight": 0.7, "text_weight": 0.3},
    "rrf (default)": {},
}
MEASURES = ("nDCG@10", "R@20", "RR@10")
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"
MARKS = ("<!-- quality:begin -->", "<!-- quality:end -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--split", default="")
    parser.add_argument("--embedder", default="arctic-embed-s")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = Path(os.environ.get("RECOLLECT_DATA", "../shared/data"))
    if not data.is_dir():
        sys.exit(f"no development sets at {data}; set RECOLLECT_DATA")
    rows = [("set", "documents", "questions", *(f"{system} {MEASURES[0]}" for system in arguments.systems.split(",")))]
    for name in arguments.sets:
        rows.append(measure_set(data / name, arguments.split, arguments.embedder, arguments.systems.split(",")))
        show(rows)
    if arguments.write:
        write(rows)


def measure_set(folder: Path, split: str, embedder: str, systems: list[str]) -> tuple[str, ...]:
    sets = read_dataset(folder, split=split)
    values: dict[str, list[float]] = {system: [] for system in systems}
    for dataset in sets:
        with open_indexed(dataset, embedder) as memory:
            for system in systems:
                run = rank_all(searcher(memory, SYSTEMS[system]), dataset.queries, depth=100)
                found = evaluate(dataset.qrels, run, MEASURES)
                values[system] += found[MEASURES[0]].values()
                print(
                    f"  {folder.name}/{dataset.name} {system}: "
                    + ", ".join(f"{measure} {mean(found[measure].values()):.4f}" for measure in MEASURES),
                    file=sys.stderr,
                )
    documents = sum(len(dataset.corpus) for dataset in sets)
    questions = sum(len(dataset.qrels) for dataset in sets)
    return (folder.name, f"{documents:,}", f"{questions:,}", *(f"{mean(values[system]):.3f}" for system in systems))


def searcher(memory: Memory, options: dict[str, object]):  # noqa: ANN201
    def search(query: Query) -> Answer:
        return memory.search(query.text, limit=query.limit, **options)

    return search


def open_indexed(dataset: Dataset, embedder: str) -> Memory:
    """The set in a store of its own; what is there already is not done again."""
    place = Path(platformdirs.user_cache_dir("recollect")) / "eval" / f"{dataset.name}-{dataset.fingerprint}.db"
    memory = Memory.open(place, embedder=embedder, settings=Settings())
    if memory.status()["records"]["total"] < len(dataset.corpus):
        plain = Memory.open(place, embedder="none", settings=Settings())
        plain.add_many(
            {"id": row["_id"], "text": row["text"] or row["title"] or "-", "title": row["title"]}
            for row in dataset.corpus
        )
        plain.close()
    start = time.time()

    def progress(done: int, total: int) -> None:
        rate = done / max(1e-9, time.time() - start)
        print(f"\r  embedding {dataset.name} {done:,} of {total:,}, {rate:.0f}/s ", end="", file=sys.stderr)

    if memory.embed(progress=progress):
        print(file=sys.stderr)
    return memory


def show(rows: list[tuple[str, ...]]) -> None:
    print(table(rows))


def table(rows: list[tuple[str, ...]]) -> str:
    head, *rest = rows
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rest)])


def write(rows: list[tuple[str, ...]]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    DOCS.write_text(f"{before}{MARKS[0]}\n{table(rows)}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

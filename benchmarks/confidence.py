"""How well confidence tells questions with an answer from those without: `python -m benchmarks.confidence [SET…]`.

Each question is asked twice: of the whole set, and after its relevant records were really forgotten, in a copy of the
store. The score of a question is the best confidence among its results, which is what decides whether the answer is
empty. Besides, questions of another set are asked, to which nothing in the store is an answer.

Reads RECOLLECT_DATA (default ../shared/data). The constants were learnt on the train split of scifact, the dev split
of nfcorpus, and the questions of the other sets whose hash is even; this reports on the test splits of the former and
on the questions of the others whose hash is odd, at most `--most` of each corpus. `--write` puts the table into
docs/confidence.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sqlite3
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.quality import table
from recollect.config import Settings
from recollect.evaluation import Dataset, read_dataset
from recollect.evaluation.recording import open_corpus
from recollect.memory import Memory
from recollect.types import Forget, Put

SETS = (
    "scifact", "longmemeval", "nfcorpus", "locomo", "cranfield", "madial_en", "openclaw_docs", "vespa_rag_blueprint",
    "cosqa_dev", "factconsolidation_6k", "xquad", "factconsolidation_32k",
)  # fmt: skip
TUNING_SPLITS = {"scifact": "train", "nfcorpus": "dev"}
SYSTEMS: dict[str, dict[str, object]] = {"hybrid": {}, "keyword only": {"sources": ["keyword"]}}
HALF = 0.5
UNRELATED = 40
"""Questions of another set that are asked of each corpus."""

HEAD = (
    "set", "questions", *(f"AUC {system}" for system in SYSTEMS), "AUC against unrelated",
    "answered at 0.5", "… when deleted", "… when unrelated",
)  # fmt: skip
DOCS = Path(__file__).parent.parent / "docs" / "confidence.md"
MARKS = ("<!-- confidence:begin -->", "<!-- confidence:end -->")


@dataclass(slots=True)
class Scores:
    """The best confidence of each question, with its answer there, without it, and of questions that do not belong."""

    there: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    unrelated: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--embedder", default="arctic-embed-s")
    parser.add_argument("--most", type=int, default=100)
    parser.add_argument("--tuning", action="store_true", help="report on what the constants were learnt on")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = Path(os.environ.get("RECOLLECT_DATA", "../shared/data"))
    if not data.is_dir():
        sys.exit(f"no development sets at {data}; set RECOLLECT_DATA")
    rows = []
    for name in arguments.sets:
        rows.append(measure_set(data, name, arguments))
        print(f"  {' | '.join(rows[-1])}", file=sys.stderr, flush=True)
    rows.append(averages(rows))
    print(table([HEAD, *rows]))
    if arguments.write:
        write([HEAD, *rows])


def measure_set(data: Path, name: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    found = {system: Scores() for system in SYSTEMS}
    foreign = unrelated(data, name)
    for dataset in read_dataset(data / name, split=TUNING_SPLITS.get(name, "") if arguments.tuning else ""):
        questions = chosen(dataset, name, arguments)
        with tempfile.TemporaryDirectory() as folder, copied(dataset, arguments.embedder, Path(folder)) as memory:
            for system, options in SYSTEMS.items():
                measure(memory, dataset, questions, options, found[system])
                found[system].unrelated += [best(memory, text, options) for text in foreign]
    hybrid = found["hybrid"]
    return (
        name,
        f"{len(hybrid.there):,}",
        *(f"{auc(scores.there, scores.deleted):.3f}" for scores in found.values()),
        f"{auc(hybrid.there, hybrid.unrelated):.3f}",
        *(f"{above(scores):.2f}" for scores in (hybrid.there, hybrid.deleted, hybrid.unrelated)),
    )


def chosen(dataset: Dataset, name: str, arguments: argparse.Namespace) -> list[str]:
    """The questions to report on, in the order of their hashes, which has nothing to do with what they ask."""
    hashes = {key: hashlib.blake2b(key.encode(), digest_size=8).digest() for key in dataset.queries}
    wanted = 0 if arguments.tuning else 1
    kept = [key for key in hashes if name in TUNING_SPLITS or hashes[key][-1] % 2 == wanted]
    return sorted(kept, key=lambda key: hashes[key])[: arguments.most]


def unrelated(data: Path, name: str) -> list[str]:
    """Questions of the set that follows in the list."""
    other = read_dataset(data / SETS[(SETS.index(name) + 1) % len(SETS)])[0]
    return [other.queries[key] for key in sorted(other.queries)[:UNRELATED]]


def copied(dataset: Dataset, embedder: str, folder: Path) -> Memory:
    """A copy of the set's store, in which records can be forgotten."""
    with open_corpus(dataset, settings=Settings(embedder=embedder)) as memory:
        place = memory.store.status()["store"]
    copy = folder / "copy.db"
    # SQLite's own backup: another process may have a part of the file in its log.
    with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return Memory.open(copy, embedder=embedder, settings=Settings())


def measure(
    memory: Memory, dataset: Dataset, questions: Iterable[str], options: dict[str, object], into: Scores
) -> None:
    for key in questions:
        relevant = memory.store.records.get([document for document, grade in dataset.qrels[key].items() if grade > 0])
        if not relevant:
            continue
        into.there.append(best(memory, dataset.queries[key], options))
        memory.store.records.apply([[Forget(record.id) for record in relevant]])
        into.deleted.append(best(memory, dataset.queries[key], options))
        memory.store.records.apply([[Put(record) for record in relevant]])


def best(memory: Memory, text: str, options: dict[str, object]) -> float:
    results = memory.search(text, limit=100, confidence=True, **options).results
    return max((result.confidence or 0.0 for result in results), default=0.0)


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The area under the ROC curve: how often one of the first is above one of the second, ties counting half."""
    ordered = sorted(lower)
    wins = sum((bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in higher)
    return wins / (len(higher) * len(lower))


def above(values: Sequence[float]) -> float:
    return fmean(value >= HALF for value in values)


def averages(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    questions = sum(int(row[1].replace(",", "")) for row in rows)
    means = [fmean(float(row[column]) for row in rows) for column in range(2, len(HEAD))]
    digits = [3] * (len(SYSTEMS) + 1) + [2] * 3
    return ("**mean**", f"{questions:,}", *(f"{value:.{n}f}" for value, n in zip(means, digits, strict=True)))


def write(rows: list[tuple[str, ...]]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    DOCS.write_text(f"{before}{MARKS[0]}\n{table(rows)}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

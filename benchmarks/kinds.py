"""Notes and facts in one store: `python -m benchmarks.kinds [--part tuning]`.

The documents of one set are stored as chunks of files, those of another as facts, and the questions of both are asked.
Reported are nDCG@10 and, of the questions whose first result is right, the share with a result that is likely enough
for `recall`, with each set alone and with the other beside it. Reads RECOLLECT_DATA (default ../shared/data); vectors
come from the stores that `make eval` caches.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.quality import questions, table
from recollect import Memory
from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.recording import open_corpus
from recollect.evaluation.scoring import by_place, evaluate
from recollect.options import LIKELY
from recollect.types import Put

PAIRS = (  # notes and facts; of locomo and xquad, one corpus
    ("vespa_rag_blueprint", "factconsolidation_32k"),
    ("xquad en", "factconsolidation_32k"),
    ("openclaw_docs", "factconsolidation_32k"),
    ("vespa_rag_blueprint", "locomo conv-26"),
    ("openclaw_docs", "locomo conv-42"),
    ("scifact", "locomo conv-42"),
)
MOST = 100  # questions of a set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("held-out", "tuning"), default="held-out")
    part = parser.parse_args().part
    rows = [("questions of", "beside", "questions", "nDCG@10 alone", "beside", "likely alone", "beside ")]
    for pair in PAIRS:
        sets = [corpus(name, part) for name in pair]
        for kind, name, dataset, other in zip(("chunk", "fact"), pair, sets, reversed(pair), strict=True):
            own = {kind: dataset}
            both = dict(zip(("chunk", "fact"), sets, strict=True))
            count, (alone, beside) = len(asked(dataset)), (measured(stored, kind) for stored in (own, both))
            values = zip(alone, beside, strict=True)
            rows.append((name, other, str(count), *(f"{value:.3f}" for each in values for value in each)))
            print(*rows[-1], flush=True)
    print(table(rows))


def corpus(name: str, part: str) -> Dataset:
    name, _, chosen = name.partition(" ")
    return next(one for one in questions(name, part) if chosen in ("", one.name))


def asked(dataset: Dataset) -> list[str]:
    """The first questions that have an answer."""
    return [key for key in dataset.queries if any(grade > 0 for grade in dataset.qrels[key].values())][:MOST]


def measured(stored: dict[str, Dataset], kind: str) -> tuple[float, float]:
    """In a store of these sets, nDCG@10 of the questions of one kind, and the share of right ones that are likely."""
    dataset = stored[kind]
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.db", settings=Settings()) as memory,
    ):
        for of, each in stored.items():
            store(memory, each, of)
        run, likely = {}, list[bool]()
        for key in asked(dataset):
            results = memory.search(dataset.queries[key], limit=10, confidence=True).results
            run[key] = by_place([result.record.id.removeprefix(f"{kind} ") for result in results])
            if results and dataset.qrels[key].get(next(iter(run[key])), 0) > 0:
                likely.append(max(result.confidence or 0.0 for result in results) >= LIKELY)
    qrels = {key: dataset.qrels[key] for key in run}
    return fmean(evaluate(qrels, run, ["nDCG@10"])["nDCG@10"].values()), fmean(likely)


def store(memory: Memory, dataset: Dataset, kind: str) -> None:
    """Store the documents of a set as records of a kind, with their vectors. Each chunk is of a file of its own."""
    ids: Sequence[str] = [row["_id"] for row in dataset.corpus]
    with open_corpus(dataset) as whole:
        records, vectors = whole.store.records.get(ids), whole.embeddings.vectors(ids)
    new = [
        replace(each, id=f"{kind} {each.id}", kind=kind, source=None, path=f"/notes/{each.id}.md", lines=(1, 1))
        if kind == "chunk"
        else replace(each, id=f"{kind} {each.id}", kind=kind, source=None, author_session=None)
        for each in records
    ]
    memory.store.records.apply([[Put(each)] for each in new])
    passages = {one.passage: vectors[before.id] for one, before in zip(new, records, strict=True)}
    memory.embeddings.serving().index.save(list(passages), np.stack(list(passages.values())))


if __name__ == "__main__":
    main()

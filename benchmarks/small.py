"""The right record first, in small collections: `python -m benchmarks.small [SET…] [--part tuning] [--write]`.

Collections of 8, 30, 100 and 300 documents are cut from the development sets: the relevant documents of some questions,
and others drawn at random; asked are the questions all of whose relevant documents are there. Reads RECOLLECT_DATA
(default ../shared/data); vectors come from the stores that `make eval` caches. Reported are held-out questions, at most
`--most` of a set and size, with P@1 as the mean over sets; `--write` puts the table into docs/benchmarks.md. Last, the
sample notes of `recollect demo` are asked their own questions and five former ones, which share no word with an answer.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.quality import questions, table, write
from recollect import Memory
from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.recording import open_corpus, record
from recollect.evaluation.scoring import evaluate
from recollect.evaluation.trials import SYSTEMS
from recollect.sample import NOTES
from recollect.sample import questions as sample_questions

SETS = (
    "scifact", "nfcorpus", "cranfield", "locomo", "longmemeval", "openclaw_docs", "cosqa_dev", "vespa_rag_blueprint",
    "madial_en", "xquad",
)  # fmt: skip
SIZES = (8, 30, 100, 300)
SHOWN = {
    "keyword": SYSTEMS["keyword"],
    "vector": SYSTEMS["vector"],
    "RRF": SYSTEMS["rrf"],
    "default": {},
    "default, vector weight 2": {"vector_weight": 2.0},
}
LANGUAGE = "en"  # of xquad's corpora: the model does not read the others
RELEVANT = 0.6  # the share of a collection that the relevant documents of its questions may fill
FORMER = {
    "Which microscopic animal survives being parched and revives decades later?": ["reading/tardigrades.md"],
    "Which colleague is burnt out and close to quitting?": ["work/one-on-one-mirela.md"],
    "Cramming versus studying in small daily doses": ["reading/spacing-effect.md", "home/piano-practice.md"],
    "How do I behave politely when sweating naked among strangers?": ["home/sauna.md"],
    "Why do delays explode when capacity is nearly used up?": ["reading/queueing.md"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--part", choices=("held-out", "tuning"), default="held-out")
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found: dict[int, dict[str, dict[str, list[float]]]] = {size: {} for size in SIZES}  # size → set → system → P@1
    for name in arguments.sets:
        corpora = [one for one in questions(name, arguments.part) if name != "xquad" or one.name == LANGUAGE]
        for dataset in corpora:
            with open_corpus(dataset) as whole:
                for size in SIZES:
                    into = found[size].setdefault(name, defaultdict(list))
                    for part in collections(dataset, size, arguments.most // len(corpora)):
                        for system, values in measured(whole, part).items():
                            into[system] += values
        print(name, *(f"{size}: {len(found[size][name]['default'])}" for size in SIZES), flush=True)
    rows = [("documents", "sets", "questions", *SHOWN)]
    for size, sets in found.items():
        filled = [systems for systems in sets.values() if systems["default"]]
        if not filled:
            continue
        means = [fmean(fmean(systems[system]) for systems in filled) for system in SHOWN]
        marked = [f"**{mean:.3f}**" if mean == max(means[:-1]) else f"{mean:.3f}" for mean in means]
        rows.append((str(size), str(len(filled)), str(sum(len(one["default"]) for one in filled)), *marked))
    print(table(rows), "", table(sample := sample_rows()), sep="\n")
    if arguments.write:
        write("benchmarks.md", "small", table(rows))
        write("benchmarks.md", "sample", table(sample))


def collections(dataset: Dataset, size: int, most: int) -> Iterator[Dataset]:
    """Small sets of documents, each with its questions; no question is asked twice."""
    draw = random.Random(f"{dataset.name} {size}")
    relevant = {key: {doc for doc, grade in grades.items() if grade > 0} for key, grades in dataset.qrels.items()}
    left = [key for key in dataset.queries if relevant[key]]
    draw.shuffle(left)
    by_id = {row["_id"]: row for row in dataset.corpus}
    asked = 0
    while left and asked < most and size < len(by_id):
        chosen: set[str] = set()
        for key in left:
            if len(chosen | relevant[key]) <= RELEVANT * size:
                chosen |= relevant[key]
        if not chosen:
            return
        others = sorted(by_id.keys() - chosen)
        documents = chosen.union(draw.sample(others, size - len(chosen)))
        keys = [key for key in left if relevant[key] <= documents][: most - asked]
        left = [key for key in left if key not in keys]
        asked += len(keys)
        yield replace(
            dataset,
            corpus=tuple(by_id[key] for key in sorted(documents)),
            queries={key: dataset.queries[key] for key in keys},
            qrels={key: dataset.qrels[key] for key in keys},
        )


def measured(whole: Memory, part: Dataset) -> dict[str, list[float]]:
    """P@1 of each question under every system, in a store of this part alone, with the vectors of the whole."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "memory.db"
        with Memory.open(place, embedder="none", settings=Settings()) as plain:
            plain.add_many(
                {"id": row["_id"], "text": row.get("text") or row.get("title") or "-", "title": row.get("title") or ""}
                for row in part.corpus
            )
        with Memory.open(place, settings=Settings()) as memory:
            ids = [row["_id"] for row in part.corpus]
            vectors, records = whole.embeddings.vectors(ids), memory.store.records.get(ids)
            index = memory.embeddings.serving().index
            index.save([one.passage for one in records], np.stack([vectors[one.id] for one in records]))
            heard = record(memory, part.queries)
            return {
                system: list(evaluate(part.qrels, heard.run(options), ["P@1"])["P@1"].values())
                for system, options in SHOWN.items()
            }


def sample_rows() -> Sequence[tuple[str, ...]]:
    """How many questions to the sample notes are answered right first: those of the demo, and former ones."""
    rows = [("questions to the sample notes", *SHOWN)]
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.db", settings=Settings()) as memory,
    ):
        memory.index(NOTES)
        own = {one.text: one.relevant for one in sample_questions()}
        for label, judged in (("of the demo", own), ("former", FORMER)):
            right = [str(sum(first_is_right(memory, judged, options))) for options in SHOWN.values()]
            rows.append((f"{label}, {len(judged)}", *right))
    return rows


def first_is_right(memory: Memory, judged: Mapping[str, Sequence[str]], options: Mapping[str, object]) -> list[bool]:
    answers = {text: memory.search(text, limit=1, **options).results for text in judged}  # type: ignore[arg-type]
    return [
        bool(found) and (found[0].record.path or "").endswith(tuple(judged[text])) for text, found in answers.items()
    ]


if __name__ == "__main__":
    main()

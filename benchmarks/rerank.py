"""What reranking gains and costs: `python -m benchmarks.rerank [--model NAME] [--sets SET…] [--n 150] [--write]`.

Weight and head are chosen on tuning questions (scifact's train, nfcorpus's dev, elsewhere the questions whose hash is
even), and reported on others (their test splits, the odd ones), at most `--n` of a set. Reads RECOLLECT_DATA (default
../shared/data). What the model says of a question and a passage is kept in `--cache`, so that another weight costs
nothing. `--write` puts the tables into docs/reranking.md.

`--within 150` instead compares no reranking, the small and the large model, each with so many milliseconds, on at most
200 tuning questions of a set: it takes ten minutes, and a busy machine makes it worthless.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import TypeAlias

from benchmarks.quality import table
from recollect.config import SearchOptions, Settings
from recollect.evaluation import Dataset, evaluate, read_dataset
from recollect.evaluation.recording import open_corpus
from recollect.evaluation.scoring import by_place, compare
from recollect.memory import Memory
from recollect.models.rerankers import open_reranker, passage
from recollect.stages import Rerank, RerankScores
from recollect.types import Query, Record

SETS = (
    "scifact", "nfcorpus", "cranfield", "locomo", "longmemeval", "openclaw_docs", "cosqa_dev", "vespa_rag_blueprint",
    "madial_en", "xquad/en", "factconsolidation_6k",
)  # fmt: skip
TUNING_SPLIT = {"scifact": "train", "nfcorpus": "dev"}
MODEL = "minilm-l12-reranker"
MEASURE = "nDCG@10"
HEADS = (10, 20)
HEAD = SearchOptions().rerank_head
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, None)  # None: the rule that follows from the scores
DEEP = 10
"""Results that the measure sees."""

WAYS = ("off", "small-reranker", "minilm-l12-reranker")
LIMITED = 200
"""Tuning questions of a set that are asked with a limit of time."""

DOCS = Path(__file__).parent.parent / "docs" / "reranking.md"


Way: TypeAlias = tuple[int, float | None]
"""How many are reranked, and the model's weight."""


class Kept:
    """What the model said, by question and passage, in a file that only grows."""

    def __init__(self, place: Path, model: str) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.known = dict(map(json.loads, place.read_text().splitlines())) if place.is_file() else {}
        self.model = open_reranker(model)

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        keys = [digest(f"{query}\0{text}") for text in passages]
        new = {key: text for key, text in zip(keys, passages, strict=True) if key not in self.known}
        found = dict(zip(new, self.model.scores(query, list(new.values())), strict=True)) if new else {}
        with self.place.open("a") as file:
            file.writelines(json.dumps(pair) + "\n" for pair in found.items())
        self.known |= found
        return [self.known[key] for key in keys]


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: the rankings of every weight and head that is tried."""

    key: str
    grades: Mapping[str, int]
    rankings: Mapping[Way, Mapping[str, float]]

    @classmethod
    def of(cls, memory: Memory, dataset: Dataset, key: str, kept: Kept, ways: Sequence[Way]) -> Asked:
        """The sources are asked once, and all stages run on what they answered, with what the model said."""
        pipeline, query = memory.prepare(dataset.queries[key], limit=DEEP, rerank=True)
        replies = pipeline.ask(query)
        analyzer = memory.store.keywords.analyzer
        terms, known = analyzer.query(query.text), dict[str, float]()

        def said(_: Query, records: Sequence[Record]) -> RerankScores:
            new = [record for record in records if record.id not in known]
            scores = kept.scores(query.text, [passage(record, terms, analyzer) for record in new])
            known.update(zip((record.id for record in new), scores, strict=True))
            return RerankScores(tuple(known[record.id] for record in records))

        def ranking(head: int, weight: float | None) -> dict[str, float]:
            stages = tuple(
                (name, Rerank(said, head, weight) if name == "rerank" else at) for name, at in pipeline.stages
            )
            answer = replace(pipeline, stages=stages).answer(query, replies, time.perf_counter())
            return by_place(result.record.id for result in answer.results)

        return cls(key, dataset.qrels[key], {way: ranking(*way) for way in ways})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--n", type=int, default=150, help="questions a set that are reported on")
    parser.add_argument("--tuning", type=int, default=40, help="questions a set that are tuned on")
    parser.add_argument("--timed", type=int, default=20, help="questions a set that are timed")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "w" / "rerank")
    parser.add_argument("--within", type=float, metavar="MS", help="compare what models do in this time")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = Path(os.environ.get("RECOLLECT_DATA", "../shared/data"))
    if not data.is_dir():
        sys.exit(f"no development sets at {data}; set RECOLLECT_DATA")
    if arguments.within:
        print(table([("set", "questions", *WAYS), *limited(data, arguments)]))
        return
    kept = Kept(arguments.cache / f"{arguments.model}.jsonl", arguments.model)
    tables = {}
    for name, study in (("tuning", tuned), ("held-out", reported), ("times", timed_sets)):
        tables[name] = study(data, arguments, kept)
        print(table(tables[name]), flush=True)
    if arguments.write:
        write(tables)


def tuned(data: Path, arguments: argparse.Namespace, kept: Kept) -> list[tuple[str, ...]]:
    """The mean over sets for each weight and head, on tuning questions."""
    sets = [
        list(ask_all(data, name, kept, arguments.tuning, tuple(product(HEADS, WEIGHTS)), tuning=True))
        for name in arguments.sets
    ]
    rows = [("weight", *(f"first {head}" for head in HEADS))]
    for weight in WEIGHTS:
        means = [fmean(fmean(ndcg(asked, head, weight).values()) for asked in sets) for head in HEADS]
        rows.append(("by its scores" if weight is None else f"{weight:g}", *(f"{mean:.4f}" for mean in means)))
    return rows


def reported(data: Path, arguments: argparse.Namespace, kept: Kept) -> list[tuple[str, ...]]:
    head = ("set", "questions", "off", "replaced", "blended", "blended − off", "p")
    rows, means, shown = [head], [], (0.0, 1.0, None)
    for name in arguments.sets:
        asked = list(ask_all(data, name, kept, arguments.n, tuple((HEAD, weight) for weight in shown)))
        off, replaced, blended = (ndcg(asked, HEAD, weight) for weight in shown)
        means.append([fmean(values.values()) for values in (off, replaced, blended)])
        against = compare(blended, off)
        gain = against.difference
        rows.append((
            name, f"{len(asked)}", *(f"{mean:.3f}" for mean in means[-1]),
            f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]", f"{against.p:.3f}",
        ))  # fmt: skip
        print("  " + " | ".join(rows[-1]), file=sys.stderr, flush=True)
    off, replaced, blended = (fmean(column) for column in zip(*means, strict=True))
    whole = (f"{off:.3f}", f"{replaced:.3f}", f"{blended:.3f}", f"{blended - off:+.3f}")
    return [*rows, ("**mean**", "", *whole, "")]


def ndcg(asked: Sequence[Asked], head: int, weight: float | None) -> dict[str, float]:
    run = {one.key: one.rankings[head, weight] for one in asked}
    return evaluate({one.key: one.grades for one in asked}, run, [MEASURE])[MEASURE]


def ask_all(
    data: Path, name: str, kept: Kept, most: int, ways: Sequence[Way], *, tuning: bool = False
) -> Iterator[Asked]:
    for dataset, keys in questions(data, name, most, tuning=tuning):
        with open_corpus(dataset) as memory:
            yield from (Asked.of(memory, dataset, key, kept, ways) for key in keys)


def questions(data: Path, name: str, most: int, *, tuning: bool = False) -> Iterator[tuple[Dataset, list[str]]]:
    """Each corpus of a set with its share of the questions, by hash, which has nothing to do with what they ask."""
    sets = read_dataset(data / name, split=TUNING_SPLIT.get(name, "") if tuning else "")
    open_to = [
        (digest(key, size=8), key, dataset)
        for dataset in sets
        for key in dataset.queries
        if name in TUNING_SPLIT or (half(key.removeprefix(dataset.prefix)) == 0) == tuning
    ]
    chosen = sorted(open_to, key=lambda one: one[0])[:most]
    for dataset in sets:
        keys = [key for _, key, of in chosen if of is dataset]
        if keys:
            yield dataset, keys


def timed_sets(data: Path, arguments: argparse.Namespace, _: Kept) -> list[tuple[str, ...]]:
    """Milliseconds a search, median and 95th percentile: without, with, and how long the processors worked for it."""
    head = ("set", "questions", "off, ms p50 / p95", "reranked, ms p50 / p95", "of it processor, ms p50 / p95")
    return [head, *((name, str(arguments.timed), *times(data, name, arguments)) for name in arguments.sets)]


def times(data: Path, name: str, arguments: argparse.Namespace) -> tuple[str, str, str]:
    plain, reranked, worked = [], [], []
    for dataset, keys in questions(data, name, arguments.timed):
        settings = Settings(search=SearchOptions(rerank_model=arguments.model))
        with open_corpus(dataset, settings=settings) as memory:
            memory.search("Is everything loaded?", rerank=True)
            for key in keys:
                plain.append(timed(memory, dataset.queries[key], rerank=False)[0])
                took, work = timed(memory, dataset.queries[key], rerank=True)
                reranked.append(took)
                worked.append(work)
    return spread(plain), spread(reranked), spread(worked)


def limited(data: Path, arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """The measure, and the median time in milliseconds, of every model that has so much time."""
    means = []
    for name in arguments.sets:
        grades: dict[str, Mapping[str, int]] = {}
        runs: dict[str, dict[str, Mapping[str, float]]] = {way: {} for way in WAYS}
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        for dataset, keys in questions(data, name, LIMITED, tuning=True):
            with open_corpus(dataset) as memory:
                for key, way in product((None, *keys), WAYS):  # the first question loads the models
                    model = {} if way == "off" else {"rerank_model": way, "rerank_ms": arguments.within}
                    start = time.perf_counter()
                    text = dataset.queries[key or keys[0]]
                    answer = memory.search(text, limit=DEEP, rerank=way != "off", **model)
                    if key is not None:
                        took[way].append((time.perf_counter() - start) * 1000)
                        grades[key] = dataset.qrels[key]
                        runs[way][key] = by_place(result.record.id for result in answer.results)
        means.append([fmean(evaluate(grades, runs[way], [MEASURE])[MEASURE].values()) for way in WAYS])
        cells = (f"{mean:.3f} ({median(took[way]):.0f} ms)" for way, mean in zip(WAYS, means[-1], strict=True))
        yield name, f"{len(grades)}", *cells
    yield "**mean**", "", *(f"{fmean(column):.3f}" for column in zip(*means, strict=True))


def timed(memory: Memory, text: str, *, rerank: bool) -> tuple[float, float]:
    start, worked = time.perf_counter(), time.process_time()
    memory.search(text, rerank=rerank)
    return (time.perf_counter() - start) * 1000, (time.process_time() - worked) * 1000


def spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "–"
    cuts = quantiles(values, n=20, method="inclusive")
    return f"{cuts[9]:.0f} / {cuts[18]:.0f}"


def half(key: str) -> int:
    return hashlib.blake2b(key.encode(), digest_size=4).digest()[0] % 2


def digest(text: str, size: int = 16) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def write(tables: Mapping[str, list[tuple[str, ...]]]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, rows in tables.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table(rows)}\n{end}{rest.split(end)[1]}"
    DOCS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

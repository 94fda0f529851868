"""Whether confidence is a probability, and when it leads to an empty answer: `python -m benchmarks.confidence [SET…]`.

Three kinds of questions are asked: a set's own; unrelated ones, of other sets and everyday requests to an assistant;
and its own again after their relevant records were forgotten. They are asked of copies of the sets' whole stores, and
the first two of small stores too, which hold 1, 5, 30 or 300 documents of a set. `facts` are small stores of facts of
persons and teams (benchmarks/facts), with questions in the words of a fact and in other words; a language model wrote
them. Queries of one to three words are the rarest words of a question that its answer has. All are held out, as in
benchmarks.quality; `--fit` asks the questions for tuning, computes the constants of `recollect.ranking` from them, and
reports on them. `--fit --rerank MODEL` also says what confidence would be worth if the score of a reranker were part of
its evidence.

Reads RECOLLECT_DATA (default ../shared/data). `--write` puts the tables and the plot into the docs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sqlite3
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality import APART, DOCS, SETS, questions, table, write
from recollect import ranking
from recollect.candidates import BEFORE_SHARE, Fusion
from recollect.config import Settings
from recollect.evaluation.datasets import Dataset
from recollect.evaluation.recording import open_corpus
from recollect.evaluation.scoring import CONFIDENT, calibration_error, reliability
from recollect.memory import Memory
from recollect.models.rerankers import open_reranker, passage
from recollect.options import LIKELY
from recollect.ranking import LOWEST_RANK, Evidence, confidence, join_chances, size_of
from recollect.types import Filter, Forget, Put, Record, Reranker

SYSTEMS: dict[str, dict[str, Any]] = {
    "hybrid": {}, "keyword": {"sources": ["keyword"]}, "vector": {"sources": ["vector"]},
}  # fmt: skip
RERANKED = "hybrid, reranked"  # the first system, with a reranker's scores as further evidence
SIZES = (1, 5, 30, 300)  # documents of the small stores
TYPED = ("1 word", "2 words", "3 words")  # kinds of queries that are words of a question
WHOLE = 0  # stands for the size of a set's whole store
FILES = Path(__file__).with_name("facts")
FACTS = "facts"  # stands for the files of benchmarks/facts
WORDINGS = ("facts, their words", "facts, other words")  # how the two questions about each fact are named in tables
OWN, SMALL, UNRELATED, REMOVED = 80, 20, 50, 30  # questions of each set: its own; of small stores; of the other kinds
OF_OTHERS = 10  # questions of each other set among the unrelated ones: about as many as there are everyday requests
RELEVANT_SHARE = 0.6  # of a small store's documents that may be answers to the questions asked of it
DEPTH = 30  # results of a question among which one may be likely enough
SMALL_SHARE = 0.4  # how much the questions of small stores of one size count beside those of the whole set
COUNTED: dict[tuple[str, ...], tuple[float, float]] = {
    ("keyword",): (1.2, 1.2), ("vector",): (1.2, 5.0), ("keyword", "vector"): (1.2, 14.0),
}  # fmt: skip
"""Sources → how much unrelated questions count beside a set's own in the fit: in whole sets, and in small stores."""
THRESHOLDS = (0.1, 0.12, 0.15, 0.17, 0.18, 0.2, 0.25)


class Found(NamedTuple):
    """One result: what its sources say about it, the number of visible records, and whether it is relevant.

    `before` is what they say about the turn of a conversation that was said before it, and `least` the confidence of a
    record that has all words of a short query.
    """

    evidence: Mapping[str, Evidence]
    visible: int
    relevant: bool
    before: Sequence[tuple[Mapping[str, Evidence], int]] = ()
    least: float = 0.0

    @property
    def confidence(self) -> float:
        chances = (confidence(*one) for one in self.before)
        return join_chances(max(self.least, confidence(self.evidence, self.visible)), chances, BEFORE_SHARE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, of which `kind` and asked of which store, with the first results of one of the SYSTEMS."""

    name: str
    size: int
    kind: str
    system: str
    results: Sequence[Found]

    @property
    def best(self) -> float:
        """The confidence that decides whether the answer is empty."""
        return max((result.confidence for result in self.results), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*SETS, FACTS])
    parser.add_argument("--embedder", default=Settings().embedder)
    parser.add_argument("--fit", action="store_true", help="compute the constants from the questions for tuning")
    parser.add_argument("--rerank", metavar="MODEL", help="with --fit: also try the scores of this reranker")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.rerank and not arguments.fit:
        parser.error("--rerank needs --fit: `recollect.ranking` has no constants for a reranker")
    part = "tuning" if arguments.fit else "held-out"
    ask = partial(ask_set, part=part, embedder=arguments.embedder, reranker=arguments.rerank)
    with ProcessPoolExecutor(2) as pool:
        asked = [one for found in pool.map(ask, arguments.sets) for one in found]
    if arguments.fit:
        ranking.CONSTANTS = fit(asked)
        print(*(f"{sources}: {values}" for sources, values in ranking.CONSTANTS.items()), sep="\n")
        print(table(threshold_rows(asked)), end="\n\n")
    tables = {
        "sets": set_rows(asked), "sizes": size_rows(asked), "sources": system_rows(asked), "words": word_rows(asked),
    }  # fmt: skip
    print(*map(table, tables.values()), sep="\n\n")
    if arguments.write and not arguments.fit:
        for name, rows in tables.items():
            write("confidence.md", name, table(rows))
        draw(asked)


# -- asking ------------------------------------------------------------------------------------------------------------


def ask_set(name: str, part: str, embedder: str, reranker: str | None = None) -> list[Asked]:
    """Ask the questions of every corpus of a set."""
    model = open_reranker(reranker) if reranker else None
    if name == FACTS:
        return list(ask_facts(part, embedder, model))
    corpora, others, asked = questions(name, part), unrelated(name, part), list[Asked]()
    for dataset in corpora:
        label, share = (f"{name} {dataset.name}", 1) if name in APART else (name, len(corpora))
        with tempfile.TemporaryDirectory() as folder, copied(dataset, embedder, Path(folder)) as memory:
            for size, kind, text, answers, store in stores_and_questions(memory, dataset, others, share):
                asked += [Asked(label, size, kind, *found) for found in ask(store, text, answers, model)]
        print(f"  {label} {dataset.name}", file=sys.stderr, flush=True)
    return asked


def ask_facts(part: str, embedder: str, model: Reranker | None) -> Iterator[Asked]:
    """Ask the two questions about each fact, of its store with and without it, and the unrelated ones."""
    data = json.loads((FILES / f"{part}.json").read_text(encoding="utf-8"))
    for store in data["stores"]:
        with (
            tempfile.TemporaryDirectory() as folder,
            Memory.open(Path(folder) / "facts.db", embedder=embedder) as memory,
        ):
            questions_of = {
                memory.add(fact["text"]): list(zip(fact["questions"], WORDINGS, strict=True)) for fact in store["facts"]
            }
            for text in data["prompts"]:
                for found in ask(memory, text, [], model):
                    yield from (Asked(name, WHOLE, "unrelated", *found) for name in WORDINGS)
            for record, pairs in questions_of.items():
                for text, name in pairs:
                    yield from (Asked(name, WHOLE, "own", *found) for found in ask(memory, text, [record.id], model))
                memory.store.records.apply([[Forget(record.id)]])
                for text, name in pairs:
                    yield from (Asked(name, WHOLE, "removed", *found) for found in ask(memory, text, [], model))
                memory.store.records.apply([[Put(record)]])
        print(f"  {FACTS} {store['name']}", file=sys.stderr, flush=True)


def stores_and_questions(
    memory: Memory, dataset: Dataset, others: Sequence[str], share: int
) -> Iterator[tuple[int, str, str, list[str], Memory]]:
    """The size of a store, a question's kind, its text and its answers, and the store to ask, one after the other.

    `share` is the number of corpora that the set's questions are divided among.
    """
    generator, keys, texts = random.Random(dataset.name), in_order(dataset), dataset.queries
    for key in keys[: OWN // share]:
        answers = relevant(dataset, key)
        yield WHOLE, "own", texts[key], answers, memory
        for kind, words in keyword_queries(memory, texts[key], answers[0]):
            yield WHOLE, kind, words, answers, memory
    for text in generator.sample(others, UNRELATED // share):
        yield WHOLE, "unrelated", text, [], memory
    for key in keys[: REMOVED // share]:
        records = memory.store.records.get(relevant(dataset, key))
        memory.store.records.apply([[Forget(record.id) for record in records]])
        yield WHOLE, "removed", texts[key], [], memory
        memory.store.records.apply([[Put(record) for record in records]])
    for size in (size for size in SIZES if size < len(dataset.corpus)):
        for ids, own in cuts(dataset, keys[: SMALL // share], size, generator):
            with tempfile.TemporaryDirectory() as folder, small(memory, ids, Path(folder) / "small.db") as store:
                for key, text in zip(own, generator.sample(others, len(own)), strict=True):
                    yield size, "own", texts[key], relevant(dataset, key), store
                    yield size, "unrelated", text, [], store


def keyword_queries(memory: Memory, text: str, answer: str) -> Iterator[tuple[str, str]]:
    """The rarest word of a question that its answer has, the two and the three rarest, each with its kind."""
    keywords, (record,) = memory.store.keywords, memory.store.records.get([answer])
    having = {token.term for token in keywords.analyzer.tokens(record.passage)}
    tokens = [token for token in keywords.analyzer.tokens(text) if not token.stop and token.term in having]
    written = {token.term: text[token.start : token.end] for token in tokens}
    counts = keywords.known(list(written), Filter())
    rarest = sorted(counts, key=lambda term: (counts[term], term))
    for kind, number in zip(TYPED, range(1, len(rarest) + 1), strict=False):
        yield kind, " ".join(word for term, word in written.items() if term in rarest[:number])


def ask(
    memory: Memory, text: str, answers: Sequence[str], reranker: Reranker | None
) -> Iterator[tuple[str, list[Found]]]:
    """Ask every source once, and rank as each system does. A reranker scores the first results of the first system."""
    pipeline, query = memory.prepare(text, confidence=True)
    lists = [ranked for ranked in pipeline.ask(query) if ranked.error is None]
    for system, options in SYSTEMS.items():
        pipeline, query = memory.prepare(text, confidence=True, limit=DEPTH, **options)
        names = {source.name for source in pipeline.sources}
        fusion = Fusion(query, [ranked for ranked in lists if ranked.source in names])
        candidates = fusion.candidates
        with pipeline.reading():
            for _, stage in pipeline.stages:
                candidates = list(stage(query, candidates))
            judge = fusion.judgment
            judged = [(one, evidence) for one in candidates if (evidence := judge.evidence(one.key))]
            results = [
                Found(
                    *evidence,
                    one.record.id in answers,
                    tuple(filter(None, map(judge.evidence, judge.before.get(one.key, ())))),
                    judge.least(one.key),
                )
                for one, evidence in judged
            ]
            yield system, results
            if reranker and system == "hybrid":
                records = [one.record for one, _ in judged[:CONFIDENT]]
                yield RERANKED, [*scored(memory, text, results, records, reranker), *results[CONFIDENT:]]


def scored(
    memory: Memory, text: str, results: Sequence[Found], records: Sequence[Record], reranker: Reranker
) -> Iterator[Found]:
    """The first results with what a reranker says about their records: its logit, which has no rank."""
    analyzer = memory.store.keywords.analyzer
    terms = analyzer.query(text)
    logits = reranker.scores(text, [passage(record, terms, analyzer) for record in records])
    for result, logit in zip(results, logits, strict=False):
        yield result._replace(evidence={**result.evidence, "rerank": Evidence(logit, 1)})


def in_order(dataset: Dataset) -> list[str]:
    """The questions that have an answer, in the order of their hashes, which has nothing to do with what they ask."""
    keys = [key for key in dataset.queries if relevant(dataset, key)]
    return sorted(keys, key=lambda key: hashlib.blake2b(key.encode(), digest_size=8).digest())


def relevant(dataset: Dataset, key: str) -> list[str]:
    return sorted(document for document, grade in dataset.qrels[key].items() if grade > 0)


def unrelated(name: str, part: str) -> list[str]:
    """Questions in English of the sets of other families, the same number of each; and everyday requests."""
    others = [other for other in SETS if not other.startswith(name.split("_", maxsplit=1)[0])]
    first = [next(one for one in questions(other, part) if other != "xquad" or one.name == "en") for other in others]
    requests = json.loads((FILES / f"{part}.json").read_text(encoding="utf-8"))["prompts"]
    return [*(one.queries[key] for one in first for key in in_order(one)[:OF_OTHERS]), *requests]


def copied(dataset: Dataset, embedder: str, folder: Path) -> Memory:
    """A copy of the set's store, in which records can be forgotten."""
    with open_corpus(dataset, settings=Settings(embedder=embedder)) as memory:
        place = memory.store.status()["store"]
    copy = folder / "copy.db"
    # SQLite's own backup: another process may have a part of the file in its log.
    with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return Memory.open(copy, embedder=embedder, settings=Settings())


def cuts(
    dataset: Dataset, keys: Sequence[str], size: int, generator: random.Random
) -> Iterator[tuple[list[str], list[str]]]:
    """Small stores: answers of some questions filled up with other documents, and these questions."""
    room, waiting = max(1, int(RELEVANT_SHARE * size)), list(keys)
    documents = sorted(row["_id"] for row in dataset.corpus)
    while waiting:
        inside, own = set[str](), list[str]()
        while waiting and len(more := inside.union(relevant(dataset, waiting[0])[:room])) <= room:
            inside = more
            own.append(waiting.pop(0))
        others = (one for one in generator.sample(documents, len(documents)) if one not in inside)
        yield [*sorted(inside), *islice(others, size - len(inside))], own


def small(memory: Memory, ids: Sequence[str], place: Path) -> Memory:
    """A new store with some records of another and their vectors."""
    records, vectors = memory.store.records.get(ids), memory.embeddings.vectors(ids)
    serving = memory.embeddings.serving()
    store = Memory.open(place, embedder=serving.embedder, settings=Settings())
    store.store.records.apply([[Put(record) for record in records]])
    passages = {record.passage: vectors[record.id] for record in records}
    store.embeddings.serving().index.save(list(passages), np.stack(list(passages.values())))
    return store


# -- the constants -----------------------------------------------------------------------------------------------------


def fit(asked: Sequence[Asked]) -> dict[tuple[str, ...], tuple[float, float, tuple[tuple[float, ...], ...]]]:
    """The constants by logistic regression. Every set counts as much as any other, and first results as later ones."""
    constants = {}
    for sources, unrelated_counts in COUNTED.items():
        alone = len(sources) == 1
        for judges, system in ((sources, sources[0] if alone else "hybrid"), ((*sources, "rerank"), RERANKED)):
            groups: dict[tuple[str, str, int, str, bool], list[Found]] = defaultdict(list)
            for one in asked:
                for place, found in enumerate(one.results[:CONFIDENT]):
                    own = one.system == system and set(found.evidence) == set(judges)
                    if (own or (judges == ("vector",) and is_wordless(one, found))) and one.kind in (
                        "own",
                        "unrelated",
                    ):
                        only = found._replace(evidence={source: found.evidence[source] for source in judges})
                        groups[one.system, one.name, one.size, one.kind, place > 0].append(only)
            if groups:
                constants[tuple(sorted(judges))] = regression(groups, *unrelated_counts)
    return constants


def is_wordless(one: Asked, found: Found) -> bool:
    """Whether a result of both sources has none of the words of the question."""
    return one.system == "hybrid" and len(found.evidence) > 1 and found.evidence["keyword"].strength == 0


def regression(
    groups: Mapping[tuple[str, str, int, str, bool], Sequence[Found]], whole: float, small: float
) -> tuple[float, float, tuple[tuple[float, ...], ...]]:
    """The constants that fit these results; `whole` and `small` say how much unrelated questions count."""
    counts = {
        key: (SMALL_SHARE if size else 1.0) * ((small if size else whole) if kind == "unrelated" else 1.0)
        for key in groups
        for _, _, size, kind, _ in [key]
    }
    rows = [(found, counts[key] / len(group)) for key, group in groups.items() for found in group]
    weights = logistic(
        np.array([features(found) for found, _ in rows]),
        np.array([found.relevant for found, _ in rows], dtype=np.float64),
        np.array([weight for _, weight in rows]),
    )
    first, by_size, *others = (round(float(weight), 2) for weight in weights)
    return first, by_size, tuple(zip(*[iter(others)] * 3, strict=True))


def features(found: Found) -> list[float]:
    """The numbers that `ranking.confidence` weighs, in the order of its constants."""
    size, row = size_of(found.visible), list[float]()
    for source in sorted(found.evidence):
        strength, rank = found.evidence[source]
        row += [strength, strength * size, np.log(min(rank, LOWEST_RANK))]
    return [1.0, size, *row]


def logistic(rows: Any, hits: Any, weights: Any, steps: int = 30) -> Any:
    """Weighted logistic regression by Newton's method."""
    found, ridge = np.zeros(rows.shape[1]), 1e-6 * weights.sum() * np.eye(rows.shape[1])
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-rows @ found))
        slope = rows.T @ (weights * (hits - p)) - ridge @ found
        found = found + np.linalg.solve((rows * (weights * p * (1 - p))[:, None]).T @ rows + ridge, slope)
    return found


# -- the report --------------------------------------------------------------------------------------------------------

HEAD = (
    "questions", "calibration error", "right first results kept", "unrelated questions unanswered",
    "AUC against removed", "AUC against unrelated",
)  # fmt: skip


def figures(asked: Sequence[Asked], least: float = LIKELY) -> tuple[str, ...]:
    """The cells of the HEAD for these questions."""
    kinds: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        kinds[one.kind].append(one)
    own, best = kinds["own"], {kind: [one.best for one in group] for kind, group in kinds.items()}
    results = [result for one in own for result in one.results[:CONFIDENT]]
    error = calibration_error([one.confidence for one in results], [one.relevant for one in results])
    right = [one.results[0] for one in own if one.results and one.results[0].relevant]
    return (
        f"{len(own):,}", f"{error:.3f}", f"{fmean(one.confidence >= least for one in right):.3f}",
        f"{fmean(value < least for value in best['unrelated']):.3f}",
        *(f"{auc(best['own'], best[kind]):.3f}" if kind in best else "–" for kind in ("removed", "unrelated")),
    )  # fmt: skip


def of(asked: Sequence[Asked], system: str = "hybrid", size: int | None = WHOLE, name: str = "") -> list[Asked]:
    """The questions of one system, of stores of one size (or None), and of one set."""
    return [one for one in asked if one.system == system and size in (None, one.size) and name in ("", one.name)]


def set_rows(asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    names = dict.fromkeys(one.name for one in asked)
    rows = [(name, *figures(of(asked, name=name))) for name in names]
    public = [one for one in of(asked) if one.name not in WORDINGS]
    return [("set", *HEAD), *rows, ("**the sets**", *figures(public)), ("**with the facts**", *figures(of(asked)))]


def size_rows(asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    head = ("records in the store", *HEAD[:-2])
    rows = [(f"{size}", *figures(of(asked, size=size))[:-2]) for size in SIZES]
    return [head, *rows, ("whole sets", *figures(of(asked))[:-2])]


def system_rows(asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    systems = dict.fromkeys(one.system for one in asked)
    return [("sources", *HEAD), *((system, *figures(of(asked, system))) for system in systems)]


def word_rows(asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    """Queries of one, two and three words, with and without the rule for records that have all of them."""
    rows = []
    for kind in TYPED:
        right = [one.results[0] for one in of(asked) if one.kind == kind and one.results and one.results[0].relevant]
        number = sum(one.kind == kind for one in of(asked))
        kept = [fmean(result.confidence >= LIKELY for result in right)]
        kept.append(fmean(result._replace(least=0.0).confidence >= LIKELY for result in right))
        rows.append((kind, f"{number:,}", f"{len(right) / number:.3f}", *(f"{share:.3f}" for share in kept)))
    return [("query", "queries", "right first", "of these likely", "without the rule"), *rows]


def threshold_rows(asked: Sequence[Asked]) -> list[tuple[str, ...]]:
    """Right first results kept and unrelated questions unanswered, for each threshold and size."""
    sizes = [size for size in (*SIZES, WHOLE) if of(asked, size=size)]
    rows = [
        (f"{least:g}", *(" / ".join(figures(of(asked, size=size), least)[2:4]) for size in sizes))
        for least in THRESHOLDS
    ]
    return [("threshold", *(f"{size or 'whole'}" for size in sizes)), *rows]


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """The area under the ROC curve: how often one of the first is above one of the second, ties counting half."""
    ordered = sorted(lower)
    wins = sum((bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in higher)
    return wins / (len(higher) * len(lower))


def draw(asked: Sequence[Asked]) -> None:
    """The share of relevant results over confidence: of all whole sets, and of small stores of each size."""
    from matplotlib.figure import Figure

    from recollect.evaluation import plots

    with plots.drawing():
        figure = Figure(figsize=(plots.WIDTH / 72, plots.WIDTH / 72), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=plots.LIGHT["rule"], linewidth=1)
        for colour, size in zip(plots.SERIES, (WHOLE, *SIZES), strict=False):
            own = [one for one in of(asked, size=size) if one.kind == "own"]
            results = [result for one in own for result in one.results[:CONFIDENT]]
            bins = reliability([one.confidence for one in results], [one.relevant for one in results])
            points = [(mean, share) for mean, share, count in bins if count >= 2 * CONFIDENT]
            name = f"{size} records" if size > 1 else "1 record" if size else "whole sets"
            axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=5, linewidth=2, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share of relevant results")
        axes.grid()
        axes.legend(loc="upper left")
        plots.write(figure, DOCS / "confidence.svg", "First ten results of held-out questions; bins of 20 or more")


if __name__ == "__main__":
    main()

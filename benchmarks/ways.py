"""Ways of fusing, tried on the tuning questions: `python -m benchmarks.ways [--write]`.

The default was chosen here and nowhere else. Each way is a row, the failed ones too; those that are not in the package
are written out below. At most 150 questions a corpus; nDCG@10, mean over sets (the corpora of xquad count one by one).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import mean, pstdev
from typing import Any

from benchmarks.quality import APART, SETS, questions, table, write
from recollect.evaluation.recording import Recording, open_corpus, record
from recollect.evaluation.scoring import by_place, evaluate

MOST_QUESTIONS = 150
Scored = Sequence[tuple[str, float]]
"""One source's list: (id, score), best first."""

OPTIONS: dict[str, dict[str, Any]] = {
    "keyword alone": {"sources": ["keyword"]},
    "vector alone": {"sources": ["vector"]},
    **{f"RRF, k = {k}": {"fusion": "rrf", "rrf_k": float(k)} for k in (1, 10, 20, 60, 100)},
    "RRF, k = 60, fetch_k 20": {"fusion": "rrf", "fetch_k": 20},
    "Borda": {"fusion": "borda"},
    "CombMNZ, min-max": {"fusion": "combmnz", "normalisation": "minmax"},
    **{
        f"weighted, {how}, {w:g} / {1 - w:.1g}": {
            "fusion": "weighted", "normalisation": how, "vector_weight": w, "text_weight": round(1 - w, 2),
        }
        for how, w in (("none", 0.7), ("none", 0.5), ("minmax", 0.7), ("minmax", 0.5), ("minmax", 0.3), ("zscore", 0.5),
                       ("dbsf", 0.5))
    },
    **{
        f"blend, {w:g} / {1 - w:.1g}": {"fusion": "blend", "vector_weight": w, "text_weight": round(1 - w, 2)}
        for w in (0.4, 0.6)
    },
    **{f"blend, fetch_k {depth}": {"fusion": "blend", "fetch_k": depth} for depth in (20, 50, 200)},
    "blend (the default)": {"fusion": "blend"},
}  # fmt: skip


def z_linear(words: Scored, meaning: Scored) -> dict[str, float]:
    """z-scores as they are; an absent document has the lowest of its list."""
    return _sum(_z(words), _z(meaning))


def theoretical(words: Scored, meaning: Scored) -> dict[str, float]:
    """Bruch et al.'s convex combination: from the least possible to the most found, 0.8 for meaning."""
    top = words[0][1] if words else 1.0
    best = meaning[0][1] if meaning else 1.0
    by_words = {key: 0.2 * score / top for key, score in words}
    return _sum((by_words, 0.0), ({key: 0.8 * (score + 1) / (best + 1) for key, score in meaning}, 0.0))


def by_top(words: Scored, meaning: Scored) -> dict[str, float]:
    """Each score over the best of its list."""
    return _sum(_over_top(words), _over_top(meaning))


WRITTEN_OUT: dict[str, Callable[[Scored, Scored], dict[str, float]]] = {
    "z-scores, linear, 0.5 / 0.5": z_linear,
    "theoretical min-max, 0.8 / 0.2": theoretical,
    "over the top score, 0.5 / 0.5": by_top,
}


def _z(scored: Scored) -> tuple[dict[str, float], float]:
    values = [score for _, score in scored]
    spread = pstdev(values) if len(values) > 1 else 0.0
    found = {key: (score - mean(values)) / spread if spread else 0.0 for key, score in scored}
    return found, min(found.values(), default=0.0)


def _over_top(scored: Scored) -> tuple[dict[str, float], float]:
    return {key: score / scored[0][1] for key, score in scored}, 0.0


def _sum(one: tuple[dict[str, float], float], two: tuple[dict[str, float], float]) -> dict[str, float]:
    return {key: one[0].get(key, one[1]) + two[0].get(key, two[1]) for key in dict.fromkeys([*one[0], *two[0]])}


def measure(name: str) -> dict[str, dict[str, float]]:
    """Set (or corpus) → way → mean nDCG@10."""
    found: dict[str, dict[str, list[float]]] = {}
    for dataset in questions(name, "tuning"):
        into = found.setdefault(f"{name} {dataset.name}" if name in APART else name, {})
        texts = dict(list(dataset.queries.items())[:MOST_QUESTIONS])
        qrels = {key: dataset.qrels[key] for key in texts}
        with open_corpus(dataset) as memory:
            heard = record(memory, texts)
            for way, options in OPTIONS.items():
                _add(into, way, qrels, heard.run(options, limit=10))
            for way, fuse in WRITTEN_OUT.items():
                _add(into, way, qrels, {key: _ranked(heard, key, fuse) for key in texts})
        print(f"  {name} {dataset.name}", file=sys.stderr)
    return {row: {way: mean(values) for way, values in ways.items()} for row, ways in found.items()}


def _add(into: dict[str, list[float]], way: str, qrels: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    into.setdefault(way, []).extend(evaluate(qrels, run, ["nDCG@10"])["nDCG@10"].values())


def _ranked(heard: Recording, key: str, fuse: Callable[[Scored, Scored], dict[str, float]]) -> Mapping[str, float]:
    lists = {
        reply.source: [(hit.record.id, hit.score or 0.0) for hit in reply.entries[:100]] for reply in heard.replies[key]
    }
    scores = fuse(lists.get("keyword", []), lists.get("vector", []))
    return by_place(sorted(scores, key=lambda one: -scores[one])[:10])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    start = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        rows = {row: ways for found in pool.map(measure, arguments.sets) for row, ways in found.items()}
    ways = sorted(next(iter(rows.values())), key=lambda way: -mean(of[way] for of in rows.values()))
    names = {name: _short(name) for name in rows}
    shown = [("way", "mean", *names.values())]
    shown += [(way, f"{mean(of[way] for of in rows.values()):.3f}", *(f"{of[way]:.3f}" for of in rows.values()))
              for way in ways]  # fmt: skip
    print(table(shown), f"\ntook {(time.monotonic() - start) / 60:.1f} minutes")
    if arguments.write:
        write("benchmarks.md", "ways", table(shown))


def _short(name: str) -> str:
    return name.replace("factconsolidation", "facts").replace("_rag_blueprint", "").replace("openclaw_docs", "openclaw")


if __name__ == "__main__":
    main()

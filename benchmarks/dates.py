"""How much a date in a question should favour records of that time: `python -m benchmarks.dates [--embedder NAME]`.

Reads the conversations of locomo (RECOLLECT_DATA, default ../shared/data), whose turns have times, and asks questions
that name one ("in January 2023") on the day after each conversation. The factor is chosen on tuning questions.
"""

import argparse
import math
import tempfile
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean

from benchmarks.quality import questions
from recollect import Memory, stages
from recollect.config import Settings
from recollect.dates import find_period
from recollect.evaluation.datasets import Dataset

WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)


def main() -> None:
    """Print nDCG@10 for each weight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", default="arctic-embed-s")
    parser.add_argument("--stores", type=Path, help="a folder in which the stores stay for the next run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in ("tuning", "held-out"):
            scores: dict[float, list[float]] = defaultdict(list)
            for dataset in questions("locomo", part):
                place = (arguments.stores or Path(folder)) / f"locomo-{arguments.embedder}-{dataset.name}.db"
                with Memory.open(place, embedder=arguments.embedder, settings=Settings()) as memory:
                    measure(memory, dataset, scores)
            figures = "  ".join(f"{weight:g}: {mean(values):.3f}" for weight, values in scores.items())
            print(f"{part}, {len(scores[0.0])} questions with a date: {figures}")


def measure(memory: Memory, dataset: Dataset, scores: dict[float, list[float]]) -> None:
    """Add the value of each question of a conversation that names a time, for each weight."""
    times = {turn["_id"]: time_of(turn["metadata"]["date_time"]) for turn in dataset.corpus}
    if not memory.list(limit=1):
        memory.add_many(
            {"id": turn["_id"], "text": turn["text"], "happened_at": times[turn["_id"]]} for turn in dataset.corpus
        )
    asked_at = max(times.values()) + timedelta(days=1)
    for key, text in dataset.queries.items():
        if period := find_period(text, asked_at):
            pipeline, query = memory.prepare(text, prefer_newer=False)
            query = replace(query, period=period)
            for weight in WEIGHTS:
                stages.TIME_WEIGHT = weight
                found = [result.record.id for result in pipeline(query).results]
                scores[weight].append(ndcg(found, {key for key, grade in dataset.qrels[key].items() if grade}))


def time_of(text: str) -> datetime:
    """A time such as `1:56 pm on 8 May, 2023`."""
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def ndcg(ids: list[str], relevant: set[str]) -> float:
    """NDCG@10 with equal grades."""
    gains = [1 / math.log2(rank + 1) for rank in range(1, 11)]
    found = sum(gain for gain, key in zip(gains, ids, strict=False) if key in relevant)
    return found / sum(gains[: len(relevant)])


if __name__ == "__main__":
    main()

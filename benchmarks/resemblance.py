"""Facts that contradict earlier ones: `python -m benchmarks.resemblance`.

Facts of factconsolidation (generated from templates, so that subject and relation can be read off) are added one after
another, each compared with its nearest earlier facts; so are turns of LoCoMo, where every note is counted as an alarm.
The thresholds of `recollect.ranking.same_subject` were chosen on the first part. Reads RECOLLECT_DATA
(default ../shared/data).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recollect.config import Settings
from recollect.memory.closeness import KNOWN
from recollect.memory.resemblance import NEAREST
from recollect.models.catalogue import DEFAULT
from recollect.models.embedders import open_embedder
from recollect.ranking import same_subject

BATCH = 32
PARTS = {
    "tuning": (["factconsolidation_6k"], ["locomo/conv-26", "locomo/conv-30"]),
    "held out": (["factconsolidation_32k"], ["locomo/conv-41", "locomo/conv-42", "locomo/conv-43"]),
}
RELATIONS = (
    "is a citizen of", "is affiliated with the religion of", "is married to", "was founded by",
    "is located in the city of", "is associated with the sport of", "was created by", "is located in the continent of",
    "was performed by", "was educated is", "died in the city of", "speaks the language of", "was developed by",
    "was born in the city of", "is employed by", "is famous for", "was created in the country of",
    "worked in the city of", "child is", "was founded in the city of", "was written in the language of",
    "plays the position of", "works in the field of", "was written by", "is",
)  # fmt: skip


def texts(name: str) -> list[str]:
    """The texts of a set; turns without the name of the speaker."""
    file = Path(os.environ.get("RECOLLECT_DATA", "../shared/data")) / name / "corpus.jsonl"
    lines = [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]
    return [line.partition(": ")[2] for line in lines] if name.startswith("locomo") else lines


def about(text: str) -> str:
    """The subject and the relation of a fact."""
    relation = next((f" {one} " for one in RELATIONS if f" {one} " in text), "")
    return text.rpartition(relation)[0] + relation if relation else text


def noted(facts: Sequence[str]) -> list[str | None]:
    """For each fact the earlier one that `add` would name."""
    embedder, closeness = open_embedder(DEFAULT, settings=Settings()), KNOWN[DEFAULT]
    starts = range(0, len(facts), BATCH)
    vectors = np.concatenate([np.asarray(embedder.passages(facts[start : start + BATCH])) for start in starts])
    found: list[str | None] = []
    for place, fact in enumerate(facts):
        cosines = vectors[:place] @ vectors[place]
        nearest = [(facts[at], float(cosines[at])) for at in np.argsort(-cosines)[: NEAREST - 1]]
        alike = (old for old, cosine in nearest if same_subject(old, fact, closeness.strength(cosine)))
        found.append(next(alike, None))
    return found


def main() -> None:
    seen: set[str] = set()
    for part, (contradicting, unrelated) in PARTS.items():
        for name in contradicting:
            facts = [fact for fact in dict.fromkeys(texts(name)) if fact not in seen]
            seen |= set(facts)
            right = wrong = missed = 0
            for place, (fact, old) in enumerate(zip(facts, noted(facts), strict=True)):
                right += old is not None and about(old) == about(fact)
                wrong += old is not None and about(old) != about(fact)
                earlier = {about(other) for other in facts[:place]}
                missed += about(fact) in earlier and (old is None or about(old) != about(fact))
            precision, recall = right / (right + wrong), right / (right + missed)
            print(f"{part}: {name}, {len(facts):,} facts, {right + missed:,} contradict an earlier one")
            print(f"    precision {precision:.3f} ({wrong} wrong), recall {recall:.3f} ({missed} missed)")
        for name in unrelated:
            turns = list(dict.fromkeys(texts(name)))
            print(f"{part}: {name}, {len(turns):,} turns, {sum(map(bool, noted(turns)))} notes")


if __name__ == "__main__":
    main()

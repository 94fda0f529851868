"""Which of the questions that could be asked are taken: of every kind alike, of every target as few as can be."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from recollect.evaluation.questions.making import KINDS, Question

SPLITS = ("test", "dev")


def choose(questions: Sequence[Question], count: int, seed: int) -> list[Question]:
    """At most `count` questions; the same store, count and seed give the same ones."""
    kinds = {kind: in_turns([one for one in questions if one.kind == kind], seed) for kind in KINDS}
    shares = _shares({kind: len(group) for kind, group in kinds.items()}, count)
    return in_order(question for kind, group in kinds.items() for question in group[: shares[kind]])


def in_turns(questions: Iterable[Question], seed: int) -> list[Question]:
    """Shuffled by the seed, one of each target before a second of any."""
    shuffled = sorted(questions, key=lambda question: shuffle(question.id, seed))
    turns: Counter[str] = Counter()
    placed: list[tuple[int, Question]] = []
    for question in shuffled:
        placed.append((turns[question.target], question))
        turns[question.target] += 1
    return [question for _, question in sorted(placed, key=lambda pair: pair[0])]


def in_order(questions: Iterable[Question]) -> list[Question]:
    """As a person reads them: by kind, then by file and line."""
    return sorted(questions, key=lambda one: (KINDS.index(one.kind), one.target, one.lines or (0, 0), one.id))


def shuffle(name: str, seed: int) -> bytes:
    """Where something comes when its like is shuffled; it does not depend on what else there is."""
    return hashlib.blake2b(f"{seed}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def split_of(question: str) -> str:
    """The side a question is on, from its id alone: it never changes sides, whatever is added or taken away."""
    return SPLITS[hashlib.blake2b(question.encode(), digest_size=1).digest()[0] % 2]


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each: as many of all, and what one kind does not have goes to the others."""
    shares: dict[str, int] = {}
    for done, kind in enumerate(sorted(sizes, key=lambda kind: sizes[kind])):
        shares[kind] = min(sizes[kind], (count - sum(shares.values())) // (len(sizes) - done))
    return shares

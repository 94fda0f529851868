"""Which sources find the relevant records, and whether that makes them worth fusing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recollect.evaluation.overlap import percent
from recollect.evaluation.recording import Recording
from recollect.pipeline import Reply

LITTLE_SHARED = 0.60
MUCH_SHARED = 0.70
WORTH = 0.15
"""Fusing is advised where less than the first is shared and the union gains this much, and not above the second."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Finding:
    """Two sources over all pairs of a question and a record relevant to it: who has it in the top `depth`."""

    a: str
    b: str
    depth: int
    questions: int
    both: int
    only_a: int
    only_b: int
    neither: int

    @property
    def relevant(self) -> int:
        """How many pairs there are."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def recall_a(self) -> float:
        """The part of them that the first source finds."""
        return self._part(self.both + self.only_a)

    @property
    def recall_b(self) -> float:
        """The part of them that the second source finds."""
        return self._part(self.both + self.only_b)

    @property
    def union(self) -> float:
        """The part that either finds: no fusion of the two can find more."""
        return self._part(self.relevant - self.neither)

    @property
    def gain(self) -> float:
        """By how much the union is above the better source."""
        return self.union - max(self.recall_a, self.recall_b)

    @property
    def overlap(self) -> float:
        """Of what either finds, the part that both find."""
        found = self.relevant - self.neither
        return self.both / found if found else 0.0

    def _part(self, count: int) -> float:
        return count / self.relevant if self.relevant else 0.0

    def as_dict(self) -> dict[str, object]:
        """The counts, what follows from them, and the advice."""
        word, why = advice(self)
        counts = {name: getattr(self, name) for name in ("a", "b", "depth", "questions", "relevant")}
        counts |= {name: getattr(self, name) for name in ("both", "only_a", "only_b", "neither")}
        shares = {name: getattr(self, name) for name in ("recall_a", "recall_b", "union", "gain", "overlap")}
        return {**counts, **shares, "advice": word, "why": why}


def findings(recording: Recording, qrels: Mapping[str, Mapping[str, int]], *, depth: int) -> list[Finding]:
    """Every pair of sources that answered."""
    names = answering(recording)
    found = [row for key in recording.texts for row in _found(recording.replies[key], qrels.get(key, {}), depth)]
    asked = sum(any(grade > 0 for grade in qrels.get(key, {}).values()) for key in recording.texts)
    return [_counted(a, b, depth, asked, found) for a, b in itertools.combinations(names, 2)]


def pooled(several: Sequence[Finding]) -> Finding:
    """The same two sources over several corpora."""
    first = several[0]
    sums = (sum(getattr(one, name) for one in several) for name in ("questions", "both", "only_a", "only_b", "neither"))
    return Finding(first.a, first.b, first.depth, *sums)


def answering(recording: Recording) -> list[str]:
    """The sources that answered a question at least, in their order."""
    replies = itertools.chain.from_iterable(recording.replies.values())
    return list(dict.fromkeys(reply.source.name for reply in replies if reply.error is None))


def advice(finding: Finding) -> tuple[str, str]:
    """`fuse`, `gains little` or `undecided`, and the figures behind it."""
    if not finding.relevant - finding.neither:
        return "undecided", f"neither {finding.a} nor {finding.b} finds a relevant record"
    gains = finding.gain >= WORTH - ROUNDING
    if finding.overlap > MUCH_SHARED:
        word, relation = "gains little", f"more than {percent(MUCH_SHARED)}"
    elif finding.overlap < LITTLE_SHARED:
        word, relation = "fuse" if gains else "undecided", f"less than {percent(LITTLE_SHARED)}"
    else:
        word, relation = "undecided", f"between {percent(LITTLE_SHARED)} and {percent(MUCH_SHARED)}"
    return word, f"{_shared(finding)}, {relation}; {_reach(finding, gains)}"


def _shared(finding: Finding) -> str:
    return f"of the relevant records that either finds, both find {100 * finding.overlap:.1f} %"


def _reach(finding: Finding, gains: bool) -> str:
    best = finding.a if finding.recall_a >= finding.recall_b else finding.b
    points = f"{100 * finding.gain:.1f} points above {best} alone"
    worth = "" if gains else f" and less than {100 * WORTH:.0f}"
    return f"together they reach {100 * finding.union:.1f} %, {points}{worth}"


def _found(replies: Sequence[Reply], judged: Mapping[str, int], depth: int) -> Iterator[frozenset[str]]:
    """For each relevant record or file the sources that have it, or a record of the same text, in their list."""
    hits = {reply.source.name: reply.found.hits[:depth] for reply in replies if reply.error is None}
    texts: dict[str | None, set[bytes]] = {}
    for hit in itertools.chain.from_iterable(hits.values()):
        for name in {hit.record.id, hit.record.path}:
            texts.setdefault(name, set()).add(hit.fold)
    for document in (key for key, grade in judged.items() if grade > 0):
        same = texts.get(document, set())
        yield frozenset(name for name, listed in hits.items() if any(hit.fold in same for hit in listed))


def _counted(a: str, b: str, depth: int, questions: int, found: Sequence[frozenset[str]]) -> Finding:
    both = sum(a in names and b in names for names in found)
    only_a = sum(a in names and b not in names for names in found)
    only_b = sum(b in names and a not in names for names in found)
    return Finding(a, b, depth, questions, both, only_a, only_b, len(found) - both - only_a - only_b)

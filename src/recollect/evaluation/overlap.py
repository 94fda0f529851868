"""How far sources find the same, and what that means for fusing them.

`share` is what both lists hold over the length of the longer one: with two full lists the part of their top `depth`
that they share. `rbo` is rank-biased overlap, extrapolated (Webber, Moffat and Zobel, 2010): likeness of order, in
which the top counts most. Both are 0 for lists with nothing in common and 1 for equal ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

from recollect.errors import SearchFailed
from recollect.evaluation.recording import Judged, Part, Recording
from recollect.ranking import fold
from recollect.types import RankedList, Record

PERSISTENCE = 0.9
"""RBO's p: with 0.9 the first ten places carry 86 % of the weight."""

MUCH = 0.7
LITTLE = 0.05


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two sources compared: numbers of one question, or means over `queries` in which one of them found something.

    `depth` is the length of the longest list seen.
    """

    a: str
    b: str
    queries: int
    depth: int
    both: float
    only_a: float
    only_b: float
    share: float
    rbo: float


@dataclass(frozen=True, slots=True)
class Fusing:
    """How the lists are fused: `weights` and `depths` (how far each source is read) of every source that takes part."""

    method: str
    k: float
    weights: Mapping[str, float]
    depths: Mapping[str, int]

    def both_first(self, a: str, b: str, *, longest: int | None = None) -> bool:
        """Whether under RRF what both find, however far down, precedes whatever one source alone finds.

        That is so when the least that two last places earn is more than the most that one first place earns. With
        `longest`, of lists that are no longer than that.
        """
        if not min(self.weights[a], self.weights[b]):
            return False
        last = {name: min(self.depths[name], longest or self.depths[name]) for name in (a, b)}
        least = sum(Fraction(self.weights[name]) / (Fraction(self.k) + last[name]) for name in (a, b))
        return least > Fraction(max(self.weights.values())) / (Fraction(self.k) + 1)


def overlaps(questions: Sequence[Mapping[str, Sequence[str]]]) -> list[Overlap]:
    """Every pair of sources over the questions, each of which has source → ids, best first."""
    names = list(dict.fromkeys(name for lists in questions for name in lists))
    return [_over(a, b, questions) for a, b in itertools.combinations(names, 2)]


def compare(a: str, b: str, first: Sequence[str], second: Sequence[str]) -> Overlap:
    """Two lists of one question."""
    left, right = set(first), set(second)
    both, longest = len(left & right), max(len(left), len(right))
    found = 1 if longest else 0
    share = both / longest if longest else 0.0
    return Overlap(a, b, found, longest, both, len(left) - both, len(right) - both, share, rbo(first, second))


def rbo(first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE) -> float:
    """Rank-biased overlap of two lists without repeats, extrapolated beyond their ends (equation 32 of the paper)."""
    short, long = sorted((first, second), key=len)
    if not short:
        return 0.0
    common, total, seen = 0, 0.0, (set[str](), set[str]())
    at_short = 0
    agreement = 0.0
    for depth, document in enumerate(long, 1):
        seen[0].add(document)
        common += document in seen[1]
        if depth <= len(short):
            seen[1].add(short[depth - 1])
            common += short[depth - 1] in seen[0]
            at_short = common
        # Beyond its end the shorter list is taken to agree as it did up to there.
        unseen = at_short * max(0, depth - len(short)) / len(short)
        agreement = (common + unseen) / depth
        total += (1 - p) * p ** (depth - 1) * agreement
    return min(1.0, total + p ** len(long) * agreement)


def same_documents(found: Mapping[str, Iterable[Record]]) -> dict[str, list[str]]:
    """Source → ids, in which records of the same id or the same text have one id, as when they are fused."""
    by_id: dict[str, str] = {}
    by_text: dict[str, str] = {}
    for record in itertools.chain.from_iterable(found.values()):
        key = by_id.get(record.id) or by_text.get(fold(record.text), record.id)
        by_id.setdefault(record.id, key)
        by_text.setdefault(fold(record.text), key)
    return {name: list(dict.fromkeys(by_id[record.id] for record in records)) for name, records in found.items()}


def advice(overlap: Overlap, fusing: Fusing) -> list[str]:
    """What the numbers mean, in words; nothing is said that is not so."""
    a, b = overlap.a, overlap.b
    found = {a: overlap.both + overlap.only_a, b: overlap.both + overlap.only_b}
    if not all(found.values()):
        return [f"{name} found nothing" for name, count in found.items() if not count]
    who = "your two sources" if len(fusing.weights) == 2 else f"{a} and {b}"  # noqa: PLR2004
    said = [f"{who} share {percent(overlap.share)} of their top {overlap.depth}{_order(overlap, fusing)}"]
    said += [f"{name} has weight 0 and takes no part in fusing" for name in (a, b) if not fusing.weights[name]]
    if overlap.share > MUCH:
        said.append(f"more than {percent(MUCH)} is the same, so that fusing them gains little")
    elif overlap.share < LITTLE:
        equal = fusing.method == "rrf" and fusing.weights[a] == fusing.weights[b]
        what = "RRF does little more than interleave them" if equal else "fusing does little more than join them"
        said.append(f"they have next to nothing in common, so that {what}")
    return said


def percent(share: float) -> str:
    """A share as a person reads it; what is not nothing is not shown as nothing."""
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"  # noqa: PLR2004


def _order(overlap: Overlap, fusing: Fusing) -> str:
    """What comes first when these are fused by RRF: a consequence of weights, k and how far the lists go."""
    a, b = overlap.a, overlap.b
    if not min(fusing.weights[a], fusing.weights[b]):
        return ""
    where = "" if fusing.method == "rrf" else "under rrf "
    comes = where + ("comes first" if len(fusing.weights) == 2 else "comes before what one finds alone")  # noqa: PLR2004
    if fusing.both_first(a, b):
        return f", and with {_terms(fusing, a, b, '≤')} whatever both find {comes}"
    if fusing.both_first(a, b, longest=overlap.depth):
        return f"; these lists are short enough, at k {fusing.k:g}, that whatever both find {comes}"
    return (
        f"; with {_terms(fusing, a, b, '>')} what one alone puts first can {where}come before what both find far down"
    )


def _terms(fusing: Fusing, a: str, b: str, relation: str) -> str:
    """The numbers behind the order, as a plain inequality where weights and depths are equal."""
    depths = dict.fromkeys((fusing.depths[a], fusing.depths[b]))
    fetch_k = f"fetch_k {' and '.join(map(str, depths))}"
    if len(depths) == 1 and len(set(fusing.weights.values())) == 1 and float(fusing.k).is_integer():
        return f"{fetch_k} {relation} k + 1 = {fusing.k + 1:g}"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in fusing.weights.items())
    return f"{fetch_k}, k {fusing.k:g} and the weights {weights}"


def _over(a: str, b: str, questions: Iterable[Mapping[str, Sequence[str]]]) -> Overlap:
    compared = [compare(a, b, lists[a], lists[b]) for lists in questions if a in lists and b in lists]
    seen = [one for one in compared if one.queries]
    if not seen:
        return Overlap(a, b, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    means = (fmean(getattr(one, name) for one in seen) for name in ("both", "only_a", "only_b", "share", "rbo"))
    return Overlap(a, b, len(seen), max(one.depth for one in seen), *means)


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
        word, why = recommendation(self)
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
    return list(dict.fromkeys(reply.source for reply in replies if reply.error is None))


def recommendation(finding: Finding) -> tuple[str, str]:
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


def _found(replies: Sequence[RankedList], judged: Mapping[str, int], depth: int) -> Iterator[frozenset[str]]:
    """For each relevant record or file the sources that have it, or a record of the same text, in their list."""
    hits = {reply.source: reply.entries[:depth] for reply in replies if reply.error is None}
    texts: dict[str | None, set[bytes]] = {}
    for hit in itertools.chain.from_iterable(hits.values()):
        for name in {hit.record.id, hit.record.path}:
            texts.setdefault(name, set()).add(hit.text_hash)
    for document in (key for key, grade in judged.items() if grade > 0):
        same = texts.get(document, set())
        yield frozenset(name for name, listed in hits.items() if any(hit.text_hash in same for hit in listed))


def _counted(a: str, b: str, depth: int, questions: int, found: Sequence[frozenset[str]]) -> Finding:
    both = sum(a in names and b in names for names in found)
    only_a = sum(a in names and b not in names for names in found)
    only_b = sum(b in names and a not in names for names in found)
    return Finding(a, b, depth, questions, both, only_a, only_b, len(found) - both - only_a - only_b)


def shared(judged: Judged, depth: int) -> dict[str, Any]:
    """What each pair of sources finds, over the whole set and over each of its corpora."""
    found = [(part.dataset.name, _pairs(part, depth)) for part in judged.parts]
    by_pair: dict[tuple[str, str], list[Finding]] = {}
    for one in itertools.chain.from_iterable(pairs for _, pairs in found):
        by_pair.setdefault((one.a, one.b), []).append(one)
    whole = [{"set": judged.name, **pooled(several).as_dict()} for several in by_pair.values()]
    parts = [
        {"set": f"{judged.name}/{name}", **one.as_dict()} for name, pairs in found for one in pairs if len(found) > 1
    ]
    return {"data": judged.as_dict(), "depth": depth, "pairs": whole, "corpora": parts}


def together(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was found of several sets, one after the other."""
    if len(several) == 1:
        return dict(several[0])
    sets = [one["data"] for one in several]
    name, questions = ", ".join(one["name"] for one in sets), sum(one["questions"] for one in sets)
    data = {"name": name, "questions": questions, "sets": sets}
    pairs, corpora = ([row for one in several for row in one[part]] for part in ("pairs", "corpora"))
    return {"data": data, "depth": several[0]["depth"], "pairs": pairs, "corpora": corpora}


def _pairs(part: Part, depth: int) -> list[Finding]:
    if len(names := answering(part.recording)) < 2:  # noqa: PLR2004
        message = f"only {' '.join(names) or 'no source'} answered, and overlap compares two sources"
        raise SearchFailed(message, hint="is an embedder set? `recollect status`")
    return findings(part.recording, part.dataset.qrels, depth=depth)

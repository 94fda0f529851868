"""How much two sources agree, and whether fusing them is worth it.

`Overlap` compares two lists without judgments. `share` is the part of the longer list that both hold; `rbo` is
rank-biased overlap, extrapolated (Webber, Moffat and Zobel, 2010), in which the top ranks count most. Both are 0 for
lists with nothing in common and 1 for equal lists. `PairRecall` counts the relevant records that each source finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

from recollect.errors import SearchFailed
from recollect.evaluation.recording import JudgedSet, JudgedSets, Recording
from recollect.ranking import fold
from recollect.types import RankedList, Record

PERSISTENCE = 0.9
"""RBO's p: with 0.9 the first ten ranks carry 86 % of the weight."""

MUCH = 0.7
LITTLE = 0.05

LITTLE_SHARED = 0.60
MUCH_SHARED = 0.70
WORTH = 0.15
"""Fusing is advised below the first share if the union gains at least `WORTH`, and not advised above the second."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two sources compared: counts of one question, or means over the `queries` in which either found something.

    `depth` is the length of the longest list.
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
class FusionSetup:
    """How the lists are fused: the weight of every source, and how deep it is read (`depths`)."""

    method: str
    k: float
    weights: Mapping[str, float]
    depths: Mapping[str, int]

    def both_first(self, a: str, b: str, *, longest: int | None = None) -> bool:
        """Whether RRF ranks every record that both sources find before any record that only one finds.

        That holds when two last places earn more than one first place. `longest` bounds the length of the lists.
        """
        if not min(self.weights[a], self.weights[b]):
            return False
        last = {name: min(self.depths[name], longest or self.depths[name]) for name in (a, b)}
        least = sum(Fraction(self.weights[name]) / (Fraction(self.k) + last[name]) for name in (a, b))
        return least > Fraction(max(self.weights.values())) / (Fraction(self.k) + 1)


def overlaps(questions: Sequence[Mapping[str, Sequence[str]]]) -> list[Overlap]:
    """Compare every pair of sources. Each question maps source → ids, best first."""
    names = list(dict.fromkeys(name for lists in questions for name in lists))
    return [_over(a, b, questions) for a, b in itertools.combinations(names, 2)]


def compare(a: str, b: str, first: Sequence[str], second: Sequence[str]) -> Overlap:
    """Compare two lists of one question."""
    left, right = set(first), set(second)
    both, longest = len(left & right), max(len(left), len(right))
    share = both / longest if longest else 0.0
    counts = (both, len(left) - both, len(right) - both)
    return Overlap(a, b, int(longest > 0), longest, *counts, share, rbo(first, second))


def rbo(first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE) -> float:
    """Rank-biased overlap of two lists without repeats, extrapolated (equation 32 of the paper)."""
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
        # Beyond its end, the shorter list is assumed to agree as much as it did before.
        unseen = at_short * max(0, depth - len(short)) / len(short)
        agreement = (common + unseen) / depth
        total += (1 - p) * p ** (depth - 1) * agreement
    return min(1.0, total + p ** len(long) * agreement)


def same_documents(lists: Mapping[str, Iterable[Record]]) -> dict[str, list[str]]:
    """Map source → ids, where records with the same id or the same text get one id, as in fusion."""
    by_id: dict[str, str] = {}
    by_text: dict[str, str] = {}
    for record in itertools.chain.from_iterable(lists.values()):
        key = by_id.get(record.id) or by_text.get(fold(record.text), record.id)
        by_id.setdefault(record.id, key)
        by_text.setdefault(fold(record.text), key)
    return {name: list(dict.fromkeys(by_id[record.id] for record in records)) for name, records in lists.items()}


def advice(overlap: Overlap, setup: FusionSetup) -> list[str]:
    """Explain the numbers in words."""
    a, b = overlap.a, overlap.b
    counts = {a: overlap.both + overlap.only_a, b: overlap.both + overlap.only_b}
    if not all(counts.values()):
        return [f"{name} found nothing" for name, count in counts.items() if not count]
    who = "your two sources" if len(setup.weights) == 2 else f"{a} and {b}"  # noqa: PLR2004
    words = [f"{who} share {percent(overlap.share)} of their top {overlap.depth}{_order(overlap, setup)}"]
    words += [f"{name} has weight 0 and takes no part in fusing" for name in (a, b) if not setup.weights[name]]
    if overlap.share > MUCH:
        words.append(f"more than {percent(MUCH)} is the same, so that fusing them gains little")
    elif overlap.share < LITTLE:
        equal = setup.method == "rrf" and setup.weights[a] == setup.weights[b]
        what = "RRF does little more than interleave them" if equal else "fusing does little more than join them"
        words.append(f"they have next to nothing in common, so that {what}")
    return words


def percent(share: float) -> str:
    """Write a share in percent; a small share is not rounded to zero."""
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"  # noqa: PLR2004


def _order(overlap: Overlap, setup: FusionSetup) -> str:
    """Explain which records RRF ranks first, given the weights, k and the depth of the lists."""
    a, b = overlap.a, overlap.b
    if not min(setup.weights[a], setup.weights[b]):
        return ""
    where = "" if setup.method == "rrf" else "under rrf "
    comes = where + ("comes first" if len(setup.weights) == 2 else "comes before what one finds alone")  # noqa: PLR2004
    if setup.both_first(a, b):
        return f", and with {_terms(setup, a, b, '≤')} whatever both find {comes}"
    if setup.both_first(a, b, longest=overlap.depth):
        return f"; these lists are short enough, at k {setup.k:g}, that whatever both find {comes}"
    return f"; with {_terms(setup, a, b, '>')} what one alone puts first can {where}come before what both find far down"


def _terms(setup: FusionSetup, a: str, b: str, relation: str) -> str:
    """Write the numbers behind the order, as an inequality where weights and depths are equal."""
    depths = dict.fromkeys((setup.depths[a], setup.depths[b]))
    fetch_k = f"fetch_k {' and '.join(map(str, depths))}"
    if len(depths) == 1 and len(set(setup.weights.values())) == 1 and float(setup.k).is_integer():
        return f"{fetch_k} {relation} k + 1 = {setup.k + 1:g}"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in setup.weights.items())
    return f"{fetch_k}, k {setup.k:g} and the weights {weights}"


def _over(a: str, b: str, questions: Iterable[Mapping[str, Sequence[str]]]) -> Overlap:
    compared = [compare(a, b, lists[a], lists[b]) for lists in questions if a in lists and b in lists]
    nonempty = [one for one in compared if one.queries]
    if not nonempty:
        return Overlap(a, b, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    means = (fmean(getattr(one, name) for one in nonempty) for name in ("both", "only_a", "only_b", "share", "rbo"))
    return Overlap(a, b, len(nonempty), max(one.depth for one in nonempty), *means)


@dataclass(frozen=True, slots=True)
class PairRecall:
    """How many relevant records each of two sources has in its top `depth`, over pairs of question and record."""

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
        """The number of pairs of a question and a relevant record."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def recall_a(self) -> float:
        """The share that the first source finds."""
        return self._share(self.both + self.only_a)

    @property
    def recall_b(self) -> float:
        """The share that the second source finds."""
        return self._share(self.both + self.only_b)

    @property
    def union(self) -> float:
        """The share that either finds; no fusion of the two can find more."""
        return self._share(self.relevant - self.neither)

    @property
    def gain(self) -> float:
        """How far the union is above the better source."""
        return self.union - max(self.recall_a, self.recall_b)

    @property
    def overlap(self) -> float:
        """Of the records that either finds, the share that both find."""
        either = self.relevant - self.neither
        return self.both / either if either else 0.0

    def _share(self, count: int) -> float:
        return count / self.relevant if self.relevant else 0.0

    def as_dict(self) -> dict[str, object]:
        """Return counts, shares and advice as JSON."""
        shares = {
            name: getattr(self, name) for name in ("relevant", "recall_a", "recall_b", "union", "gain", "overlap")
        }
        word, why = recommendation(self)
        return {**asdict(self), **shares, "advice": word, "why": why}


def pair_recalls(recording: Recording, qrels: Mapping[str, Mapping[str, int]], *, depth: int) -> list[PairRecall]:
    """Count for every pair of sources that answered."""
    rows = [row for key in recording.texts for row in _finders(recording.replies[key], qrels.get(key, {}), depth)]
    judged = sum(any(grade > 0 for grade in qrels.get(key, {}).values()) for key in recording.texts)
    pairs = itertools.combinations(answering_sources(recording), 2)
    return [_count(a, b, depth, judged, rows) for a, b in pairs]


def pool(pairs: Sequence[PairRecall]) -> PairRecall:
    """Add up the counts of the same two sources over several corpora."""
    first = pairs[0]
    sums = (sum(getattr(one, name) for one in pairs) for name in ("questions", "both", "only_a", "only_b", "neither"))
    return PairRecall(first.a, first.b, first.depth, *sums)


def answering_sources(recording: Recording) -> list[str]:
    """Return the sources that answered at least one question, in their order."""
    replies = itertools.chain.from_iterable(recording.replies.values())
    return list(dict.fromkeys(reply.source for reply in replies if reply.error is None))


def recommendation(pair: PairRecall) -> tuple[str, str]:
    """Return `fuse`, `gains little` or `undecided`, and the figures behind it."""
    if not pair.relevant - pair.neither:
        return "undecided", f"neither {pair.a} nor {pair.b} finds a relevant record"
    gains = pair.gain >= WORTH - ROUNDING
    if pair.overlap > MUCH_SHARED:
        word, relation = "gains little", f"more than {percent(MUCH_SHARED)}"
    elif pair.overlap < LITTLE_SHARED:
        word, relation = "fuse" if gains else "undecided", f"less than {percent(LITTLE_SHARED)}"
    else:
        word, relation = "undecided", f"between {percent(LITTLE_SHARED)} and {percent(MUCH_SHARED)}"
    best = pair.a if pair.recall_a >= pair.recall_b else pair.b
    worth = "" if gains else f" and less than {100 * WORTH:.0f}"
    return word, (
        f"of the relevant records that either finds, both find {100 * pair.overlap:.1f} %, {relation}; together they "
        f"reach {100 * pair.union:.1f} %, {100 * pair.gain:.1f} points above {best} alone{worth}"
    )


def _finders(replies: Sequence[RankedList], judged: Mapping[str, int], depth: int) -> Iterator[frozenset[str]]:
    """For each relevant record or file, yield the sources that list it or a record of the same text."""
    hits = {reply.source: reply.entries[:depth] for reply in replies if reply.error is None}
    texts: dict[str | None, set[bytes]] = {}
    for hit in itertools.chain.from_iterable(hits.values()):
        for name in {hit.record.id, hit.record.path}:
            texts.setdefault(name, set()).add(hit.text_hash)
    for document in (key for key, grade in judged.items() if grade > 0):
        same = texts.get(document, set())
        yield frozenset(name for name, listed in hits.items() if any(hit.text_hash in same for hit in listed))


def _count(a: str, b: str, depth: int, questions: int, rows: Sequence[frozenset[str]]) -> PairRecall:
    both = sum(a in names and b in names for names in rows)
    only_a = sum(a in names and b not in names for names in rows)
    only_b = sum(b in names and a not in names for names in rows)
    return PairRecall(a, b, depth, questions, both, only_a, only_b, len(rows) - both - only_a - only_b)


def overlap_report(judged: JudgedSets, depth: int) -> dict[str, Any]:
    """Return the JSON of `recollect eval overlap`: every pair of sources over the whole set, and for each corpus."""
    corpora = [(part.dataset.name, _part_recalls(part, depth)) for part in judged.parts]
    by_pair: dict[tuple[str, str], list[PairRecall]] = {}
    for one in itertools.chain.from_iterable(pairs for _, pairs in corpora):
        by_pair.setdefault((one.a, one.b), []).append(one)
    whole = [{"set": judged.name, **pool(pairs).as_dict()} for pairs in by_pair.values()]
    parts = [{"set": f"{judged.name}/{name}", **one.as_dict()} for name, pairs in corpora for one in pairs]
    return {"data": judged.as_dict(), "depth": depth, "pairs": whole, "corpora": parts if len(corpora) > 1 else []}


def join_overlaps(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the reports of several sets into one."""
    if len(reports) == 1:
        return dict(reports[0])
    sets = [one["data"] for one in reports]
    name, questions = ", ".join(one["name"] for one in sets), sum(one["questions"] for one in sets)
    data = {"name": name, "questions": questions, "sets": sets}
    pairs, corpora = ([row for one in reports for row in one[part]] for part in ("pairs", "corpora"))
    return {"data": data, "depth": reports[0]["depth"], "pairs": pairs, "corpora": corpora}


def _part_recalls(part: JudgedSet, depth: int) -> list[PairRecall]:
    if len(names := answering_sources(part.recording)) < 2:  # noqa: PLR2004
        message = f"only {' '.join(names) or 'no source'} answered, and overlap compares two sources"
        raise SearchFailed(message, hint="`recollect status` shows whether an embedder is set")
    return pair_recalls(part.recording, part.dataset.qrels, depth=depth)

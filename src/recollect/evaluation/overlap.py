"""How much two sources agree, without judgments (`Overlap`) and with them (`pair_recall`), and whether to fuse them."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

from recollect.errors import SearchFailed
from recollect.evaluation.recording import JudgedSets, Recording
from recollect.ranking import fold
from recollect.types import RankedList, Record

PERSISTENCE = 0.9  # RBO's p: with 0.9 the first ten ranks carry 86 % of the weight
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

    `depth` is the length of the longest list, `share` the part of it that both hold, `rbo` rank-biased overlap.
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
    names, pairs = list(dict.fromkeys(name for lists in questions for name in lists)), []
    for a, b in itertools.combinations(names, 2):
        compared = [compare(a, b, lists[a], lists[b]) for lists in questions if a in lists and b in lists]
        nonempty = [one for one in compared if one.queries]
        columns = [[getattr(one, name) for one in nonempty] for name in ("both", "only_a", "only_b", "share", "rbo")]
        depth = max((one.depth for one in nonempty), default=0)
        pairs.append(Overlap(a, b, len(nonempty), depth, *(fmean(column) if column else 0.0 for column in columns)))
    return pairs


def compare(a: str, b: str, first: Sequence[str], second: Sequence[str]) -> Overlap:
    """Compare two lists of one question."""
    both, longest = len({*first} & {*second}), max(len({*first}), len({*second}))
    share = both / longest if longest else 0.0
    counts = (both, len({*first}) - both, len({*second}) - both)
    return Overlap(a, b, int(longest > 0), longest, *counts, share, rbo(first, second))


def rbo(first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE) -> float:
    """Rank-biased overlap of lists without repeats, extrapolated (Webber, Moffat and Zobel, 2010, equation 32)."""
    short, long = sorted((first, second), key=len)
    if not short:
        return 0.0
    ranks = {document: rank for rank, document in enumerate(short, 1)}
    shared_from = Counter(max(rank, ranks[document]) for rank, document in enumerate(long, 1) if document in ranks)
    common, at_short, total, agreement = 0, 0, 0.0, 0.0
    for depth in range(1, len(long) + 1):
        common += shared_from[depth]
        at_short = common if depth <= len(short) else at_short
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
    depths = dict.fromkeys((setup.depths[a], setup.depths[b]))
    fetch_k = f"fetch_k {' and '.join(map(str, depths))}"
    if len(depths) == 1 and len(set(setup.weights.values())) == 1 and float(setup.k).is_integer():
        return f"{fetch_k} {relation} k + 1 = {setup.k + 1:g}"
    weights = ", ".join(f"{name} {weight:g}" for name, weight in setup.weights.items())
    return f"{fetch_k}, k {setup.k:g} and the weights {weights}"


COUNTS = ("both", "only_a", "only_b", "neither")


def pair_recall(a: str, b: str, depth: int, questions: int, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return how many relevant records each of two sources has in its top `depth`, over pairs of question and record.

    The rest are shares: `union` of either source, which no fusion of the two can exceed; `gain` of the union over the
    better source; `overlap` of the records of both among those of either. `advice` is `fuse`, `gains little` or
    `undecided`, and `why` has the figures behind it.
    """
    both, only_a, only_b = (counts[name] for name in COUNTS[:3])
    either, relevant = both + only_a + only_b, sum(counts.values())
    recall_a, recall_b, union = (count / (relevant or 1) for count in (both + only_a, both + only_b, either))
    gain, overlap = union - max(recall_a, recall_b), both / (either or 1)
    gains = gain >= WORTH - ROUNDING
    if overlap > MUCH_SHARED:
        advice, relation = "gains little", f"more than {percent(MUCH_SHARED)}"
    elif overlap < LITTLE_SHARED:
        advice, relation = "fuse" if gains else "undecided", f"less than {percent(LITTLE_SHARED)}"
    else:
        advice, relation = "undecided", f"between {percent(LITTLE_SHARED)} and {percent(MUCH_SHARED)}"
    worth = "" if gains else f" and less than {100 * WORTH:.0f}"
    why = (
        f"of the relevant records that either finds, both find {100 * overlap:.1f} %, {relation}; together they reach "
        f"{100 * union:.1f} %, {100 * gain:.1f} points above {a if recall_a >= recall_b else b} alone{worth}"
    )
    if not either:
        why = f"neither {a} nor {b} finds a relevant record"
    shares = {"recall_a": recall_a, "recall_b": recall_b, "union": union, "gain": gain, "overlap": overlap}
    data = {"a": a, "b": b, "depth": depth, "questions": questions, **counts, "relevant": relevant}
    return {**data, **shares, "advice": advice, "why": why}


def pair_recalls(recording: Recording, qrels: Mapping[str, Mapping[str, int]], *, depth: int) -> list[dict[str, Any]]:
    """Count for every pair of sources that answered."""
    rows = [row for key in recording.texts for row in _finders(recording.replies[key], qrels.get(key, {}), depth)]
    judged = sum(any(grade > 0 for grade in qrels.get(key, {}).values()) for key in recording.texts)
    pairs = []
    for a, b in itertools.combinations(answering_sources(recording), 2):
        tally = Counter((a in names, b in names) for names in rows)
        counts = (tally[by_a, by_b] for by_a, by_b in itertools.product((True, False), repeat=2))
        pairs.append(pair_recall(a, b, depth, judged, dict(zip(COUNTS, counts, strict=True))))
    return pairs


def pool(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up the counts of the same two sources over several corpora."""
    questions, *counts = (sum(pair[name] for pair in pairs) for name in ("questions", *COUNTS))
    a, b, depth = (pairs[0][name] for name in ("a", "b", "depth"))
    return pair_recall(a, b, depth, questions, dict(zip(COUNTS, counts, strict=True)))


def answering_sources(recording: Recording) -> list[str]:
    """Return the sources that answered at least one question, in their order."""
    replies = itertools.chain.from_iterable(recording.replies.values())
    return list(dict.fromkeys(reply.source for reply in replies if reply.error is None))


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


def overlap_report(judged: JudgedSets, depth: int) -> dict[str, Any]:
    """Return the JSON of `recollect eval overlap`: every pair of sources over the whole set, and for each corpus."""
    by_pair: dict[tuple[str, str], list[dict[str, Any]]] = {}
    corpora = []
    for part in judged.parts:
        if len(names := answering_sources(part.recording)) < 2:  # noqa: PLR2004
            message = f"only {' '.join(names) or 'no source'} answered, and overlap compares two sources"
            raise SearchFailed(message, hint="`recollect status` shows whether an embedder is set")
        for one in pair_recalls(part.recording, part.dataset.qrels, depth=depth):
            by_pair.setdefault((one["a"], one["b"]), []).append(one)
            corpora.append({"set": f"{judged.name}/{part.dataset.name}", **one})
    whole = [{"set": judged.name, **pool(pairs)} for pairs in by_pair.values()]
    several = len(judged.parts) > 1
    return {"data": judged.as_dict(), "depth": depth, "pairs": whole, "corpora": corpora if several else []}


def join_overlaps(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the reports of several sets into one."""
    if len(reports) == 1:
        return dict(reports[0])
    sets = [one["data"] for one in reports]
    name, questions = ", ".join(one["name"] for one in sets), sum(one["questions"] for one in sets)
    data = {"name": name, "questions": questions, "sets": sets}
    pairs, corpora = ([row for one in reports for row in one[part]] for part in ("pairs", "corpora"))
    return {"data": data, "depth": reports[0]["depth"], "pairs": pairs, "corpora": corpora}

"""Words that follow each other in a query count more where they stand near each other in a record, too.

"Bank of the river" is about a river bank; a text that has both words far from each other may be about money.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import TypeAlias

from recollect.analysis import Analyzer, chunk_terms, chunks_of, spaced
from recollect.fusion import METHODS
from recollect.ranking import are_code
from recollect.types import Candidate, Query
from recollect.types.search import NOTHING, by_total, moved

AnalyzerOf: TypeAlias = Callable[[], Analyzer]  # returns the analyzer of the store

GAIN = 0.35
"""What a result gains if all pairs of neighbouring words of the query stand together in it; decision 071."""

HEAD = 12  # results that are read; twenty give hardly more, and the first ten are read in any case
CODE_RESULTS = 5  # results that tell whether they are code
WINDOW = 3  # how many words farther on the other word of a pair may be: two words may stand between them
READ_CHARACTERS = 4_000  # of a text: all of 15,000 would take four times as long and gain no more
CACHED_CHUNKS = 30_000  # chunks between white space whose terms are cached: about 6 MB


def together(analyzer: AnalyzerOf, query: Query, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Raise results in which words that follow each other in the query stand near each other.

    Not among code, whose words do not stand in sentences, nor where only vectors are asked for. Methods other than
    `blend` keep the scores of their formulas. No score exceeds 1: if one would, all are divided by it.
    """
    if not METHODS[query.ranking.fusion].by_trust or "keyword" not in (query.ranking.sources or ("keyword",)):
        return candidates
    head = list(takewhile(lambda candidate: candidate.total > NOTHING, candidates[:HEAD]))
    pairs = Pairs(query.text, analyzer()) if len(head) > 1 else None
    if pairs is None or not pairs.pairs:
        return candidates
    head = head[0].pool.read(head)
    code = are_code([one.record.text for one in head[:CODE_RESULTS]])
    shares = [] if code else pairs.shares([one.record.passage[:READ_CHARACTERS] for one in head])
    if not any(shares):
        return candidates
    gains = {one.key: GAIN * share for one, share in zip(head, shares, strict=True)}
    most = max(1.0, *(one.total + gains[one.key] for one in head))
    for one in candidates:
        gain = gains.get(one.key, 0.0)
        if (gain or most > 1) and one.total > NOTHING:
            one.scale("proximity", (one.total + gain) / one.total / most)
    return moved("proximity", candidates, by_total(candidates))


class Pairs:
    """The pairs of words that follow each other in a query, stop words aside, in either order.

    Scripts without spaces have none: their terms are pairs of characters, which keep the order already.
    """

    def __init__(self, query: str, analyzer: Analyzer) -> None:
        terms = analyzer.query(query)
        pairs = (pair for pair in pairwise(terms) if all(map(spaced, pair)))
        self.pairs = {frozenset(pair) for pair in pairs if pair[0] != pair[1]}
        self._terms, self._language = frozenset(terms), analyzer.language

    def shares(self, texts: Sequence[str]) -> list[float]:
        """The share of the pairs that stand together in each text, from 0 to 1."""
        return [self._share(found) for found in places(texts, self._terms, self._language)]

    def _share(self, found: Sequence[tuple[int, str]]) -> float:
        near: set[frozenset[str]] = set()
        for number, (place, term) in enumerate(found, 1):
            for other_place, other in found[number:]:
                if other_place > place + WINDOW:
                    break
                near.add(frozenset((term, other)))
        return len(near & self.pairs) / len(self.pairs) if near else 0.0


def places(texts: Sequence[str], terms: Iterable[str], language: str) -> list[list[tuple[int, str]]]:
    """For each text where the terms occur, in its order: the number of the chunk between white space, and the term."""
    split = [chunks_of(text) for text in texts]
    having = _chunks(language).having(terms, split)
    return [
        [(number, term) for number, chunk in enumerate(chunks) if chunk in having for term in having[chunk]]
        if not having.keys().isdisjoint(chunks)
        else []
        for chunks in split
    ]


class _Chunks:
    """Chunks between white space, and by each term those that have it.

    A chunk has several terms if it is an identifier, a path or a word with hyphens.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._known: set[str] = set()
        self._with: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def having(self, terms: Iterable[str], texts: Iterable[Sequence[str]]) -> dict[str, list[str]]:
        """The chunks of these texts, and perhaps others, that have one of the terms: chunk → terms."""
        found: dict[str, list[str]] = {}
        with self._lock:
            if len(self._known) > CACHED_CHUNKS:
                self._known, self._with = set(), {}
            for chunks in texts:
                if not self._known.issuperset(chunks):
                    self._learn(set(chunks).difference(self._known))
            for term in terms:
                for chunk in self._with.get(term, ()):
                    found.setdefault(chunk, []).append(term)
        return found

    def _learn(self, chunks: set[str]) -> None:
        for chunk, terms in chunk_terms(chunks, self._language).items():
            for term in dict.fromkeys(terms):
                self._with.setdefault(term, []).append(chunk)
        self._known |= chunks


_chunks = cache(_Chunks)

"""Words that follow each other in a query count more where they stand near each other in a record, too.

"Bank of the river" is about a river bank; a text that has both words far from each other may be about money.
"""

from collections.abc import Callable, Sequence
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
SEVERAL, NONE = "", " "  # in place of the term of a chunk that has several terms, or none


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
    shares = [] if code else [pairs.share(one.record.passage) for one in head]
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

    def share(self, text: str) -> float:
        """The share of the pairs that stand together in a text, from 0 to 1."""
        found = places(text[:READ_CHARACTERS], self._terms, self._language)
        near: set[frozenset[str]] = set()
        for number, (place, term) in enumerate(found, 1):
            for other_place, other in found[number:]:
                if other_place > place + WINDOW:
                    break
                near.add(frozenset((term, other)))
        return len(near & self.pairs) / len(self.pairs) if near else 0.0


def places(text: str, terms: frozenset[str], language: str) -> list[tuple[int, str]]:
    """Where some terms occur, in the order of the text: the number of the chunk between white space, and the term.

    A chunk has several terms if it is an identifier, a path or a word with hyphens.
    """
    chunks, known = chunks_of(text), _chunks(language)
    own = known.terms(chunks)
    wanted = {*terms, SEVERAL}
    found = list[tuple[int, str]]()
    for number, term in [(number, term) for number, term in enumerate(own) if term in wanted]:
        several = (term,) if term else known.several.get(chunks[number], ())
        found += [(number, one) for one in several if one in terms]
    return found


class _Chunks(dict[str, str]):
    """Each chunk between white space → its term, SEVERAL or NONE."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language
        self.several: dict[str, tuple[str, ...]] = {}

    def terms(self, chunks: Sequence[str]) -> list[str | None]:
        """The term of each chunk. It is None if another thread has just emptied the cache."""
        terms = list(map(self.get, chunks))
        if None not in terms:
            return terms
        if len(self) > CACHED_CHUNKS:
            self.clear()
            self.several.clear()
        new = chunk_terms({*chunks}.difference(self), self._language)
        self.several.update((chunk, own) for chunk, own in new.items() if len(own) > 1)
        self.update((chunk, SEVERAL if len(own) > 1 else own[0] if own else NONE) for chunk, own in new.items())
        return list(map(self.get, chunks))


_chunks = cache(_Chunks)

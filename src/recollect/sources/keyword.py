"""Search by words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from recollect.analysis import snippet
from recollect.types import Found, Hit, KeywordIndex, Matches, Query


@dataclass(frozen=True, slots=True)
class KeywordSource:
    """Asks a store's keyword index. Its scores are BM25's: positive and without a bound."""

    index: KeywordIndex
    name: str = "keyword"
    bounded: bool = False
    timeout: float | None = None

    def search(self, query: Query) -> Found:
        """The visible records that share a word with the query, by BM25."""
        analyzer = self.index.analyzer
        terms = analyzer.query(query.text)
        if not terms:
            return Found(warnings=("the query has no words to look for",))
        matches = self.index.search(terms, query.filter, query.depth)
        hits = tuple(
            Hit(match.record, match.fold, match.score, partial(snippet, match.record.text, terms, analyzer))
            for match in matches.found
        )
        complete = len(hits) < query.depth
        among = min(query.depth, matches.among) if complete else None
        return Found(hits, (), matches.folded, among, _trust(matches, len(terms), complete=complete))


COVERED, COVERED_ALONE = 0.1, 0.2
"""Share of the query's information, as BM25 weighs its words, that the best record must hold for full trust.

Below it only stray words match: the question is in other words than the records. More is asked of a list that is all
there is, where a few hits stand out from nothing. Chosen on tuning questions, see docs/benchmarks.md.
"""


MOST_WORDS = 12
"""Of a longer question no record is expected to hold more than so many words' share."""


def _trust(matches: Matches, terms: int, *, complete: bool) -> float:
    if not matches.found or matches.most <= 0:
        return 1.0
    within_reach = matches.most * min(1.0, MOST_WORDS / terms)
    return min(1.0, matches.found[0].score / within_reach / (COVERED_ALONE if complete else COVERED))

"""Search by words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from recollect.analysis import snippet
from recollect.types import Found, Hit, KeywordIndex, Query


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
        return Found(hits, folded=matches.folded, complete=len(hits) < query.depth)

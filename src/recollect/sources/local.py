"""The built-in retrievers: by keyword, by vector, and by the vector of a hypothetical answer (HyDE)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from recollect.analysis import Analyzer, lead, snippet
from recollect.errors import EmbedderError, RecollectError, StoreError
from recollect.types import ActiveSpace, Filter, KeywordIndex, LegibilityEmbedder, Query, RankedList, Record

if TYPE_CHECKING:
    from recollect.types import Vector

COVERED, COVERED_ALONE = 0.1, 0.2
"""Share of the query's information, as BM25 weighs its words, that the best record must contain for full trust.

Below it only incidental words match: the records use other words than the query. The second number is for a complete
list, in which a few hits stand out from nothing. Chosen on tuning questions, see docs/benchmarks.md.
"""

MOST_WORDS = 12  # no record is expected to contain more than this many words of a longer query
CATCH_UP = 32  # how many records without a vector a search embeds before it answers: about half a second
READ_CHARACTERS = 500  # characters of the best record that tell whether the model reads its language
MOST_MISSING = 0.05  # share of records without a vector above which keywords alone rank better


@dataclass(frozen=True, slots=True)
class KeywordSource:
    """Queries a store's keyword index. Its scores are those of BM25: positive, without an upper bound."""

    index: KeywordIndex
    name: str = "keyword"
    bounded: bool = False
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        analyzer = self.index.analyzer
        terms = analyzer.query(query.text)
        if not terms:
            return RankedList(self.name, warnings=("the query has no words to look for",))
        ranked = self.index.search(terms, query.filter, query.depth)
        count, scores = len(ranked.entries), ranked.scores[:1]
        complete = count < query.depth
        among = min(query.depth, ranked.among or 0) if complete else None
        trust = 1.0
        if scores and ranked.max_score > 0:
            within_reach = ranked.max_score * min(1.0, MOST_WORDS / len(terms))
            trust = min(1.0, scores[0] / within_reach / (COVERED_ALONE if complete else COVERED))
        return replace(ranked, among=among, trust=trust, excerpt=partial(_matching_part, terms, analyzer))


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Embeds the query and queries a store's vector index. Its scores are cosines.

    `serving` is called in the source's own thread, with the query's deadline: loading a model must not delay the other
    sources. If the source is `alone`, it answers even while many records have no vector.
    """

    serving: Callable[[float | None], ActiveSpace]
    alone: bool = False
    name: str = "vector"
    bounded: bool = True
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        lag, warnings = _catch_up(serving, query.filter, alone=self.alone)
        ranked = _nearest(serving, serving.embedder.query(query.text), query)
        if ranked.trust < 1:
            warnings += (f"{serving.embedder.name} does not read this language well; meaning counts less",)
        return replace(ranked, warnings=warnings, lag=lag)


@dataclass(frozen=True, slots=True)
class HydeSource:
    """Has a language model write an answer, embeds it as a passage, and queries the vector index with it.

    A hypothetical answer lies nearer to real answers than the query does. Beside the vector source, this is a source of
    its own, which may fail. If it `replaces` the vector source, it has its name and falls back to the query itself.
    """

    serving: Callable[[float | None], ActiveSpace]
    write: Callable[[str], str]
    replaces: bool = False
    bounded: bool = True
    timeout: float | None = None

    @property
    def name(self) -> str:
        return "vector" if self.replaces else "hyde"

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        warnings: tuple[str, ...] = ()
        try:
            vector = serving.embedder.passages([self.write(query.text)])[0]
        except RecollectError as error:
            if not self.replaces:
                raise
            warnings = (f"HyDE fell back to the question itself: {error.message}",)
            vector = serving.embedder.query(query.text)
        return replace(_nearest(serving, vector, query), warnings=warnings)


def _nearest(serving: ActiveSpace, vector: Vector, query: Query) -> RankedList:
    """The records nearest to a vector; the trust is how well the model reads the query and the best record."""
    ranked = serving.index.search(vector, query.filter, query.depth)
    trust = 1.0
    if isinstance(serving.embedder, LegibilityEmbedder):
        best = ranked.entries[0].record.text[:READ_CHARACTERS] if ranked.entries else query.text
        trust = min(serving.embedder.legibility(query.text), serving.embedder.legibility(best))
    return replace(ranked, trust=trust, excerpt=_beginning)


def _matching_part(terms: Sequence[str], analyzer: Analyzer, record: Record) -> str:
    return snippet(record.text, terms, analyzer)


def _beginning(record: Record) -> str:
    return lead(record.text)


def _catch_up(serving: ActiveSpace, where: Filter, *, alone: bool) -> tuple[int, tuple[str, ...]]:
    """Embed the records of the filter that have no vector if that is quick; how many of all lack one, and warnings.

    While many records have no vector, those that have one would outrank better ones: unless the source is `alone`, this
    is an error.
    """
    warnings = [serving.warning] if serving.warning else []
    lag = serving.index.coverage()[1]
    waiting = serving.index.missing(CATCH_UP + 1, where) if lag else []
    if len(waiting) > CATCH_UP:
        warnings.append("some records have no vector yet; `recollect embed` computes the missing ones")
    elif waiting:
        try:
            serving.index.save(waiting, serving.embedder.passages(waiting))
            lag = serving.index.coverage()[1]
        except StoreError:  # its message names the store's path, which is not for every caller
            warnings.append("some records have no vector, and none can be stored now: `recollect doctor` says why")
    if lag > CATCH_UP and not alone:
        covered, missing = serving.index.coverage(where)  # records that the query cannot see do not matter
        if missing > CATCH_UP and missing > MOST_MISSING * (covered + missing):
            raise EmbedderError(
                f"only {covered:,} of {covered + missing:,} records have a vector yet",
                hint="`recollect embed` computes the missing ones",
            )
    return lag, tuple(warnings)

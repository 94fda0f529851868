"""The built-in retrievers: by keyword, by vector, and by the vector of a hypothetical answer (HyDE)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from recollect.analysis import lead, snippet
from recollect.errors import EmbedderError, RecollectError, StoreError
from recollect.types import ActiveSpace, Embedder, Filter, KeywordIndex, LegibilityEmbedder, Query, RankedList


@dataclass(frozen=True, slots=True)
class KeywordSource:
    """Asks a store's keyword index. Its scores are BM25's: positive and without a bound."""

    index: KeywordIndex
    name: str = "keyword"
    bounded: bool = False
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        """The visible records that share a word with the query, by BM25."""
        analyzer = self.index.analyzer
        terms = analyzer.query(query.text)
        if not terms:
            return RankedList(self.name, warnings=("the query has no words to look for",))
        ranked = self.index.search(terms, query.filter, query.depth)
        hits = [replace(hit, snippet=partial(snippet, hit.record.text, terms, analyzer)) for hit in ranked.entries]
        complete = len(hits) < query.depth
        among = min(query.depth, ranked.among or 0) if complete else None
        return replace(ranked, entries=hits, among=among, trust=_trust(ranked, len(terms), complete=complete))


COVERED, COVERED_ALONE = 0.1, 0.2
"""Share of the query's information, as BM25 weighs its words, that the best record must hold for full trust.

Below it only stray words match: the question is in other words than the records. More is asked of a list that is all
there is, where a few hits stand out from nothing. Chosen on tuning questions, see docs/benchmarks.md.
"""


MOST_WORDS = 12
"""Of a longer question no record is expected to hold more than so many words' share."""


def _trust(ranked: RankedList, terms: int, *, complete: bool) -> float:
    best = ranked.entries[0].score if ranked.entries else None
    if best is None or ranked.max_score <= 0:
        return 1.0
    within_reach = ranked.max_score * min(1.0, MOST_WORDS / terms)
    return min(1.0, best / within_reach / (COVERED_ALONE if complete else COVERED))


CATCH_UP = 32
"""Records without a vector that a search embeds before it answers: about half a second; more are left, and said."""


READ, READ_CHARACTERS = 1, 500
"""Records, and characters of each, that are looked at to tell whether the model reads their language."""

MOST_MISSING = 0.05
"""Share of records without a vector from which on words alone rank better."""


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Embeds the query and asks a store's vector index. Its scores are cosines.

    What serves is asked for at each search, inside the source's own thread and only until the query's deadline:
    loading a model must not hold up others.
    `alone` says that no other source is asked, so that some vectors are better than none.
    """

    serving: Callable[[float | None], ActiveSpace]
    alone: bool = False
    name: str = "vector"
    bounded: bool = True
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        """The visible records nearest to the query."""
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        lag, warnings = _catch_up(serving, query.filter)
        if lag > CATCH_UP and not self.alone:
            _refuse_half(serving, query.filter)
        ranked = serving.index.search(serving.embedder.query(query.text), query.filter, query.depth)
        trust = legibility(serving.embedder, query.text, ranked)
        if trust < 1:
            warnings += (f"{serving.embedder.name} does not read this language well; meaning counts less",)
        return replace(_with_leads(ranked), warnings=warnings, trust=trust, lag=lag)


def _with_leads(ranked: RankedList) -> RankedList:
    """The list with the beginning of each text as its snippet."""
    return replace(ranked, entries=[replace(hit, snippet=partial(lead, hit.record.text)) for hit in ranked.entries])


def legibility(embedder: Embedder, question: str, ranked: RankedList) -> float:
    """How well a model reads a question and the records it found; a model that cannot tell is taken to read all."""
    if not isinstance(embedder, LegibilityEmbedder):
        return 1.0
    texts = [hit.record.text[:READ_CHARACTERS] for hit in ranked.entries[:READ]]
    found = embedder.legibility("\n".join(texts)) if texts else 1.0
    return min(embedder.legibility(question), found)


def _refuse_half(serving: ActiveSpace, where: Filter) -> None:
    """Stand back while many records have no vector: those that happen to have one would outrank better ones."""
    covered, missing = serving.index.coverage(where)  # what others are still waiting for is no reason
    if missing > CATCH_UP and missing > MOST_MISSING * (covered + missing):
        raise EmbedderError(
            f"only {covered:,} of {covered + missing:,} records have a vector yet",
            hint="`recollect embed` computes the missing ones",
        )


def _catch_up(serving: ActiveSpace, where: Filter) -> tuple[int, tuple[str, ...]]:
    """Embed the records of the filter that have no vector if that is quick; how many of all lack one, and warnings."""
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
    return lag, tuple(warnings)


@dataclass(frozen=True, slots=True)
class HydeSource:
    """Has an answer written, embeds it as a passage, and asks the vector index.

    Beside the vector source it adds a list of its own, and fails like any source. Where it `replaces` that source it
    bears its name, and falls back to the question itself.
    """

    serving: Callable[[float | None], ActiveSpace]
    write: Callable[[str], str]
    replaces: bool = False
    bounded: bool = True
    timeout: float | None = None

    @property
    def name(self) -> str:
        """`hyde`, or the name of the source it stands for."""
        return "vector" if self.replaces else "hyde"

    def search(self, query: Query) -> RankedList:
        """The visible records nearest to the hypothetical answer."""
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
        ranked = serving.index.search(vector, query.filter, query.depth)
        trust = legibility(serving.embedder, query.text, ranked)
        return replace(_with_leads(ranked), warnings=warnings, trust=trust)

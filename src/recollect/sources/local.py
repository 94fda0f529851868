"""The built-in retrievers: by keyword, by vector, and by the vector of a hypothetical answer (HyDE)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from recollect.analysis import Analyzer, lead, snippet
from recollect.dataclass import dataclass
from recollect.errors import RecollectError, StoreError
from recollect.frequencies import idf, shares
from recollect.fusion import METHODS
from recollect.ranking import Closeness
from recollect.spelling import begin_with, expand, words_of
from recollect.types import ActiveSpace, KeywordIndex, Query, RankedList, Record

if TYPE_CHECKING:
    from recollect.types import Vector

COVERED = 0.2
"""Share of the query's information, as BM25 weighs its words, that the best record must contain for full trust.

Below it only incidental words match: the records use other words than the query. See docs/decisions/049.
"""

MOST_WORDS = 12  # no record is expected to contain more than this many words of a longer query
FEW = 300  # visible records: among far fewer, words count half as much as meaning; among far more, as much
CATCH_UP = 32  # how many records without a vector a search embeds before it answers: at most a second on two cores
CATCH_UP_HEAD = 20  # where more lack one, how many of the best keyword hits a search embeds; see decision 046
READ_CHARACTERS = 500  # characters of the best record that tell whether the model reads its language
READABLE = 0.4  # legibility of a record from which on the model reads it: code has fewer letters a token than prose
SPELLED_BY = 5  # of how many hits the words are shown that were searched for a misspelled one
HALF = 0.5  # the trust below which meaning does not count where it would count in full
REFUSED_S = 60.0  # pause after vectors could not be stored: computing them again and again would slow down every search
REST = "`recollect embed` computes the rest"

_catching_up = threading.Lock()  # one search at a time: many at once must not all wait for the model
_refused: WeakKeyDictionary[object, float] = WeakKeyDictionary()  # an index that could not store vectors → until when


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
        near: tuple[str, ...] = ()
        if query.prefixes or (ranked.unknown and query.ranking.typos):
            ranked, near = _with_near(self.index, query, terms, ranked, analyzer)
        count, scores = len(ranked.entries), ranked.scores[:1]
        complete = count < query.depth
        among = min(query.depth, ranked.among or 0) if complete else None
        trust = 1.0
        if scores and ranked.max_score > 0:
            visible, within_reach = ranked.among or 0, ranked.max_score * min(1.0, MOST_WORDS / len(terms))
            trust = min(1.0, scores[0] / within_reach / COVERED) * (visible + FEW) / (visible + 2 * FEW)
        return replace(
            ranked,
            among=among,
            trust=trust,
            visible=ranked.among,
            strength=partial(_covered, ranked.max_score) if ranked.max_score > 0 else None,
            excerpt=partial(_matching_part, [*terms, *near], analyzer),
        )


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Embeds the query and queries a store's vector index. Its scores are cosines.

    `serving` is called with the query's deadline, because it may load a model. While records have no vector yet, those
    that the `keywords` rank best get theirs first; without `keywords` the source is alone, and answers with the vectors
    that are there. `closeness` says how the cosines of a model are read, for confidence; it gets the deadline, too.
    """

    serving: Callable[[float | None], ActiveSpace]
    keywords: KeywordIndex | None = None
    closeness: Callable[[ActiveSpace, float | None], Closeness | None] | None = None
    name: str = "vector"
    bounded: bool = True
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        lag, share, warnings = _catch_up(serving, query, self.keywords)
        ranked, legibility = _nearest(serving, serving.embedder.query(query.text), query)
        warnings += _secret_warning(query, leaves=_is_remote(serving))
        if legibility < READABLE:
            warnings += (f"{serving.embedder.name} does not read this language well; meaning counts less",)
        if share < HALF and not METHODS[query.ranking.fusion].by_trust:
            share = 0.0  # methods that do not read the trust leave out what has none
        trust = legibility * share
        closeness = self.closeness(serving, query.deadline) if self.closeness and trust >= HALF else None
        strength = closeness.strength if closeness else None
        return replace(ranked, trust=trust, warnings=warnings, lag=lag, strength=strength, excerpt=_beginning)


@dataclass(frozen=True, slots=True)
class HydeSource:
    """Has a language model write an answer, embeds it as a passage, and queries the vector index with it.

    A hypothetical answer lies nearer to real answers than the query does. Beside the vector source, this is a source of
    its own, which may fail. If it `replaces` the vector source, it has its name and falls back to the query itself.
    `remote` says whether the language model is on another machine.
    """

    serving: Callable[[float | None], ActiveSpace]
    write: Callable[[str], str]
    replaces: bool = False
    remote: bool = False
    bounded: bool = True
    timeout: float | None = None

    @property
    def name(self) -> str:
        return "vector" if self.replaces else "hyde"

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=("the query is empty",))
        serving = self.serving(query.deadline)
        warnings = _secret_warning(query, leaves=self.remote or _is_remote(serving))
        try:
            vector = serving.embedder.passages([self.write(query.text)])[0]
        except RecollectError as error:
            if not self.replaces:
                raise
            warnings += (f"HyDE fell back to the question itself: {error.message}",)
            vector = serving.embedder.query(query.text)
        ranked, legibility = _nearest(serving, vector, query)
        return replace(ranked, trust=legibility, warnings=warnings, excerpt=_beginning)


def _with_near(
    index: KeywordIndex, query: Query, terms: Sequence[str], ranked: RankedList, analyzer: Analyzer
) -> tuple[RankedList, tuple[str, ...]]:
    """Search again with the terms that prefixes begin, and those near unknown words, among visible records only.

    A word that is taken for another one counts as that one, also for the most that a record can score.
    """

    def known(wanted: Sequence[str]) -> dict[str, int]:
        query.check()
        return index.known(wanted, query.filter)

    def vocabulary(prefix: str) -> set[str]:
        return index.vocabulary(prefix, query.filter)

    prefixed = begin_with(query.prefixes, analyzer, known, vocabulary) if query.prefixes else {}
    words = words_of(query.text, ranked.unknown, analyzer) if query.ranking.typos else {}
    for prefix in query.prefixes if prefixed else ():
        words.pop(prefix.lower(), None)
    expanded = expand(words, analyzer, known, vocabulary)
    near = {term: each for terms_ in expanded.values() for term, each in terms_.items()}
    weights = {**prefixed, **{term: each.weight for term, each in near.items()}}
    if not weights:
        return ranked, ()
    among, common = ranked.among or 0, shares(analyzer.language)
    most = sum(
        max(each.weight * idf(among, each.having, common.get(term, 0.0)) for term, each in terms_.items())
        for terms_ in expanded.values()
    )
    left = [term for term in terms if term not in expanded]
    ranked = index.search(left, query.filter, query.depth, weights)
    also = _spelled({term: each.word for term, each in near.items()}, ranked, analyzer)
    return replace(ranked, max_score=ranked.max_score + most, also=also), tuple(weights)


def _spelled(words: Mapping[str, str], ranked: RankedList, analyzer: Analyzer) -> tuple[str, ...]:
    """The words to show for some terms: as the first hits spell them."""
    spelled: dict[str, str] = {}
    for hit in ranked.entries[:SPELLED_BY] if words else ():
        for token in analyzer.tokens(passage := hit.record.passage[:READ_CHARACTERS]):
            if token.term in words:
                spelled.setdefault(token.term, passage[token.start : token.end].lower())
    return tuple(dict.fromkeys(spelled.get(term, word) for term, word in words.items()))


def _is_remote(serving: ActiveSpace) -> bool:
    return bool(getattr(serving.embedder, "remote", False))


def _secret_warning(query: Query, *, leaves: bool) -> tuple[str, ...]:
    """The warning about a query with a secret, if the query leaves this machine."""
    if not leaves:
        return ()
    from recollect.redaction import query_warning

    return query_warning(query.text)


def _nearest(serving: ActiveSpace, vector: Vector, query: Query) -> tuple[RankedList, float]:
    """The records nearest to a vector, and how well the model reads the query and the best record."""
    ranked = serving.index.search(vector, query.filter, query.depth)
    legibility = getattr(serving.embedder, "legibility", None)  # an isinstance with a Protocol takes 17 µs
    if legibility is None:
        return ranked, 1.0
    best = ranked.entries[0].record.text[:READ_CHARACTERS] if ranked.entries else query.text
    return ranked, min(legibility(query.text), legibility(best) / READABLE)


def _covered(most: float, score: float) -> float:
    return math.sqrt(max(0.0, score) / most)


def _matching_part(terms: Sequence[str], analyzer: Analyzer, record: Record) -> str:
    return snippet(record.text, terms, analyzer)


def _beginning(record: Record) -> str:
    return lead(record.text)


def _catch_up(serving: ActiveSpace, query: Query, keywords: KeywordIndex | None) -> tuple[int, float, tuple[str, ...]]:
    """Embed records that the query can see and that have no vector, if that is quick.

    Where too many have none, only the best keyword hits get theirs: otherwise records with a vector would outrank
    better ones without. If that cannot be done now, meaning counts for as much as the share of records with a vector.
    Returns how many of all records lack one, that share or 1, and warnings.
    """
    index, warnings = serving.index, [serving.warning] if serving.warning else []
    lag = index.coverage()[1]
    waiting = index.missing(CATCH_UP + 1, query.filter) if lag else []
    if not waiting:
        return lag, 1.0, tuple(warnings)
    many, fair, share = len(waiting) > CATCH_UP, True, 1.0
    try:
        if many:
            fair = keywords is None or _embed_head(serving, query, keywords)
        else:
            _embed(serving, waiting)
    except StoreError:  # its message names the store's path, which is not for every caller
        warnings.append("some records have no vector, and none can be stored now: `recollect doctor` says why")
        fair = not many or keywords is None
    if many:
        covered, missing = index.coverage(query.filter)  # records that the query cannot see do not matter
        rest = serving.rest() if serving.rest else REST
        warnings.append(f"vectors for {covered:,} of {covered + missing:,} records; {rest}")
        share = 1.0 if fair else covered / (covered + missing)
    return index.coverage()[1], share, tuple(warnings)


def _embed_head(serving: ActiveSpace, query: Query, keywords: KeywordIndex) -> bool:
    """Embed the best keyword hits that have no vector; False where there is no time for it now."""
    if query.deadline is not None or not _catching_up.acquire(blocking=False):
        return False
    try:
        terms = keywords.analyzer.query(query.text)
        best = keywords.search(terms, query.filter, CATCH_UP_HEAD).entries if terms else ()
        passages = list(dict.fromkeys(hit.record.passage for hit in best))
        known = serving.index.known(passages)
        if new := [passage for passage in passages if passage not in known]:
            _embed(serving, new)
        return True
    finally:
        _catching_up.release()


def _embed(serving: ActiveSpace, passages: Sequence[str]) -> None:
    """Compute and store vectors, unless they could not be stored a moment ago."""
    index, now = serving.index, time.monotonic()
    if now < _refused.get(index, 0.0):
        raise StoreError("vectors could not be stored")
    try:
        index.save(passages, serving.embedder.passages(passages))
    except StoreError:
        _refused[index] = now + REFUSED_S
        raise

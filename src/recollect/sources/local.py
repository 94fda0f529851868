"""The built-in retrievers: by keyword, by vector, and by the vector of a hypothetical answer (HyDE).

A query that has only fields gets a list of what they leave, newest first.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from recollect.analysis import Analyzer, lead, snippet, term_hash
from recollect.dataclass import dataclass
from recollect.errors import RecollectError, StoreError
from recollect.frequencies import BACKGROUND, idf, shares
from recollect.fusion import METHODS
from recollect.options import LIKELY
from recollect.querylang import contained
from recollect.ranking import FEWEST, TRUSTED, Closeness
from recollect.spelling import NearTerm, begin_with, expand, reworded, spellings, words_of
from recollect.types import ActiveSpace, Hit, KeywordIndex, Query, RankedList, Record, Records, Vector

EMPTY, NO_WORDS = "the query is empty", "the query has no words to look for"
COVERED, COVERED_BY_FEW = 0.2, 0.7
"""Shares of the query's information, as BM25 weighs its words, that the best record must contain for full trust.

Below them only incidental words match: the records use other words than the query. Among many records the best one
needs the first share, among very few the second, because any word may be in one of them only. See docs/decisions/049.
"""

MOST_WORDS = 12  # no record is expected to contain more than this many words of a longer query
FEW = 300  # visible records: among far fewer, words count half as much as meaning; among far more, as much
VERY_FEW = 50  # visible records among which any word may be in one of them only
KEYWORDS = 3  # words of a query that may name what it looks for, as people type it: "citus tenants"
BY_CHANCE = 3.0  # records, visible or of general text, that may contain all of these words by chance, at the most
ALL_WORDS = 0.6  # the confidence of the first record with all of them; that of the next is half of it; decision 052
LONGEST_CHECKED = 10_000  # characters of such a record; a longer text has room for words that are unrelated
CATCH_UP = 32  # how many records without a vector a search embeds before it answers: at most a second on two cores
CATCH_UP_HEAD = 20  # where more lack one, how many of the best keyword hits a search embeds; see decision 046
READ_CHARACTERS = 500  # characters of the best record that tell whether the model reads its language
READ_RECORDS, CODE_RECORDS = 5, 0.8  # records that are looked at, and the share of them that must be code
CODE_SHARE = 0.03  # the share of brackets, underscores and the like in code; most prose has less than a third of it
IN_CODE = 2.0  # how much meaning counts among code, whose words are not those of a question; see decision 070
READABLE = 0.2  # legibility of a record from which on the model reads it: code has fewer letters a token than prose
SPELLED_BY = 5  # records whose words show how a word that was searched for a misspelled one is spelled
REFUSED_S = 60.0  # pause after vectors could not be stored: computing them again and again would slow down every search
REST = "`recollect embed` computes the rest"

_WORDS = re.compile(r"[^\W\d_]+")
_MARKS = re.compile(r"[()\[\]{}<>=_;]")
_catching_up = threading.Lock()  # one search at a time: many at once must not all wait for the model
_refused: WeakKeyDictionary[object, float] = WeakKeyDictionary()  # an index that could not store vectors → until when


@dataclass(frozen=True, slots=True)
class Nearby:
    """Terms to search besides those of a query, with their weights.

    They begin with a prefix of the query, or are near a misspelled word of it. `misspelled` maps the term of each
    misspelled word to its near terms. `corrections` maps a misspelled word to the word that it stands for.
    """

    weights: Mapping[str, float]
    misspelled: Mapping[str, Mapping[str, NearTerm]]
    corrections: Mapping[str, str]


NOTHING = Nearby({}, {}, {})


class Spelling:
    """Finds the terms nearby a query among visible records, once for all sources of the query."""

    def __init__(self, index: KeywordIndex) -> None:
        self.index = index
        self._lock = threading.Lock()  # with a deadline, the sources run in threads
        self._nearby: tuple[object, Nearby] | None = None

    def nearby(self, query: Query, unknown: Collection[str] | None = None) -> Nearby:
        """The terms nearby a query. `unknown` are its terms that no visible record has, if the caller knows them."""
        asked = (query.words, query.filter, query.prefixes)
        with self._lock:
            if self._nearby is None or self._nearby[0] != asked:
                self._nearby = asked, self._find(query, unknown)
            return self._nearby[1]

    def _find(self, query: Query, unknown: Collection[str] | None) -> Nearby:
        index, analyzer = self.index, self.index.analyzer

        def known(terms: Sequence[str]) -> dict[str, int]:
            query.check()
            return index.known(terms, query.filter)

        def vocabulary(prefix: str) -> set[str]:
            return index.vocabulary(prefix, query.filter)

        if not query.ranking.typos:
            unknown = ()
        elif unknown is None:
            terms = analyzer.query(query.words)
            unknown = set(terms).difference(known(terms))
        if not query.prefixes and not unknown:
            return NOTHING
        prefixed = begin_with(query.prefixes, analyzer, known, vocabulary)
        words = words_of(query.words, unknown, analyzer) if unknown else {}
        for prefix in query.prefixes if prefixed else ():
            words.pop(prefix.lower(), None)
        misspelled = expand(words, analyzer, known, vocabulary)
        corrections = self._spell(query, words, misspelled)
        weights = prefixed | {term: near.weight for terms in misspelled.values() for term, near in terms.items()}
        return Nearby(weights, misspelled, corrections)

    def _spell(
        self, query: Query, words: Mapping[str, str], misspelled: dict[str, dict[str, NearTerm]]
    ) -> dict[str, str]:
        """Give near terms the words of visible records: an edited word may not exist ("configurating"), nor a stem.

        Returns the corrections: each misspelled word that is one edit away from such a word.
        """
        analyzer, wanted = self.index.analyzer, [term for terms in misspelled.values() for term in terms]
        hits = self.index.search(wanted, query.filter, SPELLED_BY).entries if wanted else ()
        written = list(dict.fromkeys(word for hit in hits for word in _WORDS.findall(hit.record.passage.lower())))
        corrections: dict[str, str] = {}
        for word, near in ((word, misspelled[term]) for word, term in words.items() if term in misspelled):
            spelled = spellings(word, written, analyzer)
            if best := next((spelled[term] for term in near if term in spelled), ""):
                corrections[word] = best
            if not spelled.keys() >= near.keys():
                spelled = dict(zip(analyzer.terms(written), written, strict=True)) | spelled
            near.update({term: each._replace(word=spelled.get(term, each.word)) for term, each in near.items()})
        return corrections


@dataclass(frozen=True, slots=True)
class KeywordSource:
    """Queries a store's keyword index. Its scores are those of BM25: positive, without an upper bound."""

    index: KeywordIndex
    spelling: Spelling
    name: str = "keyword"
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        analyzer = self.index.analyzer
        terms = analyzer.query(query.words)
        if not terms:
            return RankedList(self.name, warnings=(NO_WORDS if query.text.strip() else EMPTY,))
        ranked = self.index.search(terms, query.filter, query.depth)
        nearby = self.spelling.nearby(query, ranked.unknown)
        if nearby.weights:
            ranked = self._with_near(query, terms, nearby, ranked.among or 0)
        count, scores = len(ranked.entries), ranked.scores[:1]
        complete = count < query.depth
        among = min(query.depth, ranked.among or 0) if complete else None
        trust = 1.0
        if scores and ranked.max_score > 0:
            visible, within_reach = ranked.among or 0, ranked.max_score * min(1.0, MOST_WORDS / len(terms))
            covered = COVERED + (COVERED_BY_FEW - COVERED) * VERY_FEW / (VERY_FEW + visible)
            trust = min(1.0, scores[0] / within_reach / covered) * (visible + FEW) / (visible + 2 * FEW)
        return replace(
            ranked,
            among=among,
            trust=trust,
            visible=ranked.among,
            strength=partial(_covered, ranked.max_score) if ranked.max_score > 0 else None,
            excerpt=partial(_matching_part, [*terms, *nearby.weights], analyzer),
            least_confidence=() if nearby.weights else self._least_confidence(query, set(terms), ranked),
        )

    def _least_confidence(self, query: Query, terms: Collection[str], ranked: RankedList) -> tuple[float, ...]:
        """That of the first records: high for those with all words of a short query that few records have, else 0."""
        if not ranked.entries or ranked.unknown or len(query.words.split()) > KEYWORDS:
            return ()
        analyzer, by_chance = self.index.analyzer, max(FEWEST, ranked.among or 0) * math.exp(-ranked.max_score)
        in_general = BACKGROUND * math.prod(shares(analyzer.language).get(term, 0.0) for term in terms)
        if max(by_chance, in_general) > BY_CHANCE:
            return ()
        hashes, first = set(map(term_hash, terms)), ranked.entries[: int(ALL_WORDS / LIKELY)]

        def has_all(text: str) -> bool:
            return len(text) <= LONGEST_CHECKED and hashes.issubset(analyzer.hashed(text)[0])

        return tuple(ALL_WORDS / rank if has_all(hit.record.passage) else 0.0 for rank, hit in enumerate(first, 1))

    def _with_near(self, query: Query, terms: Sequence[str], nearby: Nearby, among: int) -> RankedList:
        """Search again with the nearby terms.

        A word that is taken for another one counts as that one for the most that a record can score, and for less in
        the score: so a record with the other word has a lower confidence.
        """
        common = shares(self.index.analyzer.language)
        most = sum(
            max(idf(among, each.having, common.get(term, 0.0)) for term, each in near.items())
            for near in nearby.misspelled.values()
        )
        left = [term for term in terms if term not in nearby.misspelled]
        ranked = self.index.search(left, query.filter, query.depth, nearby.weights)
        also = dict.fromkeys(near.word for terms in nearby.misspelled.values() for near in terms.values())
        return replace(ranked, max_score=ranked.max_score + most, also=tuple(also))


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Embeds the query and queries a store's vector index. Its scores are cosines.

    `serving` is called with the query's deadline, because it may load a model. While records have no vector yet, those
    that the keyword index of `spelling` ranks best get theirs first; without `spelling` the source is alone, embeds the
    query as it is written, and answers with the vectors that are there. `closeness` says how the cosines of a model are
    read, for confidence; it gets the deadline, too.
    """

    serving: Callable[[float | None], ActiveSpace]
    spelling: Spelling | None = None
    closeness: Callable[[ActiveSpace, float | None], Closeness | None] | None = None
    name: str = "vector"
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=(EMPTY,))
        serving = self.serving(query.deadline)
        lag, share, warnings = _catch_up(serving, query, self.spelling.index if self.spelling else None)
        read_as = self._corrected(query, serving)
        corrected = replace(query, text=read_as) if read_as else query
        ranked, texts = _nearest(serving, serving.query(corrected.text), corrected)
        legibility = _legibility(serving, corrected, texts)
        warnings += _secret_warning(query, leaves=_is_remote(serving))
        if legibility < READABLE and not query.unlikely:
            warnings += (f"{serving.embedder.name} does not read this query well; meaning counts less",)
        if share < TRUSTED and not METHODS[query.ranking.fusion].by_trust:
            share = 0.0  # methods that do not read the trust leave out what has none
        trust = legibility * share * (IN_CODE if _are_code(texts) else 1.0)
        closeness = self.closeness(serving, query.deadline) if self.closeness and trust >= TRUSTED else None
        strength = closeness.strength if closeness else None
        return replace(
            ranked, bounded=True, trust=trust, warnings=warnings, lag=lag, strength=strength, excerpt=_beginning,
            read_as=read_as,
        )  # fmt: skip

    def _corrected(self, query: Query, serving: ActiveSpace) -> str:
        """The query with its misspelled words corrected, or nothing if none is.

        Correct words that no record has stay: what the model has a token for is a word, and the first letter of a
        misspelled word is nearly always right.
        """
        is_word = getattr(serving.embedder, "is_word", None)
        if self.spelling is None or is_word is None:
            return ""
        corrections = self.spelling.nearby(query).corrections
        words = {
            word: correction
            for word, correction in corrections.items()
            if word[0] == correction[0] and not is_word(word)
        }
        return reworded(query.text, words) if words else ""


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
    timeout: float | None = None

    @property
    def name(self) -> str:
        return "vector" if self.replaces else "hyde"

    def search(self, query: Query) -> RankedList:
        if not query.text.strip():
            return RankedList(self.name, warnings=(EMPTY,))
        serving = self.serving(query.deadline)
        warnings = _secret_warning(query, leaves=self.remote or _is_remote(serving))
        try:
            vector = serving.embed([self.write(query.text)])[0]
        except RecollectError as error:
            if not self.replaces:
                raise
            warnings += (f"HyDE fell back to the question itself: {error.message}",)
            vector = serving.query(query.text)
        ranked, texts = _nearest(serving, vector, query)
        trust = _legibility(serving, query, texts)
        return replace(ranked, bounded=True, trust=trust, warnings=warnings, excerpt=_beginning)


@dataclass(frozen=True, slots=True)
class ListSource:
    """Lists the records that pass the filter, newest first: a query of fields alone has no words to rank by."""

    records: Records
    analyzer: Analyzer
    name: str = "list"
    timeout: float | None = None

    def search(self, query: Query) -> RankedList:
        where, listed, offset = query.filter, list[Record](), 0
        while len(listed) < query.depth and (page := self.records.list(where, limit=query.depth, offset=offset)):
            query.check()
            offset += len(page)
            listed += [one for one in page if not any(contained(where.without, one.title, one.text, self.analyzer))]
        # One score a rank: the methods of fusion and the stages after it read scores.
        ranked = enumerate(listed[: query.depth], 1)
        hits = [Hit(record.id, 1 / rank, record=record, text_hash=record.text_hash) for rank, record in ranked]
        return RankedList(self.name, hits, excerpt=_beginning)


def _is_remote(serving: ActiveSpace) -> bool:
    return bool(getattr(serving.embedder, "remote", False))


def _secret_warning(query: Query, *, leaves: bool) -> tuple[str, ...]:
    """The warning about a query with a secret, if the query leaves this machine."""
    if not leaves:
        return ()
    from recollect.redaction import query_warning

    return query_warning(query.text)


def _nearest(serving: ActiveSpace, vector: Vector, query: Query) -> tuple[RankedList, list[str]]:
    """The records nearest to a vector, and how the texts of the first ones begin."""
    ranked = serving.index.search(vector, query.filter, query.depth)
    return ranked, [hit.record.text[:READ_CHARACTERS] for hit in ranked.entries[:READ_RECORDS]]


def _legibility(serving: ActiveSpace, query: Query, texts: Sequence[str]) -> float:
    """How well the model reads the query and the best record."""
    legibility: Callable[[str], float] | None = getattr(serving.embedder, "legibility", None)
    if legibility is None:  # an isinstance with a Protocol takes 17 µs
        return 1.0
    return min(legibility(query.text), legibility(texts[0] if texts else query.text) / READABLE)


def _are_code(texts: Sequence[str]) -> bool:
    """Whether nearly all of the texts are code."""
    code = sum(len(_MARKS.findall(text)) > CODE_SHARE * len(text) for text in texts)
    return code > 0 and code >= CODE_RECORDS * len(texts)


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
    Returns how many of all records lack one (of those that the query can see, if a count of all asks many servers),
    that share or 1, and warnings.
    """
    index, warnings = serving.index, [serving.warning] if serving.warning else []
    counted = query.filter if getattr(index, "partitioned", False) else None
    lag = index.coverage(counted)[1]
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
    return index.coverage(counted)[1], share, tuple(warnings)


def _embed_head(serving: ActiveSpace, query: Query, keywords: KeywordIndex) -> bool:
    """Embed the best keyword hits that have no vector; False where there is no time for it now."""
    if query.deadline is not None or not _catching_up.acquire(blocking=False):
        return False
    try:
        terms = keywords.analyzer.query(query.words)
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
        index.save(passages, serving.embed(passages))
    except StoreError:
        _refused[index] = now + REFUSED_S
        raise

"""The candidates of one query: lists merged and fused, what the sources say about each document, and the results."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from recollect.fusion import METHODS, Ranking, combine
from recollect.ranking import LOWEST_RANK, TRUSTED, Evidence, confidence, join_chances
from recollect.types import Candidate, Columns, Contribution, Hit, Pool, Query, RankedList, RankedRows, Record, Result
from recollect.types.records import micros
from recollect.types.search import turns_around

BEFORE_SHARE = 0.3  # how much the confidence of what was said before a turn counts for it (decision 052)


class Fusion:
    """The fused ranking of one query's lists, whose candidates become results when they are shown.

    Hits with the same id or the same text are merged into one candidate, that of the first list that has it. Merging
    comes before ranking, so it leaves no gap in the ranks. `duplicates` counts the hits that were merged.
    """

    def __init__(self, query: Query, lists: Sequence[RankedList]) -> None:
        self._pool, self._lists = Pool(), lists
        self._columns: dict[int | str, Columns] = {}
        self._by_text: dict[bytes, int | str] = {}
        self.duplicates = 0
        # Rows are numbers of one store; where other documents come in, all are told apart by their ids.
        by_row = all(isinstance(ranked.entries, RankedRows) for ranked in lists if ranked.entries)
        self._rankings = [self._ranking(query, ranked, by_row) for ranked in lists]
        counted, options = [ranking for ranking in self._rankings if ranking.weight > 0], query.ranking
        self.candidates = [
            Candidate(self._pool, key, fused, base, self._columns[key])
            for key, fused, base in combine(counted, options.fusion, options.rrf_k, options.normalisation)
        ]
        self.judgment = Judgment(self._rankings, lists, self._columns)
        self._pool.confidence = (lambda _: 0.0) if query.unlikely else self.judgment.confidence

    def _ranking(self, query: Query, ranked: RankedList, by_row: bool) -> Ranking:
        """A list in columns, with the keys of candidates."""
        keys: list[int | str]
        scores, ranks, bounded = list[float | None](), list[int](), ranked.bounded
        if by_row and isinstance(ranked.entries, RankedRows):
            rows = self._pool.rows = ranked.entries
            scores.extend(rows.scores)
            keys = list(map(self._by_text.setdefault, rows.folds, rows.rows))
            columns = zip(rows.folds, rows.times, rows.importances, rows.decays, rows.files, rows.lines, strict=True)
            self._columns.update(zip(rows.rows, columns, strict=True))
            self.duplicates += 0 if keys == rows.rows else sum(map(operator.ne, keys, rows.rows))
        else:
            keys = [self._key(hit) for hit in ranked.entries]
            for hit in ranked.entries:
                scores.append(hit.score)
                ranks += [] if hit.rank is None else [hit.rank]
        if None in scores and METHODS[query.ranking.fusion].by_score:
            scores, bounded = [1.0 / rank for rank in range(1, len(keys) + 1)], True
        weight = _weight(query, ranked, self._lists)
        return Ranking(ranked.source, keys, scores, weight, bounded, ranked.among, ranks).without_repeats()

    def _key(self, hit: Hit) -> int | str:
        """The id of the document that a hit is: its own, or that of an earlier one with the same text."""
        text_hash = hit.text_hash or hit.record.text_hash
        key = hit.id if hit.id in self._columns else self._by_text.setdefault(text_hash, hit.id)
        if key == hit.id:
            record = hit.record
            file, line = _file_and_line(record)
            time_ = micros(record.time) or 0
            self._columns.setdefault(key, (text_hash, time_, record.importance, record.decay, file, line))
            self._pool.records.setdefault(key, record)
        else:
            self.duplicates += 1
        return key

    def results(self, candidates: Sequence[Candidate]) -> list[Result]:
        """The results that candidates become, with their records and what each source gave to them."""
        return [
            Result(
                self._pool.records[candidate.key],
                candidate.fused,
                candidate.base,
                shares := self._shares(candidate),
                self._excerpt(candidate),
                next((shares[name].score for name in ("vector", "hyde") if name in shares), None),
                candidate.freshness,
                candidate.confidence,
                candidate.factors,
                candidate.moves,
                tuple(self.results(candidate.passages)) if candidate.passages else (),
            )
            for candidate in self._pool.read(candidates)
        ]

    def _shares(self, candidate: Candidate) -> dict[str, Contribution]:
        shares = (
            (ranking.source, ranking.contribution(candidate.key)) for ranking in self._rankings if ranking.amounts
        )
        return {source: share for source, share in shares if share is not None}

    def _excerpt(self, candidate: Candidate) -> Callable[[Record], str] | None:
        """Makes the snippet, as the first source does that can."""
        for ranked, ranking in zip(self._lists, self._rankings, strict=True):
            if ranked.excerpt is not None and ranking.position(candidate.key) is not None:
                return ranked.excerpt
        return None


class Judgment:
    """What the sources of one query say about each document. It does not refer to the pool, which refers to it."""

    def __init__(
        self, rankings: Sequence[Ranking], lists: Sequence[RankedList], columns: Mapping[int | str, Columns]
    ) -> None:
        self.rankings, self.lists, self._columns = rankings, lists, columns
        self._visible = 0

    def evidence(self, key: int | str) -> tuple[dict[str, Evidence], int] | None:
        """What each source that can judge says about a document, and among how many records it was searched.

        None if only others that can be trusted ranked it: external systems, HyDE. A document that the vectors rank
        below LOWEST_RANK, or not at all, counts like the one with that rank.
        """
        evidence, is_ranked = {}, False
        for ranking, strength, least in self._judges:
            at = ranking.position(key) if ranking.weight > 0 else None
            if at is None:
                evidence[ranking.source] = Evidence(least, LOWEST_RANK)
            else:
                is_ranked = True
                evidence[ranking.source] = Evidence(max(least, strength(ranking.scores[at] or 0.0)), ranking.ranks[at])
        return (evidence, self._visible) if evidence and (is_ranked or not self._is_trusted(key)) else None

    def _is_trusted(self, key: int | str) -> bool:
        """Whether a source that can be trusted ranked a document."""
        pairs = zip(self.rankings, self.lists, strict=True)
        return any(ranked.trust >= TRUSTED and ranking.position(key) is not None for ranking, ranked in pairs)

    @cached_property
    def _judges(self) -> list[tuple[Ranking, Callable[[float], float], float]]:
        """The rankings of sources that can judge, how each turns a score into strength, and the least strength."""
        judges = []
        for ranking, ranked in zip(self.rankings, self.lists, strict=True):
            if (strength := ranked.strength) is None:
                continue
            lowest = ranking.scores[min(LOWEST_RANK, len(ranking.keys)) - 1] if ranked.bounded and ranking.keys else 0.0
            judges.append((ranking, strength, strength(lowest or 0.0)))
            known = len(ranking.keys) if ranking.weight > 0 else 0
            self._visible = max(self._visible, known if ranked.visible is None else ranked.visible)
        return judges

    def confidence(self, key: int | str) -> float | None:
        """The probability that a document is relevant; None if no source that can judge has ranked it.

        What was said just before a turn counts for it: an answer seldom repeats the words of a question.
        """
        evidence = self.evidence(key)
        if evidence is None:
            return None
        before = map(self.evidence, self.before.get(key, ()))
        chances = (confidence(*other) for other in before if other)
        own = max(confidence(*evidence), self.least(key))
        return round(join_chances(own, chances, BEFORE_SHARE), 6)

    def least(self, key: int | str) -> float:
        """The confidence that a source gives to a document whatever the evidence is, or 0."""
        counted = (
            (ranking.position(key), ranked.least_confidence)
            for ranking, ranked in zip(self.rankings, self.lists, strict=True)
            if ranked.least_confidence and ranking.weight > 0
        )
        return max((least[at] for at, least in counted if at is not None and at < len(least)), default=0.0)

    @cached_property
    def before(self) -> dict[int | str, list[int | str]]:
        """For each turn of a conversation the one before it, if that is ranked, too."""
        places = ((key, columns[4], columns[5]) for key, columns in self._columns.items())
        return turns_around(places, before=1, after=0)


def _file_and_line(record: Record) -> tuple[str | None, int]:
    """What a record is a part of, and where, as in `RankedRows`."""
    if record.kind == "turn" and record.source and record.author_session:
        return f"{record.source} {record.author_session}", -max(1, micros(record.created_at) or 1)
    if record.kind == "chunk" and record.place and record.place.startswith("message "):
        return f"{record.path} {record.place}", 0
    return record.path if record.kind == "chunk" else None, record.lines[0] if record.lines else 0


def _weight(query: Query, ranked: RankedList, lists: Sequence[RankedList]) -> float:
    """A source's weight, times its trust where the fusion method reads that.

    Other methods, whose formulas people know, only leave out a source that understood nothing. If no other source has
    found anything, a source keeps its whole weight.
    """
    weight = query.weights.get(ranked.source, 1.0)
    others = (other for other in lists if other.source != ranked.source and query.weights.get(other.source, 1.0) > 0)
    if not any(other.entries and other.trust > 0 for other in others):
        return weight
    return weight * ranked.trust if METHODS[query.ranking.fusion].by_trust or ranked.trust == 0 else weight

"""Every step after fusion, in the order in which they run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from recollect.fusion import minmax
from recollect.ranking import DAY, HALF_LIVES, fold, importance_factor, mmr
from recollect.ranking import decay as decay_factor
from recollect.types import FileState, Query, Record, Result, WarnedResults

if TYPE_CHECKING:
    from recollect.types import Vector


def in_scope(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what is not of the query's scope."""
    where = query.filter
    return [result for result in results if where.any_scope or where.scope.admits(result.record.scope)]


def in_force(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what was superseded or has expired at the moment asked about."""
    where = query.filter
    return [
        result
        for result in results
        if (where.superseded or not _passed(result.record.superseded_at, where.moment))
        and not _passed(result.record.expires_at, where.moment)
    ]


def _passed(at: datetime | None, moment: datetime) -> bool:
    return at is not None and at <= moment


def decay(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Let what has a decaying class, or with `half_life_days` whatever has no class, count less with age."""
    if not query.ranking.decay:
        return results
    moment = query.filter.moment
    return _sorted([_aged(result, moment, query.ranking.half_life_days) for result in results])


def importance(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Let importance raise or lower what does not have the middle one."""
    weight = query.ranking.importance_weight
    return _sorted(
        [
            result if result.record.importance == 0.5 or weight == 0  # noqa: PLR2004  (the middle of 0 to 1)
            else result.scaled("importance", importance_factor(result.record.importance, weight))
            for result in results
        ]
    )  # fmt: skip


def _aged(result: Result, moment: datetime, days: float | None) -> Result:
    half_life = _half_life(result.record, days)
    if math.isinf(half_life):
        return result
    age = (moment - result.record.time).total_seconds()
    return result.scaled("decay", decay_factor(age, half_life))


def _half_life(record: Record, days: float | None) -> float:
    if record.decay is not None:
        return HALF_LIVES[record.decay]
    return math.inf if days is None else days * DAY


def _sorted(results: list[Result]) -> list[Result]:
    """By total; equal ones keep the order that fusion gave them."""
    return sorted(results, key=lambda result: -result.total)


def threshold(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Drop what scores below `min_score`."""
    return [result for result in results if result.score >= query.ranking.min_score]


def limit(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Keep as many as were asked for."""
    return results[: query.limit]


WEIGHT = 0.5
"""Share of the model's word in the blend; the rest is the fused score's. Chosen as docs/reranking.md tells."""

NOTHING = 1e-6
"""A total that no factor makes something of: such results stay at the end."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model says of records: a number for each of the first ones, as far as it came, and what kept it."""

    scores: tuple[float, ...] = ()
    warning: str = ""


ScoresOf: TypeAlias = Callable[[Query, Sequence[Record]], Scored]
"""A query and records → how well each answers it. It never raises, and keeps to the query's deadline."""


@dataclass(frozen=True, slots=True)
class Rerank:
    """Reorders the first `head` results by a blend of their score and the model's; the others stay below, as they are.

    The blend is laid between the head's lowest and highest total, so that what passed the threshold still does, and
    nothing of the head falls below the rest. It enters as the factor `rerank`.
    """

    scores: ScoresOf
    head: int = 20
    weight: float = WEIGHT

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """The same results; in the same order where the model has failed, or had no time."""
        head = list(takewhile(lambda result: result.total > NOTHING, results[: self.head]))
        if len(head) < 2:  # noqa: PLR2004  (one result has no rival)
            return results
        said = self.scores(query, [result.record for result in head])
        head = head[: len(said.scores)]
        moved = _blended(head, said.scores, self.weight) if len(head) > 1 else head
        return WarnedResults([*moved, *results[len(head) :]], said.warning)


def _blended(head: Sequence[Result], scores: Sequence[float], weight: float) -> list[Result]:
    """The head by falling blend; equal ones keep their order."""
    totals = [result.total for result in head]
    low, span = min(totals), max(totals) - min(totals)
    blend = [
        (1 - weight) * ours + weight * theirs
        for ours, theirs in zip(minmax(totals, False), minmax(scores, False), strict=True)
    ]
    order = sorted(range(len(head)), key=lambda i: -blend[i])
    scaled = [head[i].scaled("rerank", (low + span * blend[i]) / totals[i]) for i in order]
    # Rounding may set two that are all but equal apart; the order is by total to the last digit.
    return sorted(scaled, key=lambda result: -result.total)


HEAD = 50
"""Results looked at: two that say nearly the same stand near each other."""

ALIKE = 0.4
"""Share of their words that two statements of the same thing have in common: the answers are what differs."""

SIZE = 0.7
"""The shorter of the two over the longer: what one says more may be the very thing."""

LONGEST = 60
"""Words of a statement; a longer text says many things."""

LETTERS = 12
"""Of a long word, with the space behind it."""

_WORD = re.compile(r"\w+")


def newer(query: Query, results: Sequence[Result]) -> Sequence[Result]:
    """Put a newer fact before an older one that answers the question in the same words.

    Both must hold the same words of the question: what else they share may be about something else.
    """
    if not query.ranking.prefer_newer or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
        return results
    asked = frozenset(_words(query.text))
    placed: list[_Said] = []
    for result in results[:HEAD]:
        said = _said(result, asked)
        placed.insert(next((i for i, older in enumerate(placed) if said.renews(older)), len(placed)), said)
    order = {result.record.id: rank for rank, result in enumerate(results, 1)}
    head = [said.result.moved("newer", order[said.result.record.id], rank) for rank, said in enumerate(placed, 1)]
    return [*head, *results[HEAD:]]


@dataclass(frozen=True, slots=True)
class _Said:
    """A result's words, how many they are, and which of them the question has."""

    result: Result
    words: frozenset[str]
    length: int
    asked: frozenset[str]

    def renews(self, older: _Said) -> bool:
        """Whether this says the same thing anew. What is quick to tell comes first: this is asked of every pair."""
        if not self.asked or self.asked != older.asked or self.result.record.time <= older.result.record.time:
            return False
        short, long = sorted((self.length, older.length))
        if long > LONGEST or short < SIZE * long:
            return False
        return len(self.words & older.words) >= ALIKE * len(self.words | older.words)


def _said(result: Result, asked: frozenset[str]) -> _Said:
    """Only facts say something in this sense; the words of a chunk are not looked at."""
    words = _words(result.record.text) if result.record.kind == "fact" else []
    return _Said(result, frozenset(words), len(words), asked.intersection(words))


def _words(text: str) -> list[str]:
    """The words of a statement; none of a text that is too long to be one, which saves the time to read it."""
    return _WORD.findall(text.casefold()) if len(text) <= LONGEST * LETTERS else []


COMPARED_CHARACTERS = 4_000
"""Of a text without a vector, whose words are compared: a book's words take a second to compare with others."""

VectorsOf: TypeAlias = "Callable[[Sequence[str]], Mapping[str, Vector]]"
"""Record ids → the vectors that are known."""


@dataclass(frozen=True, slots=True)
class Mmr:
    """Reorders the head of the ranking so that it does not say the same thing twice."""

    vectors: VectorsOf

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:
        """As many picks as will be shown, of all results; nothing when the query does not ask for it."""
        balance = query.ranking.mmr_lambda
        if not query.ranking.mmr or balance == 1 or len(results) < 2:  # noqa: PLR2004  (one result has no rival)
            return results
        # A stage before may have put one of less score first: what stands first is the more relevant.
        relevance = minmax(list(accumulate((result.total for result in results), min)), True)
        picks = mmr(relevance, self._similarity(query, results), balance=balance, picks=query.limit)
        return [results[i].moved("mmr", i + 1, rank) for rank, i in enumerate(picks, 1)]

    def _similarity(self, query: Query, results: Sequence[Result]) -> Callable[[int], Sequence[float]]:
        ids = [result.record.id for result in results]
        known = self.vectors(ids)
        if all(key in known for key in ids):
            import numpy as np

            matrix = np.stack([known[key] for key in ids])
            return _checked(query, lambda i: matrix @ matrix[i])
        words = [set(fold(result.record.text[:COMPARED_CHARACTERS]).split()) for result in results]
        return _checked(query, lambda i: [_jaccard(words[i], other) for other in words])


def _checked(query: Query, similarity: Callable[[int], Sequence[float]]) -> Callable[[int], Sequence[float]]:
    """The same function, which ends with an error when nobody waits for the answer any more."""

    def row(i: int) -> Sequence[float]:
        query.check()
        return similarity(i)

    return row


def _jaccard(a: set[str], b: set[str]) -> float:
    union = len(a | b)
    return len(a & b) / union if union else 1.0


StatesOf: TypeAlias = Callable[[Sequence[str]], Mapping[str, FileState]]
"""Paths → what was true of those files when they were indexed."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Marks each result that names a file as `fresh`, `changed` or `missing`; `unknown` where it was never indexed."""

    states: StatesOf

    def __call__(self, query: Query, results: Sequence[Result]) -> Sequence[Result]:  # noqa: ARG002  (a stage's form)
        """The same results, marked."""
        paths = {result.record.path for result in results if result.record.path and result.record.kind != "outside"}
        if not paths:
            return results
        states = self.states(sorted(paths))
        marks = {path: freshness(path, states.get(path)) for path in paths}
        return [
            replace(result, freshness=marks[result.record.path]) if result.record.path in marks else result
            for result in results
        ]


def freshness(path: str, state: FileState | None) -> str:
    """How a file stands to what was indexed of it."""
    try:
        stat = Path(path).stat()
        if state is None:
            return "unknown"
        if (stat.st_mtime_ns, stat.st_size) == (state.mtime_ns, state.size):
            return "fresh"
        same = stat.st_size == state.size and FileState.digest_of(Path(path).read_bytes()) == state.digest
    except (OSError, ValueError):
        return "missing"
    return "fresh" if same else "changed"

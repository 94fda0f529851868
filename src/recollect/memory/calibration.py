"""What unrelated queries get from a store: the measure of confidence, drawn from the store's own words.

Unrelated queries are words of many records, shuffled. How the best record for each of them scores is kept in the store,
for each scope apart, so that nobody's records tell on another's, and taken anew when the store has changed much.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, pstdev
from typing import TypeAlias

from recollect.analysis import Analyzer
from recollect.errors import RecollectError, TimedOut
from recollect.memory.embeddings import Embeddings, errors_of
from recollect.ranking import LENGTHS, Evidence, Null
from recollect.stages.confidence import RANK_TO_BEAT, Gauge, evidence
from recollect.types import Filter, Query, Serving, Store

VERSION = 1
"""Raised whenever the same store would give other numbers."""

EACH = 24
"""Unrelated queries of each length: 144 in all, one or two seconds with a small model."""

PAGES, PAGE = 20, 25
"""Records that words are drawn from: so many stretches of so many, spread over the store."""

MUCH = 0.2
"""Share by which the number of records may change before the queries are asked again."""

SEED = 1

Ask: TypeAlias = Callable[[str, Filter], Evidence]
"""A query, and what it may see → what a source says for the best record."""


class Calibration:
    """Gauges for queries. What was measured is kept in the store, and in memory where the store may only be read."""

    def __init__(self, store: Store, embeddings: Embeddings) -> None:
        self._store = store
        self._embeddings = embeddings
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[int, Null]] = {}

    def gauge(self, query: Query, sources: Collection[str]) -> Gauge:
        """By what this query's results are judged, where these sources have answered."""
        index = self._store.keywords
        terms = index.analyzer.query(query.text)
        whole = Filter(query.filter.scope, any_scope=query.filter.any_scope, now=query.filter.now)
        nulls = {}
        if "keyword" in sources:
            what = f"keyword {index.analyzer.fingerprint}"
            nulls["keyword"] = self._null(what, whole, self._by_words, query.deadline)
        if "vector" in sources:
            try:
                nulls["vector"] = self._null_of_vectors(whole, query.deadline)
            except TimedOut:
                raise
            except RecollectError:
                # A model that fails now costs its evidence, not the answer, as long as there is other evidence.
                if not nulls:
                    raise
        return Gauge(len(terms), index.search(terms, query.filter, 1).max_score, nulls)

    def _null_of_vectors(self, where: Filter, deadline: float | None) -> Null:
        serving = self._embeddings.serving(deadline)
        return self._null(f"vector {serving.space.fingerprint}", where, _ByMeaning(serving), deadline)

    def _null(self, what: str, where: Filter, ask: Ask, deadline: float | None) -> Null:
        """What was kept, if the store is still about as large; else what is measured now, if there is time."""
        key, count = _key(what, where), self._store.keywords.search([], where, 1).among or 0
        # One measures, and the others wait for what it finds.
        with self._lock:
            kept = next((one for one in self._known(key) if abs(count - one[0]) <= MUCH * one[0]), None)
            if kept is None:
                kept = count, self._measure(where, count, partial(_in_time, ask, deadline))
                self._kept[key] = kept
                self._store.notes.put(key, json.dumps([count, asdict(kept[1])]))
        return kept[1]

    def _known(self, key: str) -> Iterator[tuple[int, Null]]:
        """What was measured before, here or by another process: the number of records then, and what came out."""
        if key in self._kept:
            yield self._kept[key]
        with contextlib.suppress(ValueError, TypeError, AttributeError):  # a damaged note is measured again
            count, values = json.loads(self._store.notes.get(key) or "")
            yield int(count), Null(**{name: tuple(row) for name, row in values.items()})

    def _measure(self, where: Filter, count: int, ask: Ask) -> Null:
        words = self._words(where, count)
        found = [[ask(text, where) for text in _unrelated(words, length)] for length in LENGTHS]
        levels = [[one.level for one in row] for row in found]
        margins = [[one.margin for one in row] for row in found]
        return Null(*(tuple(round(of(row), 6) for row in rows) for rows in (levels, margins) for of in (fmean, pstdev)))

    def _words(self, where: Filter, count: int) -> list[list[str]]:
        """The words of records all over the store, as they are written, without stop words."""
        records = self._store.records
        stretches = range(0, max(count, 1), max(PAGE, -(-count // PAGES)))
        passages = (record.passage for start in stretches for record in records.list(where, limit=PAGE, offset=start))
        # Sorted, because among records of one time the order is that of their ids, which say nothing.
        words = sorted(_written(self._store.keywords.analyzer, passage) for passage in passages)
        return [row for row in words if row] or [["nothing"]]

    def _by_words(self, text: str, where: Filter) -> Evidence:
        matches = self._store.keywords.search(self._store.keywords.analyzer.query(text), where, RANK_TO_BEAT)
        return evidence(matches.scores, matches.max_score or 1.0, bounded=False)


@dataclass(frozen=True, slots=True)
class _ByMeaning:
    """Asks the vectors that serve."""

    serving: Serving

    def __call__(self, text: str, where: Filter) -> Evidence:
        with errors_of(self.serving.embedder):
            vector = self.serving.embedder.query(text)
        matches = self.serving.index.search(vector, where, RANK_TO_BEAT)
        return evidence(matches.scores, 1.0, bounded=True)


def _in_time(ask: Ask, deadline: float | None, text: str, where: Filter) -> Evidence:
    if deadline is not None and time.monotonic() > deadline:
        raise TimedOut(
            "there was no time to measure confidence", hint="a search without a budget measures and keeps it"
        )
    return ask(text, where)


def _written(analyzer: Analyzer, text: str) -> list[str]:
    """Its words, once at each place, where pairs of Chinese characters count as words and single ones do not."""
    longest = {token.start: token.end for token in analyzer.tokens(text) if not token.stop}
    return [text[start:end] for start, end in longest.items()]


def _unrelated(words: Sequence[Sequence[str]], length: int) -> Iterator[str]:
    """Queries of so many words, each word from a record of its own as far as there are enough, always the same."""
    draw = random.Random(f"{SEED} {length}")  # noqa: S311  (nothing secret: it must come out the same every time)
    for _ in range(EACH):
        rows = draw.sample(words, length) if len(words) >= length else draw.choices(words, k=length)
        yield " ".join(draw.choice(row) for row in rows)


def _key(what: str, where: Filter) -> str:
    scope = "any" if where.any_scope else json.dumps(where.scope.as_dict(), sort_keys=True)
    hashed = hashlib.blake2b(f"{VERSION}\0{what}\0{scope}".encode(), digest_size=16).hexdigest()
    return f"confidence:{hashed}"

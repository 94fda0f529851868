"""Calibration of confidence: how well the best record scores for queries that have nothing to do with it.

Unrelated queries are words from many records, shuffled. Their scores are measured once for each scope (they reveal
nothing of other scopes' records), stored, and measured again when the store has grown or shrunk a lot.
"""

import contextlib
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TypeAlias

from recollect.errors import EmbedderError, RecollectError, TimedOut
from recollect.memory.embeddings import Embeddings, errors_as
from recollect.ranking import LENGTHS, Evidence, Null
from recollect.stages import RANK_TO_BEAT, Gauge, evidence
from recollect.types import ActiveSpace, Filter, KeywordIndex, Query, Store

VERSION = 1  # increased whenever the same store would give different numbers
EACH = 24  # unrelated queries of each length: 144 in all, which take one or two seconds with a small model
PAGES, PAGE = 20, 25  # words are drawn from this many pages of this many records, spread over the store
TOLERANCE = 0.2  # share by which the number of records may change before calibration is repeated
SEED = 1

Ask: TypeAlias = Callable[[str, Filter], Evidence]  # the evidence of one source for the best record


class Calibration:
    """Measures what unrelated queries score; stores it, or remembers it here if the store is read-only."""

    def __init__(self, store: Store, embeddings: Embeddings) -> None:
        self._store, self._embeddings = store, embeddings
        self._lock = threading.Lock()
        self._measured: dict[str, str] = {}

    def gauge(self, query: Query, sources: Collection[str]) -> Gauge:
        """The scale for judging this query's results, for the sources that answered."""
        index = self._store.keywords
        terms = index.analyzer.query(query.text)
        whole = Filter(query.filter.scope, any_scope=query.filter.any_scope, now=query.filter.now)
        nulls = {}
        if "keyword" in sources:
            name = f"keyword {index.analyzer.fingerprint}"
            nulls["keyword"] = self._null(name, whole, partial(_by_words, index), query.deadline)
        if "vector" in sources:
            try:
                serving = self._embeddings.serving(query.deadline)
                name = f"vector {serving.space.fingerprint}"
                nulls["vector"] = self._null(name, whole, partial(_by_meaning, serving), query.deadline)
            except TimedOut:
                raise
            except RecollectError:
                # Without the model its evidence is missing; the answer can still be judged by other evidence.
                if not nulls:
                    raise
        return Gauge(len(terms), index.search(terms, query.filter, 1).max_score, nulls)

    def _null(self, index_name: str, where: Filter, ask: Ask, deadline: float | None) -> Null:
        """The stored measurement if the store still has about that many records, else a new one."""
        scope = "any" if where.any_scope else json.dumps(where.scope.as_dict(), sort_keys=True)
        digest = hashlib.blake2b(f"{VERSION}\0{index_name}\0{scope}".encode(), digest_size=16).hexdigest()
        key, count = f"confidence:{digest}", self._store.keywords.search([], where, 1).among or 0
        # One thread measures; the others wait for its result.
        with self._lock:
            for read in (self._measured.get, self._store.notes.get):  # of this process, or another
                with contextlib.suppress(ValueError, TypeError, AttributeError):  # damaged: measured again
                    records, values = json.loads(read(key) or "")
                    if abs(count - int(records)) <= TOLERANCE * records:
                        return Null(**{name: tuple(row) for name, row in values.items()})
            null = self._measure(where, count, ask, deadline)
            self._measured[key] = json.dumps([count, asdict(null)])
            self._store.notes.put(key, self._measured[key])
        return null

    def _measure(self, where: Filter, count: int, ask: Ask, deadline: float | None) -> Null:
        words = self._words(where, count)
        levels, margins = [], []
        for length in LENGTHS:
            row = []
            for text in _unrelated(words, length):
                if deadline is not None and time.monotonic() > deadline:
                    hint = "a search without a time budget calibrates it once"
                    raise TimedOut("there was no time to calibrate confidence", hint=hint)
                row.append(ask(text, where))
            levels.append([found.level for found in row])
            margins.append([found.margin for found in row])
        from statistics import fmean, pstdev

        return Null(*(tuple(round(of(row), 6) for row in part) for part in (levels, margins) for of in (fmean, pstdev)))

    def _words(self, where: Filter, count: int) -> list[list[str]]:
        """The words of records from all over the store, as written, without stop words."""
        records, rows = self._store.records, []
        for start in range(0, max(count, 1), max(PAGE, -(-count // PAGES))):
            for record in records.list(where, limit=PAGE, offset=start):
                tokens = self._store.keywords.analyzer.tokens(record.passage)
                # The longest word at each position: pairs of Chinese characters count, single ones do not.
                longest = {token.start: token.end for token in tokens if not token.stop}
                rows.append([record.passage[start:end] for start, end in longest.items()])
        # Sorted, because records of the same time come in the order of their random ids.
        return sorted(row for row in rows if row) or [["nothing"]]


def _by_words(index: KeywordIndex, text: str, where: Filter) -> Evidence:
    matches = index.search(index.analyzer.query(text), where, RANK_TO_BEAT)
    return evidence(matches.scores, matches.max_score or 1.0, bounded=False)


def _by_meaning(serving: ActiveSpace, text: str, where: Filter) -> Evidence:
    with errors_as(EmbedderError, f"{serving.embedder.name} failed"):
        vector = serving.embedder.query(text)
    return evidence(serving.index.search(vector, where, RANK_TO_BEAT).scores, 1.0, bounded=True)


def _unrelated(words: Sequence[Sequence[str]], length: int) -> Iterator[str]:
    """Queries of `length` words, each from a different record if there are enough; always the same queries."""
    draw = random.Random(f"{SEED} {length}")  # noqa: S311  (not a secret: it must be the same every time)
    for _ in range(EACH):
        rows = draw.sample(words, length) if len(words) >= length else draw.choices(words, k=length)
        yield " ".join(draw.choice(row) for row in rows)

"""Which records contain the words and phrases that a filter requires, and none that it excludes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from recollect.analysis import Analyzer, term_hash
from recollect.querylang import has_phrase, is_word, needed_terms, term_of
from recollect.stores.sqlite.rows import Connection
from recollect.stores.sqlite.segments import Ints, Mask
from recollect.stores.sqlite.views import View
from recollect.types import Filter

BATCH = 1_000  # texts that are read at once


def worded(connection: Connection, where: Filter, view: View, mask: Mask | None, analyzer: Analyzer) -> Mask:
    """Of the records of a mask, those that contain what a filter requires and nothing that it excludes."""
    chosen = np.ones(view.total, dtype=np.bool_) if mask is None else mask.copy()

    def containing(wording: str) -> Ints:
        if is_word(wording):
            return _having(view, [term_of(wording, analyzer)])
        return _with_phrase(connection, view, chosen, wording, analyzer)

    for wording in where.without:
        chosen[containing(wording)] = False
    for group in where.required:
        meeting = np.zeros(view.total, dtype=np.bool_)
        for wording in group:
            meeting[containing(wording)] = True
        chosen &= meeting
    for phrase in where.phrases:
        meeting = np.zeros(view.total, dtype=np.bool_)
        meeting[_with_phrase(connection, view, chosen, phrase, analyzer)] = True
        chosen &= meeting
    return chosen


def _having(view: View, terms: Sequence[str]) -> Ints:
    """The positions of the records that have all of these terms, also of records that are not live."""
    hashes = np.array([term_hash(term) for term in terms], dtype=np.uint64)
    counts = np.zeros(view.total, dtype=np.int16)
    for start, segment in zip(view.starts.tolist(), view.segments, strict=False):
        for first, end in segment.postings(hashes):
            counts[segment.places[first:end] + start] += 1
    return np.flatnonzero(counts == len(terms))


def _with_phrase(connection: Connection, view: View, chosen: Mask, phrase: str, analyzer: Analyzer) -> Ints:
    """The positions of the chosen records that contain a phrase: those with its terms are read."""
    candidates = chosen.copy()
    for alternatives in needed_terms(phrase, analyzer):
        having = np.zeros(view.total, dtype=np.bool_)
        for terms in alternatives:
            having[_having(view, list(dict.fromkeys(terms)))] = True
        candidates &= having
    positions = np.flatnonzero(candidates)
    rows = view.rows_of(positions)
    found = list(_rows_with(connection, rows, phrase))
    return positions[np.isin(rows, np.array(found, dtype=np.int64))]


def _rows_with(connection: Connection, rows: Ints, phrase: str) -> Iterator[int]:
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH].tolist()
        for row, title, text in connection.execute("SELECT row, title, text FROM records WHERE row = ANY(%s)", (part,)):
            if has_phrase(phrase, title, text):
                yield row

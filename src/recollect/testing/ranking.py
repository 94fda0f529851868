"""How both indexes rank: BM25 of the visible, exact cosines, ties, repeats, and depth."""

# ruff: noqa: S101, S311, PLR2004  (these are tests)

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import timedelta
from itertools import permutations

import numpy as np
import pytest

from recollect.testing.asking import EMBEDDER, NOON, SEARCHES, by_meaning, by_words, ids, keep, texts
from recollect.types import Filter, Record, Scope, Store

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "mist", "ice", "oar", "the", "in", "by")
AT_NOON = Filter(now=NOON)
K1, B, TITLE = 1.2, 0.75, 2.0


def some_records(count: int, seed: int) -> list[Record]:
    """A random corpus with repeats and times."""
    chance = random.Random(seed)
    return [
        Record(
            f"r{i:03}",
            " ".join(chance.choices(WORDS, k=chance.randint(2, 7))),
            title=chance.choice(["", "", "Heron lake"]),
            created_at=NOON - timedelta(days=chance.randint(0, 60)),
        )
        for i in range(count)
    ]


def bm25(store: Store, records: list[Record], query: str) -> dict[str, float]:
    """Lucene's BM25, written again without the code under test."""
    analyzer = store.keywords.analyzer
    often: dict[str, Counter[str]] = {}
    lengths: dict[str, int] = {}
    for record in records:
        counts: Counter[str] = Counter()
        for part, weight in ((record.title, int(TITLE)), (record.text, 1)):
            for token in analyzer.tokens(part):
                counts[token.term] += weight
                lengths[record.id] = lengths.get(record.id, 0) + (not token.stop)
        often[record.id] = counts
    mean = sum(max(1, length) for length in lengths.values()) / len(records)
    scores: dict[str, float] = {}
    for term in dict.fromkeys(analyzer.query(query)):
        holding = [key for key, counts in often.items() if counts[term]]
        idf = math.log(1 + (len(records) - len(holding) + 0.5) / (len(holding) + 0.5))
        for key in holding:
            count, length = often[key][term], max(1, lengths[key])
            share = count / (count + K1 * (1 - B + B * length / mean))
            scores[key] = scores.get(key, 0.0) + idf * share
    return scores


class RankingContract:
    """The same records rank alike in every store."""

    def test_words_rank_by_bm25_of_what_may_be_seen(self, store: Store) -> None:
        """Each score is the formula's, whoever else has records with the same words."""
        records = some_records(80, 7)
        keep(store, *records, *(Record(f"b{i}", "heron lake ice", scope=Scope("bob")) for i in range(9)))
        for query in ("heron lake", "mist dawn boat", "ice", "nowhere heron", "the"):
            expected = bm25(store, records, query)
            found = by_words(store, query, AT_NOON, 100)
            assert [match.score for match in found.found] == sorted((m.score for m in found.found), reverse=True)
            for match in found.found:
                assert match.score == pytest.approx(expected[match.record.id], abs=2e-9), query
            assert len(found.found) + found.folded == len(expected)
            assert found.among == len(records)

    def test_vectors_rank_by_their_exact_cosine(self, store: Store) -> None:
        """Each score is the cosine to six places."""
        records = some_records(80, 8)
        keep(store, *records)
        matrix = EMBEDDER.passages([record.passage for record in records]).astype(np.float64)
        for query in ("heron lake", "mist dawn boat", "an unknown word"):
            cosines = dict(zip((r.id for r in records), matrix @ EMBEDDER.query(query).astype(np.float64), strict=True))
            found = by_meaning(store, query, AT_NOON, 100)
            assert len(found.found) + found.folded == len(records)
            for match in found.found:
                assert match.score == pytest.approx(cosines[match.record.id], abs=1e-6)

    @pytest.mark.parametrize("seed", [1, 2])
    def test_few_are_the_beginning_of_many(self, store: Store, seed: int) -> None:
        """A search to depth n gives the first n of a deeper one, scores and all."""
        keep(store, *some_records(200, seed))
        for query in ("heron lake", "mist dawn boat", "the ice", "oar by the reeds in the mist"):
            for search in SEARCHES:
                full = search(store, query, AT_NOON, 60).found
                assert len(full) > 10
                for depth in (1, 2, 7, 31, 59):
                    assert search(store, query, AT_NOON, depth).found == full[:depth]

    def test_equal_scores_go_newest_first_and_then_by_id(self, store: Store) -> None:
        """Also where far more tie than were asked for, so that who is first never depends on where a row lies."""
        said = [" ".join(order) for order in permutations(("heron", "lake", "boat", "dawn", "mist", "ice"))]
        records = [
            Record(f"r{(i * 37) % 720:03}", text, created_at=NOON - timedelta(days=(i * 7) % 5))
            for i, text in enumerate(said)
        ]
        keep(store, *records)
        expected = [r.id for r in sorted(records, key=lambda r: (-r.created_at.timestamp(), r.id))]
        for search in SEARCHES:
            for depth in (1, 5, 100, 720):
                found = search(store, "heron lake boat dawn mist ice", AT_NOON, depth)
                assert len({match.score for match in found.found}) == 1
                assert ids(found) == expected[:depth]

    def test_equal_texts_are_one_and_the_place_is_refilled(self, store: Store) -> None:
        """The newest of those that fold alike stands for all; the freed places go to what follows."""
        repeats = ("Heron by the lake", "heron  BY the lake", "Ｈeron by the\nlake")
        keep(store, *(Record(f"twin{i}", text, created_at=NOON + timedelta(i)) for i, text in enumerate(repeats)))
        others = [f"a heron, number {i}, elsewhere" for i in range(5)]
        keep(store, *(Record(f"other{i}", text, created_at=NOON) for i, text in enumerate(others)))
        for search in SEARCHES:
            found = search(store, "heron by the lake", Filter(), 4)
            assert ids(found)[0] == "twin2"
            assert len(found.found) == 4
            assert found.folded == 2
            assert len(set(texts(found))) == 4

    def test_many_repeats_do_not_starve_a_search(self, store: Store) -> None:
        """Three hundred of one text before the only other one: both are found."""
        keep(store, *(Record(f"r{i}", "heron heron heron", created_at=NOON + timedelta(seconds=i)) for i in range(300)))
        keep(store, Record("other", "a heron far away from here in the reeds", created_at=NOON))
        for search in SEARCHES:
            found = search(store, "heron", Filter(), 2)
            assert ids(found) == ["r299", "other"]
            assert found.folded == 299

    def test_nothing_matches_nothing(self, store: Store) -> None:
        """An empty store, no terms and unknown terms give nothing, and no error."""
        assert store.keywords.search([], Filter(), 9).found == ()
        assert store.keywords.search(["heron"], Filter(), 9).found == ()
        keep(store, Record("a", "heron"))
        assert store.keywords.search([], Filter(), 9).found == ()
        assert store.keywords.search(["nowhere"], Filter(), 9).found == ()
        missed = store.keywords.search(["nowhere"], Filter(), 9)
        assert missed.among == 1
        assert missed.most > 0

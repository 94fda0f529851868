"""Keyword and vector search: ranking, vector spaces, language, scopes and filters."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations

import numpy as np
import pytest

from recollect.errors import EmbedderError, UsageError
from recollect.testing.harness import (
    EMBEDDER,
    NOON,
    SEARCHES,
    SPACE,
    OpenStore,
    all_ids,
    by_keywords,
    by_vector,
    ids,
    index_of,
    store_all,
    summary,
    texts,
)
from recollect.types import Filter, Forget, Put, Record, Scope, Store, Supersede, VectorSpace

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "mist", "ice", "oar", "the", "in", "by")
AT_NOON = Filter(now=NOON)
K1, B, TITLE = 1.2, 0.75, 2.0


def some_records(count: int, seed: int) -> list[Record]:
    """A random corpus with duplicates and different times."""
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
    """Lucene's BM25, implemented without the code under test."""
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
    """Every store ranks the same records alike."""

    def test_words_rank_by_bm25_of_what_may_be_seen(self, store: Store) -> None:
        """Each score is that of the formula, whatever other scopes contain."""
        records = some_records(80, 7)
        store_all(store, *records, *(Record(f"b{i}", "heron lake ice", scope=Scope("bob")) for i in range(9)))
        for query in ("heron lake", "mist dawn boat", "ice", "nowhere heron", "the"):
            expected = bm25(store, records, query)
            found = by_keywords(store, query, AT_NOON, 100)
            assert found.scores == sorted(found.scores, reverse=True)
            for match in found.entries:
                assert match.score == pytest.approx(expected[match.record.id], abs=2e-9), query
            assert len(found.entries) + found.duplicates == len(expected)
            assert found.among == len(records)

    def test_vectors_rank_by_their_exact_cosine(self, store: Store) -> None:
        """Each score is the cosine to six places."""
        records = some_records(80, 8)
        store_all(store, *records)
        matrix = EMBEDDER.passages([record.passage for record in records]).astype(np.float64)
        for query in ("heron lake", "mist dawn boat", "an unknown word"):
            cosines = dict(zip((r.id for r in records), matrix @ EMBEDDER.query(query).astype(np.float64), strict=True))
            found = by_vector(store, query, AT_NOON, 100)
            assert len(found.entries) + found.duplicates == len(records)
            for match in found.entries:
                assert match.score == pytest.approx(cosines[match.record.id], abs=1e-6)

    @pytest.mark.parametrize("seed", [1, 2])
    def test_few_are_the_beginning_of_many(self, store: Store, seed: int) -> None:
        """A search with depth n returns the first n of a deeper one, with the same scores."""
        store_all(store, *some_records(200, seed))
        for query in ("heron lake", "mist dawn boat", "the ice", "oar by the reeds in the mist"):
            for search in SEARCHES:
                full = search(store, query, AT_NOON, 60).entries
                assert len(full) > 10
                for depth in (1, 2, 7, 31, 59):
                    assert search(store, query, AT_NOON, depth).entries == full[:depth]

    def test_equal_scores_go_newest_first_and_then_by_id(self, store: Store) -> None:
        """Also if many more tie than were asked for, so that the position of a row never matters."""
        said = [" ".join(order) for order in permutations(("heron", "lake", "boat", "dawn", "mist", "ice"))]
        records = [
            Record(f"r{(i * 37) % 720:03}", text, created_at=NOON - timedelta(days=(i * 7) % 5))
            for i, text in enumerate(said)
        ]
        store_all(store, *records)
        expected = [r.id for r in sorted(records, key=lambda r: (-r.created_at.timestamp(), r.id))]
        for search in SEARCHES:
            for depth in (1, 5, 100, 720):
                found = search(store, "heron lake boat dawn mist ice", AT_NOON, depth)
                assert len({match.score for match in found.entries}) == 1
                assert ids(found) == expected[:depth]

    def test_equal_texts_are_one_and_the_place_is_refilled(self, store: Store) -> None:
        """The newest of several duplicates is returned; the next records fill the free places."""
        repeats = ("Heron by the lake", "heron  BY the lake", "Ｈeron by the\nlake")
        store_all(store, *(Record(f"twin{i}", text, created_at=NOON + timedelta(i)) for i, text in enumerate(repeats)))
        others = [f"a heron, number {i}, elsewhere" for i in range(5)]
        store_all(store, *(Record(f"other{i}", text, created_at=NOON) for i, text in enumerate(others)))
        for search in SEARCHES:
            found = search(store, "heron by the lake", Filter(), 4)
            assert ids(found)[0] == "twin2"
            assert len(found.entries) == 4
            assert found.duplicates == 2
            assert len(set(texts(found))) == 4

    def test_many_repeats_do_not_starve_a_search(self, store: Store) -> None:
        """Three hundred duplicates rank before the only other text: both are found."""
        store_all(
            store, *(Record(f"r{i}", "heron heron heron", created_at=NOON + timedelta(seconds=i)) for i in range(300))
        )
        store_all(store, Record("other", "a heron far away from here in the reeds", created_at=NOON))
        for search in SEARCHES:
            found = search(store, "heron", Filter(), 2)
            assert ids(found) == ["r299", "other"]
            assert found.duplicates == 299

    def test_nothing_matches_nothing(self, store: Store) -> None:
        """An empty store, no terms and unknown terms give no hits and no error."""
        assert store.keywords.search([], Filter(), 9).entries == ()
        assert store.keywords.search(["heron"], Filter(), 9).entries == ()
        store_all(store, Record("a", "heron"))
        assert store.keywords.search([], Filter(), 9).entries == ()
        assert store.keywords.search(["nowhere"], Filter(), 9).entries == ()
        missed = store.keywords.search(["nowhere"], Filter(), 9)
        assert missed.among == 1
        assert missed.max_score > 0


OTHER = VectorSpace("another-model@1/64d", "another-model", 64)
LONGER = VectorSpace("longer@1/96d", "longer", 96)


class SpacesContract:
    """Vectors belong to the model that computed them; terms belong to the store's language."""

    def test_two_models_of_one_dimension_are_never_mixed(self, store: Store) -> None:
        """A space has only its own vectors, whatever others have for the same texts."""
        store_all(store, Record("a", "heron"), Record("b", "lake"))
        other = store.spaces.open(OTHER)
        assert other.coverage() == (0, 2)
        assert other.search(EMBEDDER.query("heron"), Filter(), 9).entries == ()
        assert other.known(["heron", "lake"]) == set()
        assert sorted(other.missing(9)) == ["heron", "lake"]
        other.save(["heron"], EMBEDDER.passages(["lake"]))
        (match,) = other.search(EMBEDDER.query("lake"), Filter(), 9).entries
        assert (match.record.id, match.score) == ("a", 1.0)
        assert ids(by_vector(store, "lake", Filter(), 1)) == ["b"]
        assert other.coverage() == (1, 1)
        assert index_of(store).coverage() == (2, 0)

    def test_the_active_space_is_the_same_in_every_process(self, open_store: OpenStore, place: str) -> None:
        """None at first, then the one that was activated last."""
        first, second = open_store(place), open_store(place)
        assert (first.spaces.active, second.spaces.active) == (None, None)
        for store, space in ((first, SPACE), (second, OTHER), (first, LONGER), (second, SPACE)):
            store.spaces.activate(space)
            assert (first.spaces.active, second.spaces.active) == (space, space)

    def test_a_vector_of_another_length_is_refused(self, store: Store) -> None:
        """The error names the dimension."""
        store_all(store, Record("a", "heron"))
        with pytest.raises(EmbedderError, match="96"):
            index_of(store).search(np.zeros(96, dtype=np.float32), Filter(), 9)

    def test_vectors_come_back_as_they_were_saved(self, store: Store) -> None:
        """Without loss, by record; records without a vector are left out."""
        chance = np.random.default_rng(11)
        rows = chance.normal(size=(5, 96)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        index = store.spaces.open(LONGER)
        store.records.apply([[Put(Record(f"r{i}", f"text {i}", title="T" * (i % 2)))] for i in range(6)])
        index.save([record.passage for record in store.records.get([f"r{i}" for i in range(5)])], rows)
        kept = index.vectors([f"r{i}" for i in range(6)] + ["nobody"])
        assert kept.keys() == {f"r{i}" for i in range(5)}
        for i in range(5):
            assert kept[f"r{i}"].dtype == np.float32
            assert kept[f"r{i}"].tobytes() == rows[i].tobytes()

    def test_what_is_missing_is_known_and_can_be_saved_later(self, store: Store) -> None:
        """Each text once, with its title. A text that moves to another record needs no new vector."""
        index = index_of(store)
        store.records.apply(
            [[Put(Record("a", "text", title="Title")), Put(Record("b", "same")), Put(Record("c", "gone"))]]
        )
        store.records.apply([[Put(Record("d", "same", scope=Scope("ada"))), Forget("c")]])
        assert index.coverage() == (0, 3)
        assert sorted(index.missing(99)) == ["Title\ntext", "same"]
        assert len(index.missing(1)) == 1
        index.save(["Title\ntext", "same"], EMBEDDER.passages(["Title\ntext", "same"]))
        assert index.missing(99) == []
        assert index.coverage() == (3, 0)
        assert index.known(["Title\ntext", "same", "gone"]) == {"Title\ntext", "same"}
        store.records.apply([[Put(Record("e", "same", scope=Scope("bob")))]])
        assert index.coverage() == (4, 0)
        assert ids(index.search(EMBEDDER.query("same"), Filter(scope=Scope("bob")), 1)) in (["b"], ["e"])

    def test_a_vector_that_came_before_its_record_waits_for_it(self, store: Store) -> None:
        """A record whose vector was saved before is found at once."""
        index_of(store).save(["heron at dawn"], EMBEDDER.passages(["heron at dawn"]))
        store.records.apply([[Put(Record("a", "heron at dawn"))]])
        assert ids(by_vector(store, "heron at dawn", Filter(), 9)) == ["a"]
        assert index_of(store).coverage() == (1, 0)

    def test_vectors_saved_elsewhere_are_found_here(self, open_store: OpenStore, place: str) -> None:
        """Also by a store that has searched before they were saved."""
        here, there = open_store(place), open_store(place)
        here.records.apply([[Put(Record(f"r{i}", f"walrus on floe {i}"))] for i in range(9)])
        assert by_vector(here, "walrus", Filter(), 9).entries == ()
        passages = index_of(there).missing(99)
        index_of(there).save(passages, EMBEDDER.passages(passages))
        assert ids(by_vector(here, "walrus on floe 7", Filter(), 1)) == ["r7"]

    def test_saving_twice_is_harmless(self, store: Store) -> None:
        """The first vector of a text stays."""
        store_all(store, Record("a", "heron"))
        index_of(store).save(["heron"], EMBEDDER.passages(["lake"]))
        assert by_vector(store, "heron", Filter(), 1).entries[0].score == 1.0

    def test_another_language_is_followed_by_who_has_the_store_open(self, open_store: OpenStore, place: str) -> None:
        """A change of language analyses all records again, for all who have the store open."""
        first = open_store(place)
        first.records.apply([[Put(Record("a", "Die Häuser am See"))]])
        assert ids(by_keywords(first, "Haus", Filter(), 9)) == []
        second = open_store(place)
        second.keywords.change_language("german")
        for store in (second, first, second):
            assert ids(by_keywords(store, "Haus", Filter(), 9)) == ["a"]
        first.records.apply([[Put(Record("b", "Viele Häuser"))]])
        for store in (first, second, open_store(place)):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert sorted(ids(by_keywords(store, "Haus", Filter(), 9))) == ["a", "b"]
            assert store.status()["keyword_lag"] == 0

    def test_a_language_is_set_when_a_store_is_made_and_not_when_it_is_opened(
        self, open_store: OpenStore, place: str
    ) -> None:
        """Opening a store with another language changes nothing."""
        first = open_store(place, language="german")
        first.records.apply([[Put(Record("a", "Die Häuser am See"))]])
        for store in (open_store(place, language="english"), open_store(place), first):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert ids(by_keywords(store, "Haus", Filter(), 9)) == ["a"]
            assert store.status()["keyword_lag"] == 0


FILTER_WORDS = ("heron", "lake", "reeds", "boat", "dawn", "the", "in", "café", "v1.2", "湖", "snake_case")
DAYS = [NOON + timedelta(days=days) for days in range(-3, 4)]


def all_scopes() -> list[Scope]:
    """Every combination of parts: unset, one value, another value."""
    return [Scope(u, a, s) for u in (None, "1", "2") for a in (None, "1", "2") for s in (None, "1", "2")]


def may_see(asks: Scope, record: Scope) -> bool:
    """The rule of scopes, implemented without the code under test."""
    for part in ("user", "agent", "session"):
        theirs = getattr(record, part)
        if theirs is not None and theirs != getattr(asks, part):
            return False
    return True


def sees(where: Filter, record: Record) -> bool:
    """The rules of filters, implemented without the code under test."""
    moment = where.as_of or where.now
    return (
        may_see(where.scope, record.scope)
        and (where.superseded or record.superseded_at is None or record.superseded_at > moment)
        and (record.expires_at is None or record.expires_at > moment)
        and (not where.categories or record.category in where.categories)
        and set(where.tags) <= set(record.tags)
        and (not where.kinds or record.kind in where.kinds)
        and (where.since is None or record.time >= where.since)
        and (where.until is None or record.time < where.until)
        and (where.as_of is None or record.time <= where.as_of)
    )


def random_records(chance: random.Random, count: int) -> list[Record]:
    """Records that differ in everything that a filter can test."""

    def maybe_time() -> datetime | None:
        return chance.choice([*[None] * 14, *DAYS])

    return [
        Record(
            f"r{i:02}",
            " ".join(chance.choices(FILTER_WORDS, k=chance.randint(1, 6))),
            title=chance.choice(["", "", "heron", "Lake boat"]),
            kind=chance.choice(["fact", "fact", "chunk"]),
            category=chance.choice([None, "work", "home"]),
            tags=tuple(chance.sample(["red", "blue"], chance.randint(0, 2))),
            scope=Scope(*(chance.choice(names) for names in ((None, None, "ada", "bob"), (None, "x"), (None, "s")))),
            created_at=chance.choice(DAYS),
            happened_at=maybe_time(),
            expires_at=maybe_time(),
        )
        for i in range(count)
    ]


def some_filters(chance: random.Random) -> Iterator[Filter]:
    """Random filters, most of them with one or two conditions."""
    while True:
        yield Filter(
            scope=chance.choice([Scope("ada", "x", "s"), Scope("ada", "x"), Scope("bob"), Scope()]),
            categories=chance.choice([(), (), (), ("work",), ("work", "home")]),
            tags=chance.choice([(), (), (), ("red",), ("red", "blue")]),
            kinds=chance.choice([(), (), ("fact",)]),
            since=chance.choice([*[None] * 14, *DAYS]),
            until=chance.choice([*[None] * 14, *DAYS]),
            as_of=chance.choice([*[None] * 14, *DAYS]),
            superseded=chance.choice([False, False, True]),
            now=NOON,
        )


class VisibilityContract:
    """An answer is that of a store that contains only the visible records."""

    def test_a_record_is_visible_if_each_of_its_parts_is_unset_or_equal(self, store: Store) -> None:
        """In lists, by id, in counts and in both indexes, for every pair of 27 scopes."""
        store_all(store, *(Record(str(i), f"heron number {i}", scope=scope) for i, scope in enumerate(all_scopes())))
        everybody = [str(i) for i in range(27)]
        for asks in all_scopes():
            expected = [str(i) for i, scope in enumerate(all_scopes()) if may_see(asks, scope)]
            where = Filter(scope=asks)
            assert sorted(ids(store.records.list(where, limit=50))) == sorted(expected)
            assert ids(store.records.get(everybody, where)) == expected
            assert store.count(where)["total"] == len(expected)
            for search in SEARCHES:
                assert sorted(ids(search(store, "heron number", where, 50))) == sorted(expected)
        for search in SEARCHES:
            assert len(search(store, "heron number", Filter(any_scope=True), 50).entries) == 27

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_a_shared_store_answers_as_one_that_holds_only_what_may_be_seen(
        self, open_store: OpenStore, seed: int
    ) -> None:
        """Ids, order, scores and numbers of duplicates are the same in both indexes, at any depth."""
        chance = random.Random(seed)
        shared = open_store()
        records = random_records(chance, 32)
        store_all(shared, *records)
        for _ in range(8):
            old, new = chance.sample([record.id for record in records], 2)
            with contextlib.suppress(UsageError):  # cycles and the like are another test's subject
                shared.records.apply([[Supersede(old, new, chance.choice([None, *DAYS]))]])
        stored = shared.records.get([record.id for record in records])
        for where, _ in zip(some_filters(chance), range(3), strict=False):
            visible = [record for record in stored if sees(where, record)]
            alone = open_store()
            store_all(alone, *visible)
            assert all_ids(shared, where) == [record.id for record in visible]
            for _ in range(4):
                query, depth = " ".join(chance.choices(FILTER_WORDS, k=3)), chance.choice([1, 3, 100])
                for search in SEARCHES:
                    asked = [search(each, query, where, depth) for each in (shared, alone)]
                    assert summary(asked[0]) == summary(asked[1]), (query, where)
                    assert asked[0].max_score == pytest.approx(asked[1].max_score)
                    assert asked[0].among == asked[1].among

    def test_three_visible_among_many_are_found(self, store: Store) -> None:
        """Keyword search finds those that match, vector search all three, and neither any other record."""
        chance = random.Random(5)
        crowd = [f"heron {chance.randrange(997)} lake {chance.randrange(89)} text" for _ in range(1500)]
        store_all(store, *(Record(f"c{i}", text, scope=Scope("crowd")) for i, text in enumerate(crowd)))
        few = ("heron by the lake", "heron in the reeds", "a boat")
        store_all(store, *(Record(f"few{i}", text, scope=Scope("few")) for i, text in enumerate(few)))
        where = Filter(scope=Scope("few"))
        for depth in (1, 3, 20, 100):
            assert len(by_keywords(store, "heron", where, depth).entries) == min(depth, 2)
            assert len(by_vector(store, "heron", where, depth).entries) == min(depth, 3)
        assert ids(by_keywords(store, "boat", where, 9)) == ["few2"]
        assert by_keywords(store, "heron", where, 9).among == 3
        assert by_keywords(store, "heron", Filter(), 9).entries == ()
        assert by_vector(store, "heron", Filter(), 9).entries == ()

    def test_a_filter_on_paths_takes_files_folders_and_stars(self, store: Store) -> None:
        """By the whole path or its last parts; `*` is the only special character."""
        paths = [
            "/n/a.md", "/n/sub/a.md", "/n/ab.md", "/n/a_md", "/n/100%.md", "/n/1000.md", "/n/[x].md", "/n/q?.md",
            "/n/back\\slash.md", "/n/it's.md", "/n/ünï 湖.md", "/m/sub/b.md", "/n/a.md.bak",
        ]  # fmt: skip
        store_all(store, *(Record(path, f"heron {i}", path=path, kind="chunk") for i, path in enumerate(paths)))
        store_all(store, Record("none", "heron without a path"))
        expected = {
            "/n/a.md": ["/n/a.md"],
            "a.md": ["/n/a.md", "/n/sub/a.md"],
            "./sub/a.md": ["/n/sub/a.md"],
            "sub/": ["/m/sub/b.md", "/n/sub/a.md"],
            "/m": ["/m/sub/b.md"],
            "/n/*.bak": ["/n/a.md.bak"],
            "/n/s*a.md": ["/n/sub/a.md"],
            "a_md": ["/n/a_md"],
            "100%.md": ["/n/100%.md"],
            "[x].md": ["/n/[x].md"],
            "q?.md": ["/n/q?.md"],
            "back\\slash.md": ["/n/back\\slash.md"],
            "it's.md": ["/n/it's.md"],
            "ünï 湖.md": ["/n/ünï 湖.md"],
            "A.MD": [],
            "*": sorted(paths),
        }
        for pattern, found in expected.items():
            where = Filter(path=pattern)
            assert all_ids(store, where) == found, pattern
            for search in SEARCHES:
                assert sorted(ids(search(store, "heron", where, 50))) == found, pattern

    def test_filters_hold_in_every_reading(self, store: Store) -> None:
        """By category, tag, kind and time, in lists, counts, facets, by text, by path and by id."""
        one = Record("1", "heron", category="work", tags=("red", "blue"), path="/n/1.md", created_at=NOON)
        two = replace(one, id="2", text="heron two", category="home", tags=("red",), kind="chunk", path="/n/2.md")
        store_all(store, one, two)
        for where, expected in (
            (Filter(categories=("work",)), ["1"]),
            (Filter(categories=("work", "home")), ["1", "2"]),
            (Filter(tags=("red",)), ["1", "2"]),
            (Filter(tags=("red", "blue")), ["1"]),
            (Filter(kinds=("chunk",)), ["2"]),
            (Filter(since=NOON), ["1", "2"]),
            (Filter(until=NOON), []),
            (Filter(path="2.md"), ["2"]),
        ):
            assert all_ids(store, where) == expected
            assert store.count(where)["total"] == len(expected)
            assert len(store.facets(where)["categories"]) == len(expected)
            assert ids(store.records.get(["1", "2"], where)) == expected
            assert sorted(store.joins.by_path(["/n/1.md", "/n/2.md"], where)) == [f"/n/{key}.md" for key in expected]
            for search in SEARCHES:
                assert sorted(ids(search(store, "heron", where, 9))) == expected

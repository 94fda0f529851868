"""Keyword and vector search: ranking, vector spaces, language, scopes and filters."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice, permutations, product
from pathlib import Path

import numpy as np
import pytest

from recollect.errors import EmbedderError, UsageError
from recollect.stores import open_store as open_sqlite
from recollect.testing.harness import (
    EMBEDDER,
    NOON,
    SEARCHES,
    SPACE,
    OpenStore,
    all_ids,
    apply,
    by_keywords,
    by_vector,
    find,
    ids,
    index_of,
    store_all,
)
from recollect.types import Filter, Forget, Put, Record, Scope, Store, Supersede, VectorSpace

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "the", "in", "café", "v1.2", "湖", "snake_case")
DAYS = [NOON + timedelta(days=days) for days in range(-3, 4)]
MAYBE = [*[None] * 14, *DAYS]
AT_NOON = Filter(now=NOON)


def random_records(chance: random.Random, count: int) -> list[Record]:
    """Records that differ in everything that a filter can test."""
    return [
        Record(
            f"r{i:02}",
            " ".join(chance.choices(WORDS, k=chance.randint(1, 6))),
            title=chance.choice(["", "", "heron", "Lake boat"]),
            kind=chance.choice(["fact", "fact", "chunk"]),
            category=chance.choice([None, "work", "home"]),
            origin=chance.choice(["user", "file", "agent", "web"]),
            author=chance.choice([None, "scribe"]),
            tags=tuple(chance.sample(["red", "blue"], chance.randint(0, 2))),
            scope=Scope(*(chance.choice(names) for names in ((None, None, "ada", "bob"), (None, "x"), (None, "s")))),
            created_at=chance.choice(DAYS),
            happened_at=chance.choice(MAYBE),
            expires_at=chance.choice(MAYBE),
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
            origins=chance.choice([(), (), ("web",), ("user", "file", "agent", "outside"), ("user", "tool")]),
            authors=chance.choice([(), (), (), ("scribe",)]),
            since=chance.choice(MAYBE),
            until=chance.choice(MAYBE),
            as_of=chance.choice(MAYBE),
            superseded=chance.choice([False, False, True]),
            phrases=chance.choice([(), (), (), ("heron",), ("lake boat",), ("the", "in")]),
            without=chance.choice([(), (), (), ("boats",), ("dawn", "lake heron")]),
            required=chance.choice([(), (), (), (("boats", "heron"),), (("dawn",), ("lake heron", "reeds"))]),
            now=NOON,
        )


def fill(chance: random.Random, *stores: Store) -> None:
    """Store the same random records in each store, some of them superseded."""
    records = random_records(chance, 32)
    keys = [chance.sample(ids(records), 2) for _ in range(8)]
    changes = [Supersede(old, new, chance.choice([None, *DAYS])) for old, new in keys]
    for store in stores:
        store_all(store, *records)
        for change in changes:
            with contextlib.suppress(UsageError):  # cycles and the like are another test's subject
                apply(store, change)


class RankingContract:
    """Every store ranks the same records alike."""

    @pytest.mark.parametrize("seed", [5, 6])
    def test_terms_are_known_as_by_the_sqlite_store(self, store: Store, tmp_path: Path, seed: int) -> None:
        """The same terms of visible records, with their numbers, the same unknown ones, and near ones count alike."""
        chance = random.Random(seed)
        with contextlib.closing(open_sqlite(str(tmp_path / "reference.db"))) as reference:
            fill(chance, store, reference)
            apply(store, Forget("r01"))
            apply(reference, Forget("r01"))
            for where in islice(some_filters(chance), 5):
                ours, theirs = store.keywords, reference.keywords
                terms = sorted(theirs.vocabulary("", where) | {"heronry", "zebra"})
                assert ours.known(terms, where) == theirs.known(terms, where)
                for prefix in ("", "he", "l", "%", "_"):
                    visible = {term for term in theirs.known(terms, where) if term.startswith(prefix)}
                    assert visible <= ours.vocabulary(prefix, where)
                    assert all(term.startswith(prefix) for term in ours.vocabulary(prefix, where))
                hits, expected = (each.search(["zebra", "heron"], where, 50, {"lake": 0.5}) for each in (ours, theirs))
                assert hits.unknown == expected.unknown
                assert hits.scores == pytest.approx(expected.scores, abs=2e-9)
                assert hits.max_score == pytest.approx(expected.max_score)

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_records_are_filtered_and_ranked_as_by_the_sqlite_store(
        self, store: Store, tmp_path: Path, seed: int
    ) -> None:
        """The same records, and the same scores: BM25 over the records that pass the filter, and exact cosines."""
        chance = random.Random(seed)
        with contextlib.closing(open_sqlite(str(tmp_path / "reference.db"))) as reference:
            fill(chance, store, reference)
            for where in islice(some_filters(chance), 5):
                assert all_ids(store, where) == all_ids(reference, where)
                for query in (" ".join(chance.choices(WORDS, k=3)), "heron", "an unknown word"):
                    for search, places in ((by_keywords, 2e-9), (by_vector, 1e-6)):
                        hits, expected = (search(each, query, where, 100) for each in (store, reference))
                        scores = dict(zip(ids(expected), expected.scores, strict=True))
                        assert dict(zip(ids(hits), hits.scores, strict=True)) == pytest.approx(scores, abs=places)
                        assert hits.scores == sorted(hits.scores, reverse=True)
                        assert hits.duplicates == expected.duplicates
                    assert by_keywords(store, query, where).among == by_keywords(reference, query, where).among

    def test_a_shorter_search_returns_the_beginning_of_a_longer_one(self, store: Store) -> None:
        records = random_records(random.Random(1), 200)
        store_all(store, *(replace(record, scope=Scope(), expires_at=None) for record in records))
        for query in ("heron lake", "reeds dawn boat", "the café", "boat by the reeds in the dawn"):
            for search in SEARCHES:
                full = search(store, query, AT_NOON, 60).entries
                assert len(full) > 10
                for depth in (1, 2, 7, 31, 59):
                    assert search(store, query, AT_NOON, depth).entries == full[:depth]

    def test_equal_scores_are_ordered_by_time_and_id(self, store: Store) -> None:
        """Newest first, also if many more tie than were requested, so that the position of a row never matters."""
        orders = permutations(("heron", "lake", "boat", "dawn", "mist", "ice"))
        records = [
            Record(f"r{(i * 37) % 720:03}", " ".join(words), created_at=NOON - timedelta(days=(i * 7) % 5))
            for i, words in enumerate(orders)
        ]
        store_all(store, *records)
        expected = [r.id for r in sorted(records, key=lambda r: (-r.created_at.timestamp(), r.id))]
        for search in SEARCHES:
            for depth in (1, 5, 100, 720):
                hits = search(store, "heron lake boat dawn mist ice", AT_NOON, depth)
                assert len(set(hits.scores)) == 1
                assert ids(hits) == expected[:depth]

    def test_duplicates_are_left_out_and_the_next_records_take_their_places(self, store: Store) -> None:
        """The newest of several duplicates is returned."""
        repeats = ("Heron by the lake", "heron  BY the lake", "Ｈeron by the\nlake")
        store_all(store, *(Record(f"twin{i}", text, created_at=NOON + timedelta(i)) for i, text in enumerate(repeats)))
        others = [Record(f"other{i}", f"a heron, number {i}, elsewhere", created_at=NOON) for i in range(5)]
        store_all(store, *others)
        for search in SEARCHES:
            hits = search(store, "heron by the lake", depth=4)
            texts = {hit.record.text for hit in hits.entries}
            assert (ids(hits)[0], len(texts), hits.duplicates) == ("twin2", 4, 2)

    def test_many_duplicates_do_not_crowd_out_other_records(self, store: Store) -> None:
        times = [NOON + timedelta(seconds=i) for i in range(300)]
        store_all(store, *(Record(f"r{i}", "heron heron heron", created_at=time) for i, time in enumerate(times)))
        store_all(store, Record("other", "a heron far away from here in the reeds", created_at=NOON))
        for search in SEARCHES:
            hits = search(store, "heron", depth=2)
            assert (ids(hits), hits.duplicates) == (["r299", "other"], 299)

    def test_short_facts_do_not_make_chunks_long(self, store: Store) -> None:
        """A chunk has the same score beside many facts as beside none, but for what its words are worth."""
        words = " ".join(f"word{i}" for i in range(60))
        store_all(store, *(Record(f"c{i}", f"heron {words} chunk{i}", "chunk") for i in range(5)))
        alone = by_keywords(store, "heron")
        store_all(store, *(Record(f"f{i}", f"egret{i}") for i in range(200)))
        beside = by_keywords(store, "heron")
        shares = [hits.scores[0] / hits.max_score for hits in (alone, beside)]
        assert shares[0] == pytest.approx(shares[1])
        store_all(store, Record("f", "one heron"))
        assert ids(by_keywords(store, "heron"))[0] == "f"

    def test_a_search_without_a_match_is_empty(self, store: Store) -> None:
        for terms in ([], ["heron"]):
            assert store.keywords.search(terms, Filter(), 9).entries == ()
        store_all(store, Record("a", "heron"))
        assert store.keywords.search([], Filter(), 9).entries == ()
        hits = store.keywords.search(["nowhere"], Filter(), 9)
        assert (hits.entries, hits.among) == ((), 1)
        assert hits.max_score > 0


OTHER = VectorSpace("another-model@1/64d", "another-model", 64)
LONGER = VectorSpace("longer@1/96d", "longer", 96)


class SpacesContract:
    """Vectors belong to the model that computed them; terms belong to the store's language."""

    def test_two_models_of_one_dimension_are_never_mixed(self, store: Store) -> None:
        store_all(store, Record("a", "heron"), Record("b", "lake"))
        other = store.spaces.open(OTHER)
        assert other.coverage() == (0, 2)
        assert other.search(EMBEDDER.query("heron"), Filter(), 9).entries == ()
        assert other.known(["heron", "lake"]) == set()
        assert sorted(other.missing(9)) == ["heron", "lake"]
        other.save(["heron"], EMBEDDER.passages(["lake"]))
        (hit,) = other.search(EMBEDDER.query("lake"), Filter(), 9).entries
        assert (hit.id, hit.score) == ("a", 1.0)
        assert ids(by_vector(store, "lake", depth=1)) == ["b"]
        assert (other.coverage(), index_of(store).coverage()) == ((1, 1), (2, 0))

    def test_the_active_space_is_the_same_in_every_process(self, open_store: OpenStore, place: str) -> None:
        first, second = open_store(place), open_store(place)
        assert (first.spaces.active, second.spaces.active) == (None, None)
        for store, space in ((first, SPACE), (second, OTHER), (first, LONGER), (second, SPACE)):
            store.spaces.activate(space)
            assert (first.spaces.active, second.spaces.active) == (space, space)

    def test_a_vector_of_another_dimension_is_refused(self, store: Store) -> None:
        store_all(store, Record("a", "heron"))
        with pytest.raises(EmbedderError, match="96"):
            index_of(store).search(np.zeros(96, dtype=np.float32), Filter(), 9)

    def test_vectors_are_stored_without_loss(self, store: Store) -> None:
        """They are read by record; records without a vector are left out."""
        rows = np.random.default_rng(11).normal(size=(5, 96)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        index = store.spaces.open(LONGER)
        records = apply(store, *(Put(Record(f"r{i}", f"text {i}", title="T" * (i % 2))) for i in range(6)))
        index.save([record.passage for record in records[:5]], rows)
        vectors = index.vectors([*ids(records), "nobody"])
        assert all(vector.dtype == np.float32 for vector in vectors.values())
        assert {key: vector.tobytes() for key, vector in vectors.items()} == {
            f"r{i}": row.tobytes() for i, row in enumerate(rows)
        }

    def test_missing_vectors_can_be_saved_later(self, store: Store) -> None:
        """Each text is missing once, with its title, the newest first. A text of another record needs no new vector."""
        index = index_of(store)
        apply(store, Put(Record("a", "text", title="Title")), Put(Record("b", "same")), Put(Record("c", "gone")))
        apply(store, Put(Record("d", "same", scope=Scope("ada"))), Forget("c"))
        assert index.coverage() == (0, 3)
        assert sorted(index.missing(99)) == ["Title\ntext", "same"]
        assert index.missing(1) == ["same"]
        index.save(["Title\ntext", "same"], EMBEDDER.passages(["Title\ntext", "same"]))
        assert index.missing(99) == []
        assert index.coverage() == (3, 0)
        assert index.known(["Title\ntext", "same", "gone"]) == {"Title\ntext", "same"}
        apply(store, Put(Record("e", "same", scope=Scope("bob"))))
        assert index.coverage() == (4, 0)
        assert ids(by_vector(store, "same", Filter(scope=Scope("bob")), 1)) in (["b"], ["e"])

    def test_a_vector_can_be_saved_before_its_record(self, store: Store) -> None:
        """The record is found at once. If a vector is saved twice, the first one stays."""
        for passage in ("heron at dawn", "lake"):
            index_of(store).save(["heron at dawn"], EMBEDDER.passages([passage]), ahead=True)
        apply(store, Put(Record("a", "heron at dawn")))
        (hit,) = by_vector(store, "heron at dawn").entries
        assert (hit.id, hit.score) == ("a", 1.0)
        assert index_of(store).coverage() == (1, 0)

    def test_no_vector_is_left_of_a_text_that_was_purged_while_it_was_embedded(self, store: Store) -> None:
        apply(store, Put(Record("a", "heron at dawn")), Put(Record("b", "lake")))
        passages = index_of(store).missing(9)
        apply(store, Forget("a", purge=True))
        index_of(store).save(passages, EMBEDDER.passages(passages))
        assert index_of(store).known(["heron at dawn", "lake"]) == {"lake"}

    def test_vectors_saved_by_another_process_are_found(self, open_store: OpenStore, place: str) -> None:
        """Also by a store that has searched before they were saved."""
        here, there = open_store(place), open_store(place)
        apply(here, *(Put(Record(f"r{i}", f"walrus on floe {i}")) for i in range(9)))
        assert by_vector(here, "walrus").entries == ()
        passages = index_of(there).missing(99)
        index_of(there).save(passages, EMBEDDER.passages(passages))
        assert ids(by_vector(here, "walrus on floe 7", depth=1)) == ["r7"]

    def test_a_change_of_language_reaches_every_open_store(self, open_store: OpenStore, place: str) -> None:
        first = open_store(place)
        apply(first, Put(Record("a", "Die Häuser am See")))
        assert ids(by_keywords(first, "Haus")) == []
        second = open_store(place)
        second.keywords.change_language("german")
        assert first.status()["keyword_lag"] == 1
        for store in (second, first, second):
            assert ids(by_keywords(store, "Haus")) == ["a"]
        apply(first, Put(Record("b", "Viele Häuser")))
        for store in (first, second, open_store(place)):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert sorted(ids(by_keywords(store, "Haus"))) == ["a", "b"]
            assert store.status()["keyword_lag"] == 0

    def test_the_language_is_set_when_a_store_is_created(self, open_store: OpenStore, place: str) -> None:
        first = open_store(place, language="german")
        apply(first, Put(Record("a", "Die Häuser am See")))
        for store in (open_store(place, language="english"), open_store(place), first):
            assert store.keywords.analyzer.language == store.status()["language"] == "german"
            assert ids(by_keywords(store, "Haus")) == ["a"]
            assert store.status()["keyword_lag"] == 0


class VisibilityContract:
    """An answer is that of a store that contains only the visible records."""

    def test_a_record_is_visible_if_each_of_its_parts_is_unset_or_equal(self, store: Store) -> None:
        """In lists, by id, in counts and in both indexes, for every pair of 27 scopes."""
        parts = product((None, "1", "2"), repeat=3)
        scopes = {f"{i:02}": Scope(*values) for i, values in enumerate(parts)}
        store_all(store, *(Record(key, f"heron number {key}", scope=scope) for key, scope in scopes.items()))
        for caller in scopes.values():
            expected = [key for key, scope in scopes.items() if caller.admits(scope)]
            where = Filter(scope=caller)
            assert find(store, "heron number", where) == all_ids(store, where) == expected
            assert ids(store.records.get(list(scopes), where)) == expected
            assert store.count(where)["total"] == len(expected)
        assert find(store, "heron number", Filter(any_scope=True)) == list(scopes)

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_hidden_records_change_nothing_in_an_answer(self, open_store: OpenStore, seed: int) -> None:
        """Ids, order, scores and duplicates are those of a store that has the visible records only, at any depth."""
        chance = random.Random(seed)
        shared = open_store()
        fill(chance, shared)
        for where in (Filter(scope=Scope("ada", "x", "s"), now=NOON), *islice(some_filters(chance), 2)):
            alone = open_store()
            store_all(alone, *shared.records.list(where, limit=100))
            for _ in range(4):
                query, depth = " ".join(chance.choices(WORDS, k=3)), chance.choice([1, 3, 100])
                for search in SEARCHES:
                    hits, expected = (search(store, query, where, depth) for store in (shared, alone))
                    assert hits.max_score == pytest.approx(expected.max_score)
                    assert replace(hits, max_score=expected.max_score) == expected, (query, where)

    def test_a_small_scope_among_many_records_is_found(self, store: Store) -> None:
        """Keyword search finds the records that match, vector search all three, and neither any other record."""
        chance = random.Random(5)
        crowd = [f"heron {chance.randrange(997)} lake {chance.randrange(89)} text" for _ in range(1500)]
        store_all(store, *(Record(f"c{i}", text, scope=Scope("crowd")) for i, text in enumerate(crowd)))
        few = ("heron by the lake", "heron in the reeds", "a boat")
        store_all(store, *(Record(f"few{i}", text, scope=Scope("few")) for i, text in enumerate(few)))
        where = Filter(scope=Scope("few"))
        for depth in (1, 3, 20, 100):
            assert len(by_keywords(store, "heron", where, depth).entries) == min(depth, 2)
            assert len(by_vector(store, "heron", where, depth).entries) == min(depth, 3)
        assert ids(by_keywords(store, "boat", where)) == ["few2"]
        assert by_keywords(store, "heron", where).among == 3
        assert find(store, "heron") == []

    def test_a_path_filter_takes_files_folders_and_stars(self, store: Store) -> None:
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
        for pattern, hits in expected.items():
            where = Filter(path=pattern)
            assert all_ids(store, where) == find(store, "heron", where) == hits, pattern

    def test_a_filter_applies_to_every_way_of_reading(self, store: Store) -> None:
        """By category, tag, kind, writer and time, in lists, counts, facets, by text, by path and by id."""
        one = Record(
            "1", "heron", category="work", tags=("red", "blue"), path="/n/1.md", created_at=NOON, origin="web",
            author="crawler", author_session="s",
        )  # fmt: skip
        two = Record(
            "2", "heron two", category="home", tags=("red",), kind="chunk", path="/n/2.md", created_at=NOON,
            edited_at=DAYS[-1], origin="file",
        )  # fmt: skip
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
            (Filter(origins=("web",)), ["1"]),
            (Filter(origins=("file", "web")), ["1", "2"]),
            (Filter(origins=("user", "file", "agent", "outside")), ["2"]),
            (Filter(origins=("user",)), []),
            (Filter(authors=("crawler", "scribe")), ["1"]),
            (Filter(author_sessions=("t",)), []),
            (Filter(written_since=NOON), ["1", "2"]),
            (Filter(written_until=NOON), []),
            (Filter(written_since=NOON + timedelta(seconds=1)), ["2"]),
        ):
            assert all_ids(store, where) == find(store, "heron", where) == expected
            assert store.count(where)["total"] == len(expected)
            assert len(store.facets(where)["categories"]) == len(expected)
            assert ids(store.records.get(["1", "2"], where)) == expected
            assert sorted(store.joins.by_path(["/n/1.md", "/n/2.md"], where)) == [f"/n/{key}.md" for key in expected]

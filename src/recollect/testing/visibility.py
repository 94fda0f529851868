"""Filter, then rank: what one may not see changes nothing of what one sees."""

# ruff: noqa: S101, S311, PLR2004  (these are tests)

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from recollect.errors import UsageError
from recollect.testing.asking import NOON, SEARCHES, OpenStore, all_ids, by_meaning, by_words, ids, keep, told
from recollect.types import Filter, Record, Scope, Store, Supersede

WORDS = ("heron", "lake", "reeds", "boat", "dawn", "the", "in", "café", "v1.2", "湖", "snake_case")
DAYS = [NOON + timedelta(days=days) for days in range(-3, 4)]


def scopes() -> list[Scope]:
    """Every combination of parts: unset, one value, another value."""
    return [Scope(u, a, s) for u in (None, "1", "2") for a in (None, "1", "2") for s in (None, "1", "2")]


def may_see(asks: Scope, record: Scope) -> bool:
    """The rule of scopes, written again without the code under test."""
    for part in ("user", "agent", "session"):
        theirs = getattr(record, part)
        if theirs is not None and theirs != getattr(asks, part):
            return False
    return True


def sees(where: Filter, record: Record) -> bool:
    """The rules of filters, written again without the code under test."""
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


def some_records(chance: random.Random, count: int) -> list[Record]:
    """Records with every kind of difference that a filter could see."""

    def maybe_time() -> datetime | None:
        return chance.choice([*[None] * 14, *DAYS])

    return [
        Record(
            f"r{i:02}",
            " ".join(chance.choices(WORDS, k=chance.randint(1, 6))),
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
    """Random filters, most of them of one or two wishes."""
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
    """Each answers for who asks, and as if nothing else were there."""

    def test_a_record_is_visible_if_each_of_its_parts_is_unset_or_equal(self, store: Store) -> None:
        """In lists, by id with a filter, in counts and in both indexes, for every pair of 27 scopes."""
        keep(store, *(Record(str(i), f"heron number {i}", scope=scope) for i, scope in enumerate(scopes())))
        everybody = [str(i) for i in range(27)]
        for asks in scopes():
            expected = [str(i) for i, scope in enumerate(scopes()) if may_see(asks, scope)]
            where = Filter(scope=asks)
            assert sorted(ids(store.records.list(where, limit=50))) == sorted(expected)
            assert ids(store.records.get(everybody, where)) == expected
            assert store.count(where)["total"] == len(expected)
            for search in SEARCHES:
                assert sorted(ids(search(store, "heron number", where, 50))) == sorted(expected)
        for search in SEARCHES:
            assert len(search(store, "heron number", Filter(any_scope=True), 50).found) == 27

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_a_shared_store_answers_as_one_that_holds_only_what_may_be_seen(
        self, open_store: OpenStore, seed: int
    ) -> None:
        """Ids, order, scores and counts of repeats are the same, by words and by vectors, at any depth."""
        chance = random.Random(seed)
        shared = open_store()
        records = some_records(chance, 32)
        keep(shared, *records)
        for _ in range(8):
            old, new = chance.sample([record.id for record in records], 2)
            with contextlib.suppress(UsageError):  # cycles and the like are another test's subject
                shared.records.apply([[Supersede(old, new, chance.choice([None, *DAYS]))]])
        stored = shared.records.get([record.id for record in records])
        for where, _ in zip(some_filters(chance), range(3), strict=False):
            visible = [record for record in stored if sees(where, record)]
            alone = open_store()
            keep(alone, *visible)
            assert all_ids(shared, where) == [record.id for record in visible]
            for _ in range(4):
                query, depth = " ".join(chance.choices(WORDS, k=3)), chance.choice([1, 3, 100])
                for search in SEARCHES:
                    asked = [search(each, query, where, depth) for each in (shared, alone)]
                    assert told(asked[0]) == told(asked[1]), (query, where)
                    assert asked[0].most == pytest.approx(asked[1].most)
                    assert asked[0].among == asked[1].among

    def test_three_visible_among_many_are_found(self, store: Store) -> None:
        """Exactly those that match, by words; all three, by vector; and never one of the crowd."""
        chance = random.Random(5)
        crowd = [f"heron {chance.randrange(997)} lake {chance.randrange(89)} text" for _ in range(1500)]
        keep(store, *(Record(f"c{i}", text, scope=Scope("crowd")) for i, text in enumerate(crowd)))
        few = ("heron by the lake", "heron in the reeds", "a boat")
        keep(store, *(Record(f"few{i}", text, scope=Scope("few")) for i, text in enumerate(few)))
        where = Filter(scope=Scope("few"))
        for depth in (1, 3, 20, 100):
            assert len(by_words(store, "heron", where, depth).found) == min(depth, 2)
            assert len(by_meaning(store, "heron", where, depth).found) == min(depth, 3)
        assert ids(by_words(store, "boat", where, 9)) == ["few2"]
        assert by_words(store, "heron", where, 9).among == 3
        assert by_words(store, "heron", Filter(), 9).found == ()
        assert by_meaning(store, "heron", Filter(), 9).found == ()

    def test_a_filter_on_paths_takes_files_folders_and_stars(self, store: Store) -> None:
        """Whole or by the last parts; `*` is the only sign, whatever else may stand in a name."""
        paths = [
            "/n/a.md", "/n/sub/a.md", "/n/ab.md", "/n/a_md", "/n/100%.md", "/n/1000.md", "/n/[x].md", "/n/q?.md",
            "/n/back\\slash.md", "/n/it's.md", "/n/ünï 湖.md", "/m/sub/b.md", "/n/a.md.bak",
        ]  # fmt: skip
        keep(store, *(Record(path, f"heron {i}", path=path, kind="chunk") for i, path in enumerate(paths)))
        keep(store, Record("none", "heron without a path"))
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
        keep(store, one, two)
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

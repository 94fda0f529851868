"""The keyword index of PostgreSQL: new documents, blocks and removals give what a plain computation gives."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from recollect import Scope
from recollect.analysis import Analyzer
from recollect.errors import UsageError
from recollect.stores.database import K1, B
from recollect.stores.postgres import PostgresStore, keywords
from recollect.stores.postgres.health import _BLOCKS
from recollect.stores.postgres.postings import MERGE_LOCK
from recollect.types import EVERYTHING, Filter, Forget, Put, Record, Restore, Supersede
from tests.reference.search import mean_lengths

WORDS = ["heron", "egret", "stork", "crane", "ibis", "bittern", "spoonbill"]


@pytest.fixture
def store(place: str) -> Iterator[PostgresStore]:
    """A store without stemming."""
    store = PostgresStore(place, language="none")
    yield store
    store.close()


def expected(store: PostgresStore, terms: list[str], where: Filter) -> list[tuple[str, float]]:
    """BM25 of every visible record, by its definition."""
    visible = store.records.list(where, limit=10**6)
    counts = {record.id: [token.term for token in Analyzer("none").tokens(record.text)] for record in visible}
    means = mean_lengths(visible, {key: len(words) for key, words in counts.items()})
    scores = dict.fromkeys(counts, 0.0)
    for term in terms:
        held = sum(term in words for words in counts.values())
        weight = math.log(1 + (len(counts) - held + 0.5) / (held + 0.5))
        for key, words in counts.items():
            often = words.count(term)
            scores[key] += weight * often / (often + K1 * (1 - B + B * len(words) / means[key]))
    rounded = {key: round(round(score, 9), 7) for key, score in scores.items()}  # as the store rounds, then as `found`
    ordered = sorted(visible, key=lambda record: (-rounded[record.id], -record.time.timestamp(), record.id))
    return [(record.id, rounded[record.id]) for record in ordered if rounded[record.id] > 0]


def found(store: PostgresStore, terms: list[str], where: Filter) -> list[tuple[str, float]]:
    answer = store.keywords.search(terms, where, 10**4)
    return [(hit.id, round(hit.score or 0.0, 7)) for hit in answer.entries]


def numbers(store: PostgresStore, statement: str) -> tuple[Any, ...]:
    with store._database.read() as connection:
        return connection.execute(statement).fetchone() or ()


def merge(store: PostgresStore, most: int, *, patient: bool = True) -> None:
    store._database.write(lambda connection: keywords._merge(connection, most, patient=patient))


def change(store: PostgresStore, chance: random.Random, turn: int) -> None:
    """One change of a random kind."""
    text = f"{' '.join(chance.choices(WORDS, k=chance.randrange(1, 9)))} n{turn}"
    category = chance.choice([None, "wet"])
    live = store.records.list(EVERYTHING, limit=10**6)
    first, second = (chance.choice(live), chance.choice(live)) if live else (None, None)
    step = chance.randrange(7)
    if first is None or second is None or step < 3:
        scope = chance.choice([Scope(), Scope("ada"), Scope("bob")])
        kind = chance.choice(["fact", "fact", "chunk", "turn"])
        store.records.apply([[Put(Record(f"r{turn}", text, kind, scope=scope, category=category))]])
    elif step == 3:
        store.records.apply([[Put(Record(first.id, text, first.kind, scope=first.scope, category=category))]])
    elif step == 4:
        store.records.apply([[Forget(first.id)]])
    elif step == 5:
        store.records.apply([[Forget(first.id)], [Restore(first.id)]])
    else:
        with contextlib.suppress(UsageError):  # a cycle, or of another scope
            store.records.apply([[Supersede(first.id, second.id)]])


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_changes_and_merges_gives_bm25(store: PostgresStore, seed: int) -> None:
    """Adds, edits, removals, supersessions and merges of any size, between identical queries."""
    chance = random.Random(seed)
    views = (EVERYTHING, Filter(scope=Scope("ada")), Filter(), Filter(any_scope=True, categories=("wet",)))
    for turn in range(60):
        change(store, chance, turn)
        if chance.random() < 0.4:
            merge(store, chance.choice([1, 3, 50]))
        terms = chance.sample(WORDS, chance.randrange(1, 4))
        for where in views:
            assert found(store, terms, where) == expected(store, terms, where), (turn, terms, where)
    held, counted = numbers(store, _BLOCKS)
    assert held == counted
    store.keywords.merge_all()
    assert numbers(store, "SELECT count(*) FROM removals") == (0,)
    assert numbers(store, "SELECT count(*) FROM documents WHERE NOT merged") == (0,)
    assert found(store, WORDS, EVERYTHING) == expected(store, WORDS, EVERYTHING)


def test_full_blocks_are_closed(store: PostgresStore) -> None:
    """A block of a common word does not grow without end; removed records leave the closed ones too."""
    for first in range(0, 600, 200):
        changes = [Put(Record(f"r{number}", f"heron n{number}")) for number in range(first, first + 200)]
        store.records.apply([changes])
        store.keywords.merge_all()
    count, largest = numbers(store, "SELECT count(*), max(octet_length(postings)) FROM blocks WHERE term = 'heron'")
    assert count >= 3
    assert largest == 200 * 16
    store.records.apply([[Forget(f"r{number}") for number in range(0, 600, 2)]])
    store.keywords.merge_all()
    assert numbers(store, "SELECT sum(octet_length(postings)) FROM blocks WHERE term = 'heron'") == (300 * 16,)
    assert numbers(store, "SELECT count(*) FROM blocks WHERE term = 'n2'") == (0,)
    assert len(found(store, ["heron"], EVERYTHING)) == 300


def test_merging_and_writing_at_once_lose_nothing(store: PostgresStore, place: str) -> None:
    """Two that merge, two that add, edit and forget: the index has the terms of the live records, each once."""
    others = [PostgresStore(place) for _ in range(4)]

    def write(me: int) -> None:
        for turn in range(40):
            key = f"k{(me * 7 + turn) % 13}-{me}"
            others[me].records.apply([[Put(Record(key, f"{WORDS[turn % 7]} {WORDS[me]} t{turn}"))]])
            if turn % 5 == 0:
                others[me].records.apply([[Forget(key)]])

    def merge_some(me: int) -> None:
        for turn in range(60):
            merge(others[me], 5, patient=turn % 2 == 0)

    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(work, me) for me, work in enumerate((write, write, merge_some, merge_some))]
        for job in jobs:
            job.result()
    held, counted = numbers(store, _BLOCKS)
    assert held == counted
    assert found(store, WORDS, EVERYTHING) == expected(store, WORDS, EVERYTHING)
    store.keywords.merge_all()
    assert found(store, WORDS, EVERYTHING) == expected(store, WORDS, EVERYTHING)
    for other in others:
        other.close()


def test_purged_words_leave_the_blocks(store: PostgresStore) -> None:
    """After `scrub` no table of the index has them."""
    store.records.apply([[Put(Record("secret", "heron xyzzy"))], [Put(Record("other", "heron"))]])
    store.keywords.merge_all()
    store.records.apply([[Forget("secret", purge=True)]])
    store.scrub()
    for table in ("documents", "blocks", "removals"):
        assert numbers(store, f"SELECT count(*) FROM {table} WHERE {table}::text LIKE '%xyzzy%'") == (0,)
    assert [key for key, _ in found(store, ["heron"], EVERYTHING)] == ["other"]


def test_purge_while_another_process_merges_says_so(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is gone from every answer; its words are removed from the blocks by the next one."""
    monkeypatch.setattr("recollect.stores.postgres.database.WAIT_SECONDS", 1)
    store = PostgresStore(place)
    store.records.apply([[Put(Record("secret", "heron xyzzy"))]])
    store.keywords.merge_all()
    store.records.apply([[Forget("secret", purge=True)]])
    with store._database.connect() as merging:
        schema = "current_schema()::regnamespace::oid::integer"
        merging.execute(f"SELECT pg_advisory_lock({MERGE_LOCK}, {schema})")
        assert "being merged" in (store.scrub() or "")
        assert found(store, ["xyzzy"], EVERYTHING) == []
    store.scrub()
    assert numbers(store, "SELECT count(*) FROM blocks WHERE term = 'xyzzy'") == (0,)
    store.close()


def test_interrupted_analysis_continues(store: PostgresStore, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the language that is interrupted goes on where it was; until then no search answers from half."""
    store.records.apply([[Put(Record(f"r{number}", f"houses n{number}"))] for number in range(5)])
    monkeypatch.setattr("recollect.stores.postgres.postings.REINDEX_BATCH", 2)
    reindex, calls = keywords.reindex, list[int]()

    def interrupted(connection: Any, writer: Any, after: int, ids: str) -> int:
        calls.append(after)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return reindex(connection, writer, after, ids)

    monkeypatch.setattr(keywords, "reindex", interrupted)
    store.keywords.change_language("english")
    with pytest.raises(KeyboardInterrupt):
        store.keywords.search(["hous"], EVERYTHING, 9)
    assert numbers(store, "SELECT count(*) FROM documents") == (2,)
    other = PostgresStore(place)
    assert len(other.keywords.search(["hous"], EVERYTHING, 9).entries) == 5
    assert numbers(other, "SELECT sum(length) FROM tallies") == numbers(other, "SELECT sum(length) FROM records")
    other.close()

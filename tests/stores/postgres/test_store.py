"""What is specific to PostgreSQL: row-level security, notifications, concurrent writers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import numpy as np
import psycopg
import pytest
from psycopg import sql
from support import postgres as server_kit
from support.postgres import GRANTS

from recollect import Memory, Scope
from recollect.config import ScopeSettings, Settings
from recollect.errors import RecollectError, StoreError, UsageError
from recollect.stores.postgres import PostgresStore, connections, vectors
from recollect.stores.postgres.health import _STRAY_TERMS, _WRONG_TALLIES
from recollect.stores.rows import passage_hash
from recollect.types import (
    EVERYTHING,
    FileState,
    Filter,
    Forget,
    Put,
    Record,
    SetFileState,
    SetFolderOptions,
    VectorSpace,
)

ADA, BOB = Scope("ada"), Scope("bob")
FUTURE_TABLES = "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role};"


BOBS = "titlebob\nheron secretbob first"
"""What is embedded of a record of Bob's."""


def schema_of(place: str) -> str:
    """The schema that a place names."""
    return place.rpartition("schema=")[2]


def as_role(place: str, role: str) -> str:
    """The same place for another role, whose password is its name."""
    parts = urlsplit(place)
    return urlunsplit(parts._replace(netloc=f"{quote(role)}:{quote(role)}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def memory(place: str) -> Iterator[Memory]:
    """The table owner's memory, with records of Ada and Bob and global ones."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("heron of everybody", id="global")
        for user in ("ada", "bob"):
            memory.add(f"heron secret{user} first", id=f"{user}1", user=user, tags=[f"tag{user}"], title=f"title{user}")
            memory.supersede(f"{user}1", text=f"heron secret{user} second")
            memory.add(f"gone secret{user}", id=f"{user}gone", user=user)
            memory.forget(f"{user}gone")
            path = f"/home/secret{user}.md"
            state = FileState(path, "/home", 1, 1, f"digest{user}")
            chunk = Record(f"{user}chunk", f"chunk secret{user}", kind="chunk", path=path, scope=Scope(user))
            told = SetFolderOptions(f"/home/of{user}", {"scope": {"user": user}})
            memory.store.records.apply([[Put(chunk), SetFileState(path, state), told]])
            memory.store.notes.put(f"key{user}", f"note secret{user}")
        memory.embed()
        yield memory


@pytest.fixture
def role(place: str, memory: Memory, postgres_url: str) -> Iterator[str]:
    """A role with only the documented grants."""
    name = f"app_{uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        owner.execute((GRANTS + FUTURE_TABLES).format(schema=schema_of(place), role=name))
        yield name
        owner.execute(f"DROP OWNED BY {name}")
        owner.execute(f"DROP ROLE {name}")


@pytest.fixture
def raw(place: str, role: str) -> Iterator[psycopg.Connection[Any]]:
    """An SQL connection of that role."""
    plain, _, schema = as_role(place, role).rpartition("schema=")
    with psycopg.connect(plain.rstrip("?&"), autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}, public")
        yield connection


@pytest.fixture
def guarded(place: str, role: str) -> Iterator[Memory]:
    """A service's memory under that role."""
    with Memory.open(as_role(place, role), embedder="hashing:64", settings=Settings()) as memory:
        yield memory


def tables(connection: psycopg.Connection[Any]) -> list[str]:
    """Every table and view of the store."""
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v')"
    )
    return sorted(name for (name,) in found)


# -- row-level security -------------------------------------------------------------------------------------


def test_raw_sql_without_a_scope_sees_only_global_rows(raw: psycopg.Connection[Any]) -> None:
    """A query that forgets its filter, in every table."""
    names = tables(raw)
    held = {"records", "history", "documents", "blocks", "removals", "tallies", "embeddings", "vectors_1", "scopes"}
    assert held | {"notes", "files"} <= set(names)
    for name in names:
        said = str(raw.execute(f"SELECT * FROM {name}").fetchall()).lower()
        assert not [word for word in ("ada", "bob") if word in said], name
    assert raw.execute("SELECT id FROM records").fetchall() == [("global",)]
    assert raw.execute("SELECT count(*) FROM vectors_1").fetchone() == (1,)
    assert raw.execute("SELECT count(*) FROM embeddings").fetchone() == (1,)
    assert raw.execute("SELECT count(*) FROM documents").fetchone() == (1,)


def test_statistics_of_the_server_show_no_values(
    raw: psycopg.Connection[Any], memory: Memory, place: str, postgres_url: str
) -> None:
    """ANALYZE samples the rows of all scopes; a service sees no sample of a table with row-level security."""
    memory.add_many([{"text": f"heron secretbob {n}", "user": "bob", "category": "secretbob"} for n in range(30)])
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"SET search_path TO {schema_of(place)}, public")
        owner.execute("ANALYZE records, history, documents")
        sampled = "SELECT count(*) FROM pg_stats WHERE schemaname = %s AND most_common_vals::text LIKE %s"
        assert owner.execute(sampled, (schema_of(place), "%secretbob%")).fetchone() != (0,)
    seen = raw.execute("SELECT * FROM pg_stats WHERE schemaname = %s", (schema_of(place),)).fetchall()
    assert "secret" not in str(seen)


def test_raw_sql_with_a_scope_sees_that_scope(raw: psycopg.Connection[Any]) -> None:
    """Ada's and global rows in every table, and none of Bob's."""
    raw.execute("SELECT set_config('recollect.user', 'ada', false)")
    for name in tables(raw):
        assert "bob" not in str(raw.execute(f"SELECT * FROM {name}").fetchall()).lower(), name
    keys = {key for (key,) in raw.execute("SELECT id FROM records")}
    assert {"global", "ada1", "adagone", "adachunk"} < keys
    assert raw.execute("SELECT path FROM files").fetchall() == [("/home/secretada.md",)]
    terms = {term for (term,) in raw.execute("SELECT unnest(terms) FROM documents UNION SELECT term FROM blocks")}
    assert "secretada" in terms
    assert "secretbob" not in terms
    raw.execute("SET recollect.note = 'keyada'")
    assert raw.execute("SELECT value FROM notes").fetchall() == [("note secretada",)]


def test_raw_sql_cannot_change_other_scopes(raw: psycopg.Connection[Any], memory: Memory) -> None:
    """Updates and deletes skip Bob's rows, and none can be inserted or moved into his scope."""
    before = memory.store.records.list(EVERYTHING, limit=99)
    bob = memory.store.records.get(["bob1"])[0]
    with memory.store._database.read() as connection:
        number = connection.execute("SELECT scope FROM scopes WHERE \"user\" = 'bob'").fetchone()[0]
    raw.execute("SELECT set_config('recollect.user', 'ada', false)")
    for statement in (
        "UPDATE records SET text = 'taken' WHERE id = 'bob1'",
        "DELETE FROM records WHERE id LIKE 'bob%'",
        f"DELETE FROM documents WHERE scope = {number}",
        f"DELETE FROM blocks WHERE scope = {number}",
        f"DELETE FROM removals WHERE scope = {number}",
        f"DELETE FROM history WHERE scope = {number}",
        f"UPDATE vectors_1 SET vector = NULL WHERE scope = {number}",
        f"DELETE FROM tallies WHERE scope = {number}",
        "DELETE FROM notes",
    ):
        assert raw.execute(statement).rowcount == 0, statement
    for statement in (
        f"UPDATE records SET scope = {number} WHERE id = 'ada1'",
        f"INSERT INTO history (row, scope, id, action, at, detail) VALUES (1, {number}, 'bob1', 'add', 1, '{{}}')",
        f"INSERT INTO documents VALUES (99999, {number}, 1, '{{word}}', '{{1}}')",
        f"INSERT INTO blocks VALUES ('word', {number}, 0, 1, 1, '')",
        f"INSERT INTO removals (row, scope, terms) VALUES (1, {number}, '{{word}}')",
        f"INSERT INTO tallies (scope, kind, records, length) VALUES ({number}, 0, 1000, 1)",
        f"INSERT INTO vectors_1 (row, scope) VALUES (99999, {number})",
        "INSERT INTO scopes (\"user\") VALUES ('carol')",
        "UPDATE meta SET value = 'german'",
        "DELETE FROM migrations",
        "TRUNCATE records",
        "DROP TABLE records",
        "ALTER TABLE records DISABLE ROW LEVEL SECURITY",
        "SET row_security = off; SELECT * FROM records",
    ):
        with pytest.raises(psycopg.Error):
            raw.execute(statement)
    assert memory.store.records.list(EVERYTHING, limit=99) == before
    assert memory.search("secretbob", user="bob").results
    assert bob.text == "heron secretbob first"


def test_temporary_table_does_not_deceive_definer_functions(raw: psycopg.Connection[Any], memory: Memory) -> None:
    """They look up their tables in the store's schema, not in the caller's."""
    raw.execute("CREATE TEMP TABLE records (passage bytea)")
    raw.execute("SELECT drop_orphan(%s)", (passage_hash(BOBS),))
    index = memory.store.spaces.open(memory.store.spaces.active)
    assert index.known([BOBS]) == {BOBS}


def test_concurrent_adds_of_one_text_store_it_once(place: str, memory: Memory) -> None:
    """At every isolation level of the server."""
    name, role = place.rpartition("schema=")[2], f"strict{uuid4().hex}"
    with psycopg.connect(place.rpartition("&schema=")[0], autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        owner.execute(f"ALTER ROLE {role} SET default_transaction_isolation = 'repeatable read'")
        with (
            Memory.open(as_role(place, role), embedder="none", settings=Settings()) as first,
            Memory.open(as_role(place, role), embedder="none", settings=Settings()) as second,
            ThreadPoolExecutor(2) as pool,
        ):
            for number in range(8):
                added = [pool.submit(each.add, f"said by two at once, {name} {number}") for each in (first, second)]
                assert len({one.result().id for one in added}) == 1
        owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert memory.search("said by two").results


def test_service_finds_and_writes_only_its_scope(guarded: Memory, memory: Memory) -> None:
    """Every method of Memory under that role, as Ada: nothing of Bob's, and all of hers."""
    ada = guarded.within(ADA)
    for sources in (["keyword"], ["vector"], ["keyword", "vector"]):
        found = {result.record.text for result in ada.search("heron secretbob secretada", sources=sources).results}
        assert "heron secretada second" in found
        assert "bob" not in str(found)
    assert ada.get("bob1") is None
    assert {record.scope for record in ada.list(superseded=True)} == {ADA, Scope()}
    new = ada.add("heron by the river", tags=["new"])
    ada.add_many([{"text": f"heron number {i}"} for i in range(5)])
    for source in ("keyword", "vector"):
        texts = {result.record.text for result in ada.search("heron number 3", sources=[source], limit=50).results}
        assert {"heron by the river", *(f"heron number {i}" for i in range(5))} <= texts, source
    assert ada.edit(new.id, text="heron by the lake").text == "heron by the lake"
    later = ada.supersede(new.id, text="heron left")
    assert [event.action for event in ada.history(new.id)] == ["add", "update", "supersede"]
    ada.undo(new.id)
    assert ada.get(new.id).superseded_by is None
    ada.forget(new.id, purge=True)
    assert ada.get(new.id) is None
    assert later.scope == ADA
    assert memory.store.spaces.open(memory.store.spaces.active).known(["heron by the lake"]) == set(), (
        "purged vectors go"
    )
    assert memory.status()["vectors"]["without"] == 0
    with pytest.raises(RecollectError):
        ada.forget("bob1")
    with pytest.raises(UsageError, match="taken"):
        ada.add("mine now", id="bob1")
    assert memory.get("bob1").text == "heron secretbob first"


def test_unfiltered_query_still_returns_one_scope(guarded: Memory) -> None:
    """The store of a scope returns only what that scope sees."""
    store = guarded.within(ADA).store
    assert {record.scope for record in store.records.list(EVERYTHING, limit=99)} <= {ADA, Scope()}
    assert store.records.get(["bob1", "ada1"]) == store.records.get(["ada1"]) != []
    assert store.records.history("bob1") == []
    everybody = replace(EVERYTHING, scope=ADA)
    found = store.keywords.search(["secretbob", "secretada", "heron"], everybody, 99).entries
    assert {match.record.scope for match in found} <= {ADA, Scope()}
    assert "bob" not in str(store.facets(everybody)).lower()


def test_memory_with_a_scope_reaches_its_records_by_id(guarded: Memory, place: str, role: str) -> None:
    """The settings' scope is passed to the database; records for Bob are added in his scope."""
    hers = Settings(scope=ScopeSettings(user="ada"))
    with Memory.open(as_role(place, role), embedder="hashing:64", settings=hers) as memory:
        assert memory.get("ada1").scope == ADA
        assert next(event.action for event in memory.history("ada1")) == "add"
        assert memory.edit("ada1", text="heron edited").text == "heron edited"
        assert memory.add("for bob", user="bob").scope == Scope(user="bob")
        assert memory.get("bob1") is None
    assert guarded.search("bob", user="bob").results


def test_batches_of_many_scopes_are_written_by_a_service(guarded: Memory, memory: Memory) -> None:
    """Each batch names its own scope."""
    groups = [
        [Put(Record(f"{user}new{i}", f"crane {user} {i}", scope=Scope(user)))]
        for i in range(3)
        for user in ("ada", "bob", "eve")
    ]
    guarded.store.records.apply(groups)
    for user in ("ada", "bob", "eve"):
        assert len(memory.search("crane", user=user, sources=["keyword"]).results) == 3


def test_read_only_role_can_search_but_not_write(place: str, memory: Memory, postgres_url: str) -> None:
    """With SELECT alone an add is refused with a hint, and nothing changes."""
    name, schema = f"reader_{uuid4().hex[:12]}", schema_of(place)
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        owner.execute(
            f"GRANT USAGE ON SCHEMA {schema} TO {name}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}"
        )
        before = memory.status()["sequence"]
        with Memory.open(as_role(place, name), embedder="hashing:64", settings=Settings()) as reader:
            answer = reader.within(ADA).search("heron secretada")
            assert [trace.status for trace in answer.trace.sources] == ["ok", "ok"]
            assert answer.results[0].record.text == "heron secretada second"
            with pytest.raises(StoreError, match="may not") as refused:
                reader.within(ADA).add("not allowed")
            assert "grants" in refused.value.hint
            reader.store.notes.put("k", "v")
            reader.store.joins.learn("s", {"a": "b"})
        assert memory.status()["sequence"] == before
        owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


# -- many at once -------------------------------------------------------------------------------------------


def test_listener_is_notified_of_changes(place: str, memory: Memory) -> None:
    """`True` soon after a commit."""
    told, ready = [], threading.Event()

    def listen() -> None:
        with memory.store.changes.listen() as heard:
            ready.set()
            told.append(any(islice(heard, 30)))  # on a busy machine the change may take longer than one quiet second

    listener = threading.Thread(target=listen)
    listener.start()
    assert ready.wait(30)
    memory.add("something new")
    listener.join(30)
    assert told == [True]


def test_listener_is_notified_only_of_visible_changes(memory: Memory, guarded: Memory) -> None:
    """Ada's service gets hers and global ones, and no notice of Bob's."""
    with guarded.within(ADA).changes(quiet=0.05) as ticks:
        memory.add("heron of bob", user="bob")
        assert not any(islice(ticks, 8))
        for whose in ({}, {"user": "ada"}):
            memory.add("another heron", **whose)
            assert any(islice(ticks, 100))
    assert guarded.store.changes.newest(BOB) < guarded.store.changes.newest(ADA) == memory.store.changes.newest()


def test_more_threads_than_connections_take_turns(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two connections sixteen threads all get their answer."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    store = PostgresStore(place)
    store.records.apply([[Put(Record("a", "heron"))]])
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda _: store.keywords.search(["heron"], Filter(), 9).entries, range(64)))
    assert all(len(matches) == 1 for matches in found)
    store.close()


def test_store_used_after_a_fork_is_an_error(place: str) -> None:
    """In the child; the parent's connections still work."""
    store = PostgresStore(place)
    store.records.apply([[Put(Record("a", "heron"))]])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.check()
        except StoreError as error:
            os.write(write, error.message.encode()[-40:])
        os._exit(0)
    os.waitpid(child, 0)
    assert b"opened by another process" in os.read(read, 100)
    assert len(store.keywords.search(["heron"], Filter(), 9).entries) == 1
    store.close()


@pytest.mark.ci
def test_vector_stays_if_a_new_record_needs_it(place: str) -> None:
    """One forgets the last record of a text while another adds it: the new one is found by its vector."""
    stores = [PostgresStore(place) for _ in range(2)]
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        for turn in range(25):
            memory.add("the same passage", id=f"old{turn}")
            with ThreadPoolExecutor(2) as threads:
                first = threads.submit(stores[0].records.apply, [[Forget(f"old{turn}", purge=True)]])
                second = threads.submit(stores[1].records.apply, [[Put(Record(f"new{turn}", "the same passage"))]])
                first.result(), second.result()
            found = memory.search("the same passage", sources=["vector"]).results
            assert [result.record.id for result in found] == [f"new{turn}"]
            memory.forget(f"new{turn}", purge=True)
    for store in stores:
        store.close()


def test_statistics_agree_with_the_records_after_many_writes(place: str) -> None:
    """The sums that BM25 uses, after many concurrent writers."""
    stores = [PostgresStore(place) for _ in range(4)]

    def work(me: int) -> None:
        for turn in range(30):
            key = f"k{(me * 7 + turn) % 11}"
            try:
                stores[me].records.apply([[Put(Record(key, f"state {me} of {turn}" + " more" * (turn % 3)))]])
                if turn % 4 == me % 4:
                    stores[me].records.apply([[Forget(key, purge=turn % 8 == 0)]])
            except UsageError:
                pass  # another was first to forget it

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    with stores[0]._database.read() as connection:
        for summed, counted in (
            ("SELECT coalesce(sum(records), 0), coalesce(sum(length), 0) FROM tallies",
             "SELECT count(*), coalesce(sum(length), 0) FROM records WHERE forgotten_at IS NULL"),
            ("SELECT count(*) FROM documents", "SELECT count(*) FROM records WHERE forgotten_at IS NULL"),
            ("SELECT count(*) FROM documents JOIN records USING (row, scope, length) WHERE forgotten_at IS NULL",
             "SELECT count(*) FROM documents"),
        ):  # fmt: skip
            assert connection.execute(summed).fetchone() == connection.execute(counted).fetchone(), summed
    for store in stores:
        store.close()


def test_concurrent_creation_makes_one_store(place: str) -> None:
    """Eight at once: one creates the tables, all can write, and there is one vector space."""

    def open_one(me: int) -> str:
        with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
            return memory.add(f"hello from {me}").id

    with ThreadPoolExecutor(8) as threads:
        keys = list(threads.map(open_one, range(8)))
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        assert {record.id for record in memory.list()} == set(keys)
        assert memory.status()["vectors"]["with"] == 8
        with memory.store._database.read() as connection:
            assert connection.execute("SELECT count(*) FROM spaces").fetchone() == (1,)


def test_earlier_schema_is_migrated(place: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, vectors and files stay, and missing vectors are known, though the connection dies in each migration."""
    from recollect.stores.postgres import schema

    every, apply = schema.MIGRATIONS, schema._apply
    monkeypatch.setattr(schema, "MIGRATIONS", every[:2])
    PostgresStore(place).close()
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"SET search_path TO {schema_of(place)}, public")
        owner.execute(
            'INSERT INTO scopes ("user") VALUES (NULL);'
            "INSERT INTO records"
            " (id, kind, text, title, tags, scope, importance, time, created_at, fold, passage, length)"
            " VALUES ('a', 'fact', 'heron', '', '{}', 1, 0.5, 1, 1, 'f', 'p', 1),"
            " ('b', 'chunk', 'crane crane', '', '{}', 1, 0.5, 1, 1, 'g', 'q', 2);"
            "INSERT INTO tallies (scope, records, length) VALUES (1, 2, 3);"
            "INSERT INTO postings VALUES (1, 'heron', 1, 1, 1), (1, 'crane', 2, 2, 2);"
            "INSERT INTO spaces (fingerprint, embedder, dimension) VALUES ('f', 'e', 3);"
            "CREATE TABLE vectors_1 (row bigint PRIMARY KEY, scope integer NOT NULL, vector halfvec(3) NOT NULL);"
            "INSERT INTO vectors_1 VALUES (1, 1, '[1,0,0]');"
            "INSERT INTO embeddings VALUES (1, 'p', '[1,0,0]')"
        )
    monkeypatch.setattr(schema, "MIGRATIONS", every)
    for last in range(3, len(every) + 1):

        def die(connection: Any, *, number: int, last: int = last, **of_store: str) -> None:
            apply(connection, number=number, **of_store)
            if number == last:
                connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

        monkeypatch.setattr(schema, "_apply", die)
        with pytest.raises(StoreError, match="terminating connection"):
            PostgresStore(place)
        with psycopg.connect(postgres_url) as owner:
            applied = owner.execute(f"SELECT max(number) FROM {schema_of(place)}.migrations").fetchone()
        assert applied == (last - 1,)
    monkeypatch.setattr(schema, "_apply", apply)
    store = PostgresStore(place)
    index = store.spaces.open(VectorSpace("f", "e", 3))
    assert index.coverage() == (1, 1)
    assert index.missing(9) == ["crane crane"]
    assert [match.record.id for match in store.keywords.search(["heron"], Filter(), 9).entries] == ["a"]
    with store._database.read() as connection:
        tallies = connection.execute("SELECT kind, records, length FROM tallies ORDER BY kind").fetchall()
        assert tallies == [(0, 1, 1), (1, 1, 2)]
        assert connection.execute(_WRONG_TALLIES).fetchone() == connection.execute(_STRAY_TERMS).fetchone() == (0,)
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(
            sql.SQL("INSERT INTO {}.migrations VALUES (99, 'of later', now())").format(sql.Identifier(schema_of(place)))
        )
    with pytest.raises(StoreError, match="schema 99") as newer:
        PostgresStore(place)
    assert "upgrade" in newer.value.hint


# -- the approximate index ----------------------------------------------------------------------------------


@pytest.mark.ci
def test_small_scope_gets_all_its_results_from_the_approximate_index(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty of a scope among three thousand, too many to be compared one by one: as many as were asked for come back.

    And what the index finds of all is nearly always what an exact comparison finds, in the exact order.
    """
    chance, space = np.random.default_rng(3), VectorSpace("random", "random", 48)

    def unit(count: int) -> Any:
        rows = chance.normal(size=(count, 48)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    records = [Record(f"r{i}", f"text {i}", scope=Scope("few" if i % 75 == 0 else "crowd")) for i in range(3000)]
    store = PostgresStore(place)
    index = store.spaces.open(space)
    store.records.apply([Put(record) for record in records[i : i + 500]] for i in range(0, 3000, 500))
    index.save([record.passage for record in records], unit(3000))
    questions, few, crowd = unit(30), Filter(scope=Scope("few")), Filter(scope=Scope("crowd"))
    exact = [[match.record.id for match in index.search(each, crowd, 10).entries] for each in questions]
    monkeypatch.setattr(vectors, "EXACT_UP_TO", 10)
    pool = store._database._main
    pool.close()  # so few rows the planner would rather sort; with a million it would not
    pool._closed, pool._prepare = False, f"{pool._prepare}; SET enable_sort TO off; SET enable_seqscan TO off"
    for each in questions:
        for depth in (1, 20, 40, 100):
            found = index.search(each, few, depth).entries
            assert len(found) == min(depth, 40)
            assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    near = [[match.record.id for match in index.search(each, crowd, 10).entries] for each in questions]
    shared = sum(len(set(a) & set(b)) for a, b in zip(exact, near, strict=True)) / 300
    print(f"recall of the approximate index: {shared:.3f}")  # noqa: T201
    assert shared >= 0.95
    with store._database.read() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
    used = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelid = 'vectors_1_near'::regclass"
    assert store._database.one(used)[0] > 0, "the index was asked"
    store.close()


# -- replicas -----------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[Any, Any]]:
    """A server and its replica."""
    main = server_kit.Server.make(fsync="off")
    replica = None
    try:
        replica = main.replica()
        yield main, replica
    finally:
        for server in (replica, main):
            if server is not None:
                server.remove()


@pytest.mark.ci
def test_searches_go_to_the_replica_and_the_rest_to_the_main_server(pair: tuple[Any, Any]) -> None:
    """A stopped replica answers as of then, a missing one is skipped, and no write waits."""
    main, replica = pair
    with (
        Memory.open(main.url(), embedder="hashing:64", settings=Settings()) as first,
        psycopg.connect(replica.url(), autocommit=True) as control,
    ):
        first.add("heron of the first day")
        await_replica(control, first)
        with Memory.open(main.url(read=replica.url()), embedder="hashing:64", settings=Settings()) as memory:
            control.execute("SELECT pg_wal_replay_pause()")
            new = memory.add("heron of the second day")
            assert memory.get(new.id) == new, "what was written is read where it was written"
            for source in ("keyword", "vector"):
                texts = [result.record.text for result in memory.search("heron", sources=[source]).results]
                assert texts == ["heron of the first day"], source
            control.execute("SELECT pg_wal_replay_resume()")
            await_replica(control, first)
            for source in ("keyword", "vector"):
                assert len(memory.search("heron", sources=[source]).results) == 2
            with memory.changes() as ticks:
                control.execute("SELECT pg_wal_replay_pause()")
                memory.add("heron of the third day")
                threading.Timer(0.3, lambda: control.execute("SELECT pg_wal_replay_resume()")).start()
                assert any(islice(ticks, 10))
                assert len(memory.search("heron").results) == 3, "who is told of a change finds it"
            control.close()
            replica.stop()
            assert len(memory.search("heron").results) == 3, "the main server answers instead"
            memory.add("heron of the fourth day")
            assert len(memory.search("heron").results) == 4
        with Memory.open(main.url(read=replica.url()), embedder="hashing:64", settings=Settings()) as memory:
            assert len(memory.search("heron").results) == 4, "nor does it keep a store from being opened"


def await_replica(control: psycopg.Connection[Any], memory: Memory) -> None:
    """Wait until the replica has replayed all that the main server has written."""
    with memory.store._database.read() as connection:
        last = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0]
    for _ in range(500):
        if control.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (last,)).fetchone()[0]:
            return
        time.sleep(0.05)
    pytest.fail("the replica did not follow")

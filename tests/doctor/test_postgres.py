"""`doctor` on a store in PostgreSQL, each part really damaged, and the result of `--fix`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import pytest
from support import postgres as server_kit

from recollect import Memory
from recollect.config import Settings
from recollect.stores.postgres.schema import MIGRATIONS

psycopg = pytest.importorskip("psycopg")

TABLES = ("records", "history", "documents", "blocks", "tallies", "embeddings", "vectors_1", "meta", "migrations")
GRANTS = """
    GRANT USAGE ON SCHEMA {schema} TO {role};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};
"""


def texts(told, check):
    """What a check found, by its message."""
    return {found["message"]: found for found in told.all(check)}


def states(told, check):
    """How bad each finding of a check is."""
    return [found["state"] for found in told.all(check)]


@pytest.fixture
def place(new_schema: Callable[[], str], monkeypatch) -> str:
    """A closed store, named by the settings, with forty records of two scopes and their vectors."""
    place = new_schema()
    with Memory.open(place, embedder="hashing:64", settings=Settings()) as memory:
        memory.add_many([{"text": f"the heron number {n} stands in the reeds"} for n in range(30)])
        memory.add_many([{"text": f"a boat of Ada's, number {n}", "user": "ada"} for n in range(10)])
        memory.add("…", id="wordless")
        memory.forget("wordless")
        memory.embed()
    monkeypatch.setenv("RECOLLECT_STORE", place)
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    return place


@pytest.fixture
def raw(place: str) -> Iterator[Callable[..., list]]:
    """Queries and changes the store with SQL."""
    url, _, schema = place.rpartition("&schema=")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {schema}, public")

        def run(*statements):
            found = [connection.execute(statement) for statement in statements]
            return found[-1].fetchall() if found[-1].description else []

        yield run


@pytest.fixture
def role(place: str, raw) -> Iterator[str]:
    """A role that owns nothing and has the grants of a service."""
    name = f"doctor_{uuid4().hex[:12]}"
    raw(f"CREATE ROLE {name} LOGIN", GRANTS.format(schema=place.rpartition("=")[2], role=name))
    yield name
    raw(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def as_role(place: str, role: str) -> str:
    """The same place for another role."""
    parts = urlsplit(place)
    return urlunsplit(parts._replace(netloc=f"{quote(role)}@{parts.netloc.rpartition('@')[2]}"))


def found_by_words(place, text):
    """How many records a keyword search finds."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        return len(memory.search(text, limit=100, sources=["keyword"]).results)


def test_intact_store_is_checked(doctor, place, raw):
    """Versions, schema and role are named; every index agrees, and nothing is written."""
    marks = (f"SELECT '{name}' || ctid || xmin AS mark FROM {name}" for name in TABLES)
    written = f"SELECT md5(string_agg(mark, ' ' ORDER BY mark)) FROM ({' UNION ALL '.join(marks)}) AS marks"
    before = raw(written)
    told = doctor()
    assert {found["state"] for found in told.checks if found["check"] != "store"} == {"ok"}
    sound, role = told.all("store")
    assert sound["state"] == "ok"
    assert all(
        part in sound["message"] for part in ("40 records", f"schema {len(MIGRATIONS)}", "PostgreSQL 1", "pgvector 0.")
    )
    above = raw("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(True,)]
    assert (role["state"], "superuser" in role["message"]) == ("warning" if above else "note", above)
    assert told["vectors"]["message"] == "all 40 records have a vector of hashing:64"
    assert raw(written) == before


def test_missing_store_is_a_note_and_not_created(doctor, new_schema, monkeypatch, postgres_url):
    """Not even with --fix."""
    place = new_schema()
    monkeypatch.setenv("RECOLLECT_STORE", place)
    told = doctor("--fix")
    assert (told.code, told["store"]["state"]) == (0, "note")
    assert "no store at" in told["store"]["message"]
    with psycopg.connect(postgres_url) as connection:
        schema = place.rpartition("=")[2]
        assert connection.execute("SELECT to_regnamespace(%s)", (schema,)).fetchone() == (None,)


@pytest.mark.parametrize("where", ["127.0.0.1:9/memory", "127.0.0.1:9/memory?schema=notes&password=quieter"])
def test_unreachable_server_is_a_failure_and_other_checks_run(doctor, monkeypatch, where):
    """It is reported once, without the password in message or command."""
    monkeypatch.setenv("RECOLLECT_EMBEDDER", "hashing:64")
    told = doctor("--store", f"postgresql://ada:quiet@{where}")
    assert (told.code, told.worse()) == (3, {"store"})
    assert "cannot be reached" in told["store"]["message"]
    assert "the server runs" in told["store"]["mend"]
    assert told["keywords"]["message"] == "not checked: the store cannot be read"
    assert {"versions", "model", "tokens"} <= {found["check"] for found in told.checks}
    assert "quiet" not in str(told.checks)


def test_schema_of_another_version_is_reported(doctor, place, raw):
    """A newer one needs a newer Recollect, an older one the owner's next command."""
    raw("INSERT INTO migrations VALUES (99, 'of tomorrow', now())")
    told = doctor("--fix")
    assert told.all("store")[0]["mend"] == "pip install -U recollect-search"
    assert told["keywords"]["message"] == f"not checked: the store has schema 99, this version {len(MIGRATIONS)}"
    raw("DELETE FROM migrations WHERE number > 2")
    told = doctor()
    assert states(told, "store") == ["note"]
    assert f"schema 2 of {len(MIGRATIONS)}" in told["store"]["message"]


def test_service_role_passes_with_limited_checks(doctor, place, role, raw):
    """What it cannot see is reported as unchecked; a table without row-level security is a warning."""
    told = doctor("--store", as_role(place, role))
    assert (told.code, states(told, "store")) == (0, ["ok", "ok"])
    assert f"row-level security applies to the role {role}" in texts(told, "store")
    assert told["vectors"]["state"] == "note"
    assert "one scope only" in told["keywords"]["message"]
    raw(f"REVOKE INSERT ON ALL TABLES IN SCHEMA {place.rpartition('=')[2]} FROM {role}")
    raw("ALTER TABLE history DISABLE ROW LEVEL SECURITY")
    told = doctor("--store", as_role(place, role))
    assert f"row-level security applies to the role {role}, which may only read" in texts(told, "store")
    assert "row-level security is switched off for history" in texts(told, "store")
    assert told.code == 1


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("INSERT INTO tallies (scope, kind, records, length) VALUES (1, 0, 1, 8)", "the counts of 1 scopes are wrong"),
        ("DELETE FROM documents WHERE row IN (SELECT row FROM records LIMIT 7)", "7 records are not in it"),
        pytest.param(
            "UPDATE documents SET counts[array_position(terms, 'heron')] = 9 WHERE 'heron' = ANY(terms)",
            "the terms of the record",
            marks=pytest.mark.torture,
        ),
        (
            "UPDATE documents SET scope = 1 - scope + 2",
            "terms of 40 records that were forgotten or belong to another scope",
        ),
    ],
)
def test_wrong_keyword_index_is_rebuilt(doctor, place, raw, statement, what):
    """A failure with the reason; after --fix all words are found."""
    raw(statement)
    found = doctor()["keywords"]
    assert found["state"] == "failure"
    assert what in found["message"]
    assert "--fix" in found["mend"]
    told = doctor("--fix")
    assert (told["keywords"]["state"], told["keywords"]["fixed"]) == ("ok", True)
    assert found_by_words(place, "heron") == 30
    assert raw("SELECT sum(records) FROM tallies") == [(40,)]


@pytest.mark.parametrize("column", ["text", "title"])
def test_altered_text_is_a_failure(doctor, place, raw, column):
    """With its id; --fix does not change it. A purged record and one with NUL pass."""
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        memory.add("a \0 and a \x10 in it", id="odd")
        memory.add("to be purged", id="purged")
        memory.forget("purged", purge=True)
    assert "failure" not in states(doctor("--embedder", "none"), "store")
    ((altered,),) = raw(f"UPDATE records SET {column} = 'FAKED' WHERE text LIKE '%number 17 stands%' RETURNING id")
    told = doctor("--fix")
    (message,) = (message for message, found in texts(told, "store").items() if found["state"] == "failure")
    assert altered in message
    assert raw("SELECT count(*) FROM records WHERE 'FAKED' IN (text, title)") == [(1,)]


def test_words_of_another_analyzer_are_a_note(doctor, place, raw):
    """The next search indexes them again, or --fix."""
    raw("UPDATE meta SET value = 'of yesterday' WHERE key = 'keywords'")
    assert doctor()["keywords"]["state"] == "note"
    assert doctor("--fix")["keywords"]["fixed"] is True
    assert doctor()["keywords"]["state"] == "ok"


@pytest.mark.parametrize("what", ["missing", "invalid"])
def test_missing_or_invalid_approximate_index_is_created(doctor, place, raw, what):
    """With few visible records nothing is lost without it; an unfinished one only costs."""
    where = "WHERE indexrelid = 'vectors_1_near'::regclass"
    broken = {"missing": "DROP INDEX vectors_1_near", "invalid": f"UPDATE pg_index SET indisvalid = false {where}"}
    raw(broken[what])
    found = doctor().all("vectors")[1]
    assert found["state"] == {"missing": "note", "invalid": "warning"}[what]
    assert f"the approximate index of hashing:64 is {what}" in found["message"]
    told = doctor("--fix")
    assert (told["vectors"]["state"], told["vectors"]["fixed"]) == ("ok", True)
    assert raw(f"SELECT indisvalid FROM pg_index {where}") == [(True,)]


def test_index_being_built_is_left_alone(doctor, place, raw):
    """There is nothing to fix."""
    raw("DROP INDEX vectors_1_near")
    raw(f"SELECT pg_advisory_lock({0x52434C56}, current_schema()::regnamespace::oid::integer)")
    found = doctor().all("vectors")[1]
    assert (found["state"], found["mend"]) == ("note", "")
    assert "is being built" in found["message"]


def test_missing_vectors_are_computed(doctor, place, raw):
    """With the configured model; vectors of another stay."""
    raw(
        "UPDATE vectors_1 SET vector = NULL WHERE row < 5",
        "DELETE FROM embeddings WHERE passage IN (SELECT passage FROM records WHERE row < 5)",
    )
    found = doctor()["vectors"]
    assert (found["state"], found["message"]) == ("warning", "4 of 40 records have no vector")
    assert doctor("--fix")["vectors"]["message"] == "all 40 records have a vector of hashing:64"
    other = doctor("--embedder", "hashing:32")["vectors"]
    assert other["message"] == "searches use hashing:64, the settings say hashing:32: 40 records lack its vectors"


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("DELETE FROM vectors_1 WHERE row < 3", marks=pytest.mark.torture),
        "UPDATE vectors_1 SET scope = 1 - scope + 2",
        pytest.param(
            "INSERT INTO vectors_1 SELECT 99, scope, vector FROM vectors_1 LIMIT 1", marks=pytest.mark.torture
        ),
    ],
)
def test_vectors_of_the_wrong_scope_are_corrected(doctor, place, raw, statement):
    """Otherwise the wrong callers would find them."""
    raw(statement)
    found = doctor().all("vectors")[-1]
    assert found["state"] == "failure"
    assert "do not match the records" in found["message"]
    told = doctor("--fix")
    assert (told["vectors"]["state"], told["vectors"]["fixed"]) == ("ok", True)
    assert raw("SELECT count(*) FROM vectors_1 JOIN records USING (row, scope) WHERE vector IS NOT NULL") == [(40,)]


def test_vectors_without_a_record_are_removed(doctor, place, raw):
    """Words could be reconstructed from them."""
    before = raw("SELECT count(*) FROM embeddings")
    raw("INSERT INTO embeddings SELECT space, 'gone'::bytea, vector FROM embeddings LIMIT 1")
    found = doctor().all("vectors")[-1]
    assert (found["state"], found["message"]) == ("note", "1 vectors belong to no record")
    assert states(doctor("--fix"), "vectors") == ["ok"]
    assert raw("SELECT count(*) FROM embeddings") == before


def test_files_of_other_machines_are_not_reported_missing(doctor, place, tmp_path):
    """Changes of local files are reported."""
    near, far = tmp_path / "near", tmp_path / "far"
    with Memory.open(place, embedder="none", settings=Settings()) as memory:
        for folder in (near, far):
            folder.mkdir()
            (folder / "a.md").write_text("# a\nsome text\n")
            memory.index(folder)
    assert doctor()["files"]["message"] == "all 2 are unchanged since they were indexed"
    far.rename(tmp_path / "away")
    (near / "a.md").write_text("# a\nother text\n")
    note, warning = doctor().all("files")
    assert (note["state"], note["message"]) == ("note", f"1 are in folders that are not on this machine: {far}")
    assert warning["mend"] == f"recollect index {near}"


def test_replica_that_is_down_is_reported(doctor, place):
    """Searches use the main server; the store is still checked."""
    told = doctor("--store", f"{place}&read=postgresql://ada:quiet@127.0.0.1:9/memory", "--fix")
    found = told.all("store")[-1]
    assert found["state"] == "warning"
    assert re.match(r"the replica: postgresql://ada@127.0.0.1:9/memory\S* cannot be reached", found["message"])
    assert told["keywords"]["state"] == "ok"
    assert "quiet" not in str(told.checks)
    itself, *_ = place.rpartition("&schema=")
    told = doctor("--store", f"{place}&read={quote(itself, safe='')}")
    assert "is no replica" in told.all("store")[-1]["message"]


@pytest.mark.torture
def test_replica_that_follows_passes(doctor):
    """A stopped one is unreachable."""
    with contextlib.ExitStack() as stack:
        main = server_kit.Server.make(**server_kit.QUICK)
        stack.callback(main.remove)
        replica = main.replica()
        stack.callback(replica.remove)
        with Memory.open(main.url(), embedder="none", settings=Settings()) as memory:
            memory.add("a heron")
        place = f"{main.url()}&read={quote(replica.url(), safe='')}"
        message = doctor("--store", place).all("store")[-1]["message"]
        assert "behind" in message or "is up to date" in message
        replica.stop()
        assert "cannot be reached" in doctor("--store", place).all("store")[-1]["message"]


def test_slow_check_is_abandoned(doctor, place, monkeypatch):
    """And reported as unchecked."""
    monkeypatch.setattr("recollect.stores.postgres.health.LONGEST_S", 0.01)
    monkeypatch.setattr("recollect.stores.postgres.health._WRONG_TALLIES", "SELECT pg_sleep(1)")
    found = doctor()["keywords"]
    assert found["state"] == "note"


def test_postgresql_source_is_reached(doctor, place, settings, tmp_path):
    """It is opened but not searched; a password is not shown."""
    table = '[[sources]]\nname = "{}"\nkind = "recollect"\nstore = "{}"\n'
    away = "postgresql://ada:quiet@127.0.0.1:9/memory"
    settings(table.format("team", place) + table.format("away", away) + table.format("odd", f"lancedb://{tmp_path}/x"))
    told = texts(doctor(), "sources")
    team, gone, odd = told
    assert (told[team]["state"], "can be reached, in" in team) == ("ok", True)
    assert (told[gone]["state"], "cannot be reached" in gone) == ("warning", True)
    assert odd == f"odd: there is no store at lancedb://{tmp_path}/x"
    assert "quiet" not in str(told)

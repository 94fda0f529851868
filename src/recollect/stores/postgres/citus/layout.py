"""The tables of a distributed store: how they are distributed, and what `recollect doctor` says about them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recollect.errors import StoreError
from recollect.stores.health import Finding
from recollect.stores.postgres.citus.database import OWN
from recollect.stores.postgres.citus.vectors import create_vectors
from recollect.stores.postgres.connections import Connection, integer
from recollect.stores.postgres.database import PostgresDatabase
from recollect.stores.postgres.schema import OLDEST_VECTOR, migrate

if TYPE_CHECKING:
    from recollect.stores.postgres.health import Server

OLDEST_CITUS = (12, 1)

MAX_SCOPE = 2_000_000  # records of one scope: about 20 GB with vectors of 384 dimensions (docs/scale.md)

LOCAL = ("ids", "scopes", "spaces", "files", "roots", "ingested", "notes", "joins", "meta", "migrations")

DISTRIBUTED = ("records", "history", "documents", "blocks", "removals", "tallies", "embeddings")

_SCHEMA = f"""
    DO $$
    DECLARE held text;
    BEGIN
        FOREACH held IN ARRAY ARRAY['{"', '".join([*DISTRIBUTED, "files"])}'] LOOP
            EXECUTE format('DROP POLICY seen ON %I', held);
        END LOOP;
    END $$;
    ALTER TABLE scopes ALTER COLUMN scope DROP IDENTITY;
    ALTER TABLE records DROP CONSTRAINT records_pkey, DROP CONSTRAINT records_id_key,
        DROP CONSTRAINT records_scope_fkey, ALTER COLUMN row DROP IDENTITY,
        ADD COLUMN "user" text, ADD COLUMN agent text, ADD COLUMN session text,
        ADD PRIMARY KEY (scope, row), ADD UNIQUE (scope, id);
    CREATE INDEX records_row ON records (row);
    ALTER TABLE history DROP CONSTRAINT history_pkey, ADD PRIMARY KEY (scope, seq);
    DROP INDEX history_scope;
    CREATE INDEX history_seq ON history (seq);
    ALTER TABLE documents DROP CONSTRAINT documents_pkey, ADD PRIMARY KEY (scope, row);
    ALTER TABLE removals DROP CONSTRAINT removals_pkey, ADD PRIMARY KEY (scope, number);
    ALTER TABLE tallies DROP CONSTRAINT tallies_pkey, ADD PRIMARY KEY (scope, number);
    ALTER TABLE embeddings DROP CONSTRAINT embeddings_pkey, ADD COLUMN scope integer NOT NULL,
        ADD PRIMARY KEY (scope, space, passage);
    -- Where each record is. `earlier` are the scopes that a purged record of this id belonged to.
    CREATE TABLE ids (
        id text PRIMARY KEY,
        row bigint GENERATED ALWAYS AS IDENTITY,
        scope integer NOT NULL,
        earlier integer[]
    );
    DROP FUNCTION merge_postings, attach_vectors, settle_vectors, drop_orphan;
    -- A number for a new scope, in the shard of its user.
    CREATE FUNCTION place_scope(of_user text) RETURNS integer LANGUAGE plpgsql AS $$
    DECLARE number integer;
    DECLARE wanted bigint := get_shard_id_for_distribution_column('records', hashtext(coalesce(of_user, '')));
    BEGIN
        LOOP
            number := 1 + floor(random() * 2147483646)::integer;
            EXIT WHEN get_shard_id_for_distribution_column('records', number) = wanted;
        END LOOP;
        RETURN number;
    END $$;
    -- Citus cannot plan statements with the parameters of a function in SQL.
    CREATE OR REPLACE FUNCTION taken_ids(wanted text[]) RETURNS SETOF text
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    BEGIN
        RETURN QUERY SELECT id FROM ids WHERE id = ANY(wanted);
    END $$;
    CREATE OR REPLACE FUNCTION taken_folds(wanted bytea[]) RETURNS SETOF bytea
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    BEGIN
        RETURN QUERY SELECT DISTINCT fold FROM records WHERE fold = ANY(wanted) AND forgotten_at IS NULL;
    END $$;
    CREATE OR REPLACE FUNCTION taken_paths(same text[], ending text) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    DECLARE count bigint;
    BEGIN
        SELECT count(*) INTO count FROM records WHERE path = ANY(same) AND forgotten_at IS NULL;
        IF count = 0 THEN
            SELECT count(*) INTO count FROM records WHERE right(path, length(ending)) = ending AND forgotten_at IS NULL;
        END IF;
        RETURN count;
    END $$;
    CREATE OR REPLACE FUNCTION kept_passages(of_space integer, wanted bytea[]) RETURNS SETOF bytea
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    BEGIN
        RETURN QUERY SELECT DISTINCT passage FROM embeddings WHERE space = of_space AND passage = ANY(wanted);
    END $$;
    CREATE OR REPLACE FUNCTION vector_coverage(of_space integer, OUT total bigint, OUT without bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    BEGIN
        SELECT coalesce(sum(records), 0) INTO total FROM tallies;
        EXECUTE format('SELECT count(*) FROM %I WHERE vector IS NULL', 'vectors_' || of_space) INTO without;
    END $$;
    -- For a role that sees one scope: vectors of texts, wherever these are. It returns nothing.
    CREATE FUNCTION keep_vectors(of_space integer, passages bytea[], vectors vector[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO embeddings (scope, space, passage, vector)
            SELECT DISTINCT records.scope, of_space, given.passage, given.vector
            FROM records JOIN unnest(passages, vectors) AS given (passage, vector) ON records.passage = given.passage
            ON CONFLICT DO NOTHING;
        EXECUTE format('UPDATE %I AS held SET vector = embeddings.vector::halfvec, settled = true'
            ' FROM records JOIN embeddings USING (scope, passage) WHERE held.scope = records.scope'
            ' AND held.row = records.row AND space = $1 AND passage = ANY($2) AND held.vector IS NULL',
            'vectors_' || of_space) USING of_space, passages;
    END $$;
    DO $$
    DECLARE held regprocedure;
    DECLARE writer text;
    DECLARE places text := (SELECT setting FROM pg_settings WHERE name = 'search_path');
    BEGIN
        FOR held IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
            AND proname IN ('place_scope', 'taken_ids', 'taken_folds', 'taken_paths', 'kept_passages',
                'vector_coverage', 'keep_vectors')
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path TO %s, pg_temp', held, places);
        END LOOP;
        REVOKE EXECUTE ON FUNCTION keep_vectors FROM PUBLIC;
        FOR writer IN SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
            FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = 'records'::regclass AND privilege_type = 'INSERT'
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION keep_vectors TO %s', writer);
        END LOOP;
    END $$;
"""

_UNKNOWN_TO_CITUS = """
    SELECT 1 FROM pg_extension JOIN pg_roles ON rolname = current_user WHERE extname = 'vector' AND NOT rolsuper
        AND pg_extension.oid NOT IN (SELECT objid FROM pg_dist_object WHERE classid = 'pg_extension'::regclass)
"""


def shards_by_node(connection: Connection) -> dict[str, int]:
    """The number of shards of the records on each node, as the coordinator knows it."""
    rows = connection.execute(
        "SELECT nodename || ':' || nodeport, count(shardid) FROM pg_dist_node LEFT JOIN (pg_dist_placement"
        " JOIN pg_dist_shard USING (shardid)) ON pg_dist_placement.groupid = pg_dist_node.groupid"
        " AND logicalrelid = 'records'::regclass WHERE shouldhaveshards AND noderole = 'primary' GROUP BY 1 ORDER BY 1"
    )
    return dict(rows.fetchall())


def examine(server: Server) -> Iterator[Finding]:
    """What `recollect doctor` says about a distributed store."""
    with server.database.read() as connection:
        shards = shards_by_node(connection)
    shown = ", ".join(f"{count} on {node}" for node, count in shards.items())
    message = f"distributed in {sum(shards.values())} shards: {shown}"
    if max(shards.values()) - min(shards.values()) <= 1:
        yield Finding("store", "ok", message)
    else:
        yield Finding("store", "warning", message, "on the coordinator: SELECT citus_rebalance_start()")
    down = server.rows("SELECT nodename || ':' || nodeport FROM run_command_on_workers('SELECT 1') WHERE NOT success")
    for (node,) in down:
        mend = "start it: records there cannot be read or written, those on other workers can"
        yield Finding("store", "failure", f"the worker {node} does not answer", mend)
    yield Finding("store", "note", f"on the coordinator, because they are small or needed by all: {', '.join(LOCAL)}")
    if not down:
        yield from _large_tenants(server)


def _large_tenants(server: Server) -> Iterator[Finding]:
    """Scopes that have more records than a shard should have."""
    large = "SELECT scope, sum(records) FROM tallies GROUP BY scope HAVING sum(records) > %s ORDER BY 2 DESC LIMIT 3"
    for scope, count in server.rows(large, MAX_SCOPE):
        message = f"the scope {scope} has {count:,} records, more than a shard should have"
        isolate = f"isolate_tenant_to_new_shard('records', {scope}, 'CASCADE', shard_transfer_mode := 'block_writes')"
        mend = f"give it a shard of its own (meanwhile users of the same shard cannot write): SELECT {isolate}"
        yield Finding("store", "warning", message, mend)


def distribute(url: str) -> dict[str, int]:
    """Distribute the tables of an empty store over the workers of a cluster, if they are not.

    Returns the number of shards on each node.
    """
    with contextlib.closing(PostgresDatabase(url)) as database:
        if not database.distributed:
            with database.read() as connection:
                _check_cluster(connection)
            migrate(database)
            database.write(_distribute)
        with database.read() as connection:
            return shards_by_node(connection)


def _distribute(connection: Connection) -> None:
    if count := integer(connection, "SELECT count(*) FROM records"):
        raise StoreError(
            f"the store has {count:,} records, and only an empty one can be distributed",
            hint="distribute a new one (?schema=NAME in the URL) and copy the records: recollect copy OLD NEW",
        )
    connection.execute("SET LOCAL citus.multi_shard_modify_mode TO sequential")
    connection.execute(_SCHEMA)
    connection.execute("SELECT create_distributed_table('records', 'scope', colocate_with := 'none')")
    for table in DISTRIBUTED[1:]:
        connection.execute(f"SELECT create_distributed_table('{table}', 'scope', colocate_with := 'records')")
    connection.execute("SELECT citus_add_local_table_to_metadata('ids')")
    for table in (*DISTRIBUTED, "ids"):
        connection.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        connection.execute(f"CREATE POLICY seen ON {table} USING ({OWN})")
    for space, dimension in connection.execute("SELECT space, dimension FROM spaces").fetchall():
        connection.execute(f"DROP TABLE vectors_{space}")
        create_vectors(connection, space, dimension)


def _check_cluster(connection: Connection) -> None:
    """Refuse a server that is not the coordinator of a cluster that can hold the tables."""
    row = connection.execute(
        "SELECT default_version, installed_version FROM pg_available_extensions WHERE name = 'citus'"
    ).fetchone()
    if row is None or row[1] is None:
        how = (
            "install its package on every server"
            if row is None
            else "an administrator must run: CREATE EXTENSION citus"
        )
        raise StoreError("the server has no Citus", hint=f"{how} (https://docs.citusdata.com)")
    version = tuple(int(part) for part in re.findall(r"\d+", row[1])[:2])
    if version < OLDEST_CITUS:
        raise StoreError(f"the server's Citus is {row[1]}, which is too old", hint="12.1 or newer is needed")
    group = connection.execute("SELECT groupid FROM pg_dist_local_group").fetchone()
    if group != (0,):
        raise StoreError("this server is a worker of the cluster", hint="name the coordinator in the URL")
    nodes = connection.execute("SELECT groupid, shouldhaveshards FROM pg_dist_node WHERE isactive").fetchall()
    if not any(group == 0 for group, _ in nodes):
        hint = "an administrator must run: SELECT citus_set_coordinator_host('ADDRESS', PORT)"
        raise StoreError("the cluster does not know the address of its coordinator", hint=hint)
    if not any(shards for _, shards in nodes):
        hint = "an administrator must add one: SELECT citus_add_node('ADDRESS', PORT)"
        raise StoreError("the cluster has no node for the records", hint=hint)
    vector = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
    ask = "SELECT nodename, nodeport, success, result FROM run_command_on_workers(%s)"
    for name, port, success, result in connection.execute(ask, (vector,)):
        if not success:
            raise StoreError(f"the worker {name}:{port} does not answer: {result}", hint="start it, and try again")
        if not result or tuple(map(int, result.split("."))) < OLDEST_VECTOR:
            message = f"the worker {name}:{port} has {f'pgvector {result}' if result else 'no pgvector'}"
            raise StoreError(message, hint="install pgvector 0.8.0 or newer on every server of the cluster")
    if connection.execute(_UNKNOWN_TO_CITUS).fetchone():
        message = "the extension vector was created before Citus, and this role may not bring it to the workers"
        hint = "an administrator must run on the coordinator: DROP EXTENSION vector; CREATE EXTENSION vector"
        raise StoreError(message, hint=hint)

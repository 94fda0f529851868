"""The SQL of the numbered migrations, in order."""

_MINE = """
    ("user" IS NULL OR "user" = current_setting('recollect.user', true))
    AND (agent IS NULL OR agent = current_setting('recollect.agent', true))
    AND (session IS NULL OR session = current_setting('recollect.session', true))
"""


def _with_scopes(*tables: str) -> str:
    """A role that does not own these tables sees the rows of its scopes."""
    return "\n".join(
        f"    ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;\n"
        f"    CREATE POLICY seen ON {table} USING (scope IN (SELECT scope FROM mine));"
        for table in tables
    )


_SQL = {
    "records, history, terms, vectors, files": """
    CREATE TABLE scopes (
        scope integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        "user" text, agent text, session text,
        UNIQUE NULLS NOT DISTINCT ("user", agent, session)
    );
    CREATE TABLE records (
        row bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text NOT NULL UNIQUE,
        kind text NOT NULL,
        text text NOT NULL,
        title text NOT NULL,
        category text,
        tags text[] NOT NULL,
        scope integer NOT NULL REFERENCES scopes,
        importance double precision NOT NULL,
        decay text,
        time bigint NOT NULL,                  -- happened_at or created_at; times are microseconds of UTC
        created_at bigint NOT NULL,
        happened_at bigint,
        expires_at bigint,
        edited_at bigint,
        superseded_by text,
        superseded_at bigint,
        forgotten_at bigint,                   -- the id stays taken, and the record is in no answer
        source text,
        path text, first_line bigint, last_line bigint,
        fold bytea NOT NULL,                   -- hash of the normalised text
        passage bytea NOT NULL,                -- hash of the text that is embedded
        length integer NOT NULL                -- terms without stop words
    );
    CREATE INDEX records_listed ON records (scope, time DESC, id) WHERE forgotten_at IS NULL;
    CREATE INDEX records_fold ON records (fold);
    CREATE INDEX records_passage ON records (passage);
    CREATE INDEX records_path ON records (path) WHERE path IS NOT NULL;
    CREATE INDEX records_tags ON records USING gin (tags);
    CREATE INDEX records_passing ON records (scope) WHERE forgotten_at IS NULL
        AND (expires_at IS NOT NULL OR superseded_at IS NOT NULL);

    -- Append-only. A higher sequence number means that something has changed.
    CREATE TABLE history (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        row bigint NOT NULL,
        scope integer NOT NULL,
        id text NOT NULL,
        action text NOT NULL,
        at bigint NOT NULL,
        detail text NOT NULL
    );
    CREATE INDEX history_id ON history (id);
    CREATE INDEX history_row ON history (row);
    CREATE INDEX history_scope ON history (scope, seq);

    -- The inverted index, with our own terms, so that all stores match alike. A scoped search reads one range of each
    -- term, and a search of everything reads the whole term.
    CREATE TABLE postings (
        scope integer NOT NULL,
        term text COLLATE "C" NOT NULL,
        row bigint NOT NULL,
        often real NOT NULL,
        length integer NOT NULL,
        PRIMARY KEY (term, scope, row) INCLUDE (often, length)
    );
    CREATE INDEX postings_row ON postings (row);
    -- The number and total length of a scope's records: one row for each change, merged now and then.
    CREATE TABLE tallies (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope integer NOT NULL,
        records bigint NOT NULL,
        length bigint NOT NULL
    );
    CREATE INDEX tallies_scope ON tallies (scope) INCLUDE (records, length);

    CREATE TABLE spaces (
        space integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        fingerprint text NOT NULL UNIQUE,
        embedder text NOT NULL,
        dimension integer NOT NULL
    );
    -- Vectors by the hash of their text, so that a text that moves is not embedded again.
    CREATE TABLE embeddings (
        space integer NOT NULL,
        passage bytea NOT NULL,
        vector vector NOT NULL,                -- float32, unit length
        PRIMARY KEY (space, passage)
    );
    CREATE INDEX embeddings_passage ON embeddings (passage);

    CREATE TABLE files (
        path text PRIMARY KEY, root text NOT NULL, mtime_ns bigint NOT NULL, size bigint NOT NULL, digest text NOT NULL
    );
    CREATE TABLE roots (root text PRIMARY KEY, told text NOT NULL);  -- options of an indexed folder, as JSON
    CREATE TABLE ingested (digest text PRIMARY KEY, at bigint NOT NULL);
    CREATE TABLE notes (key text PRIMARY KEY, value text NOT NULL, at bigint NOT NULL);
    CREATE TABLE joins (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        source text NOT NULL, id text NOT NULL, path text NOT NULL,
        UNIQUE (source, id)
    );
    CREATE TABLE meta (key text PRIMARY KEY, value text NOT NULL);
""",
    "row-level security": f"""
    -- A role that does not own the tables sees only the rows of the scope that its transaction names.
    CREATE VIEW mine WITH (security_invoker) AS SELECT scope FROM scopes WHERE {_MINE};
    ALTER TABLE scopes ENABLE ROW LEVEL SECURITY;
    CREATE POLICY seen ON scopes USING ({_MINE});
{_with_scopes("records", "history", "postings", "tallies")}
    -- A text can be recovered from its vector: a vector is visible only with its record.
    ALTER TABLE embeddings ENABLE ROW LEVEL SECURITY;
    CREATE POLICY seen ON embeddings USING (EXISTS (SELECT 1 FROM records WHERE records.passage = embeddings.passage))
        WITH CHECK (true);
""",
    "empty places for vectors, long paths, notes and files behind the wall": """
    -- Paths can be longer than a B-tree entry. They are looked up whole or by their end.
    DROP INDEX records_path;
    CREATE INDEX records_path ON records USING hash (path) WHERE path IS NOT NULL;
    ALTER TABLE files DROP CONSTRAINT files_pkey;
    ALTER TABLE files ADD CONSTRAINT files_path EXCLUDE USING hash (path WITH =);

    -- Every live record has a row in every vector table, with NULL until it has a vector: missing ones are found fast.
    DO $$
    DECLARE held record;
    BEGIN
        FOR held IN SELECT 'vectors_' || space AS name FROM spaces LOOP
            EXECUTE format('ALTER TABLE %I ALTER COLUMN vector DROP NOT NULL', held.name);
            EXECUTE format('INSERT INTO %I (row, scope) SELECT row, scope FROM records WHERE forgotten_at IS NULL'
                ' ON CONFLICT DO NOTHING', held.name);
            EXECUTE format('CREATE INDEX %I ON %I (row) WHERE vector IS NULL', held.name || '_missing', held.name);
        END LOOP;
    END $$;
    -- These two see all rows, whoever calls them, and return nothing.
    CREATE FUNCTION attach_vectors(of_space integer, passages bytea[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        EXECUTE format('UPDATE %I AS held SET vector = embeddings.vector::halfvec FROM records JOIN embeddings'
            ' USING (passage) WHERE space = $1 AND passage = ANY($2) AND held.row = records.row'
            ' AND held.vector IS NULL',
            'vectors_' || of_space) USING of_space, passages;
    END $$;
    CREATE FUNCTION drop_orphan(of_passage bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        -- Who adds a record with this passage holds the vector's row; only then can be told whether anybody has it.
        PERFORM 1 FROM embeddings WHERE passage = of_passage FOR UPDATE;
        DELETE FROM embeddings WHERE passage = of_passage
            AND NOT EXISTS (SELECT 1 FROM records WHERE passage = of_passage);
    END $$;

    ALTER TABLE files ENABLE ROW LEVEL SECURITY;
    CREATE POLICY seen ON files USING (EXISTS (SELECT 1 FROM records WHERE records.path = files.path));
    ALTER TABLE roots ENABLE ROW LEVEL SECURITY;  -- and no policy: they show whose folders are indexed
    ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
    CREATE POLICY seen ON notes USING (key = current_setting('recollect.note', true));
""",
    "functions that see all rows, for what a service may know of them": """
    -- These see all rows, whoever calls them, and return only whether something exists.
    CREATE FUNCTION taken_ids(wanted text[]) RETURNS SETOF text LANGUAGE sql STABLE SECURITY DEFINER AS $$
        SELECT DISTINCT id FROM history WHERE id = ANY(wanted)
    $$;
    CREATE FUNCTION taken_folds(wanted bytea[]) RETURNS SETOF bytea LANGUAGE sql STABLE SECURITY DEFINER AS $$
        SELECT DISTINCT fold FROM records WHERE fold = ANY(wanted) AND forgotten_at IS NULL
    $$;
    -- How many records a path means: those of the same path or, if there are none, those whose paths end with it.
    CREATE FUNCTION taken_paths(same text[], ending text) RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER AS $$
        SELECT coalesce(
            (SELECT nullif(count(*), 0) FROM records WHERE path = ANY(same) AND forgotten_at IS NULL),
            (SELECT count(*) FROM records WHERE right(path, length(ending)) = ending AND forgotten_at IS NULL)
        )
    $$;
    CREATE FUNCTION kept_passages(of_space integer, wanted bytea[]) RETURNS SETOF bytea
    LANGUAGE sql STABLE SECURITY DEFINER AS $$
        SELECT passage FROM embeddings WHERE space = of_space AND passage = ANY(wanted)
    $$;
    CREATE FUNCTION vector_coverage(of_space integer, OUT total bigint, OUT without bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
    BEGIN
        EXECUTE format('SELECT coalesce(sum(records), 0), (SELECT count(*) FROM %I WHERE vector IS NULL) FROM tallies',
            'vectors_' || of_space) INTO total, without;
    END $$;
    CREATE FUNCTION prune_notes(kept integer) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
        DELETE FROM notes WHERE key IN (SELECT key FROM notes ORDER BY at DESC OFFSET kept)
    $$;

    -- A function that sees all rows must not use a search_path in which its caller could create tables.
    DO $$
    DECLARE held regprocedure;
    DECLARE places text := concat_ws(', ', quote_ident(current_schema()), 'public', (SELECT quote_ident(nspname)
        FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
        WHERE extname = 'vector' AND nspname <> 'public'), 'pg_temp');
    BEGIN
        FOR held IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path TO %s', held, places);
        END LOOP;
    END $$;
""",
    "what outside ids stand for, by scope": """
    -- An id stands for a path in the scope whose query learnt it. Older rows have no scope and may be private, so they
    -- are deleted: they are a cache, which searches fill again.
    DELETE FROM joins;
    ALTER TABLE joins DROP CONSTRAINT joins_source_id_key;
    ALTER TABLE joins ADD COLUMN scope text NOT NULL;
    ALTER TABLE joins ADD UNIQUE (source, id, scope);
    ALTER TABLE joins ENABLE ROW LEVEL SECURITY;
    CREATE POLICY seen ON joins USING (scope = current_setting('recollect.scope', true));
    CREATE FUNCTION prune_joins(kept integer) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
        DELETE FROM joins WHERE number <= (SELECT max(number) FROM joins) - kept
    $$;
    DO $$
    BEGIN
        EXECUTE format('ALTER FUNCTION prune_joins SET search_path TO %I, pg_temp', current_schema());
    END $$;
""",
    "functions that change rows of others, for writers alone": """
    -- Functions that change rows of other scopes are for the roles that may write records.
    DO $$
    DECLARE held regprocedure;
    DECLARE writer text;
    BEGIN
        FOR held IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef
            AND proname IN ('attach_vectors', 'drop_orphan', 'prune_notes', 'prune_joins')
        LOOP
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', held);
            FOR writer IN SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
                FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = 'records'::regclass AND privilege_type = 'INSERT'
            LOOP
                EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', held, writer);
            END LOOP;
        END LOOP;
    END $$;
""",
    "postings in blocks, and the terms of each record": """
    -- The terms of each live record. A search reads those that are not merged yet here, all others in the blocks.
    CREATE TABLE documents (
        row bigint PRIMARY KEY,
        scope integer NOT NULL,
        length integer NOT NULL,
        terms text[] COLLATE "C" NOT NULL,
        counts real[] NOT NULL,
        merged boolean NOT NULL DEFAULT false
    );
    CREATE INDEX documents_unmerged ON documents (scope) WHERE NOT merged;
    -- The postings of a term in a scope, 16 bytes each: row (bigint), count (real), length (integer), as PostgreSQL
    -- sends them. Part 0 grows; a full one gets another number. `low` and `high` are its least and its greatest row.
    CREATE TABLE blocks (
        term text COLLATE "C" NOT NULL,
        scope integer NOT NULL,
        part bigint NOT NULL,
        low bigint NOT NULL,
        high bigint NOT NULL,
        postings bytea NOT NULL,
        PRIMARY KEY (term, scope, part)
    ) WITH (fillfactor = 80);
    ALTER TABLE blocks ALTER COLUMN postings SET STORAGE EXTERNAL;
    CREATE SEQUENCE block_parts;
    -- Records that are in blocks and no longer count there. One that was edited is also an unmerged document.
    CREATE TABLE removals (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        row bigint NOT NULL,
        scope integer NOT NULL,
        terms text[] COLLATE "C" NOT NULL
    );
    CREATE INDEX removals_scope ON removals (scope) INCLUDE (row);
    CREATE INDEX removals_row ON removals (row);

"""
    + _with_scopes("documents", "blocks", "removals")
    + """

    -- Moves up to `most` removals and unmerged documents, of all scopes, into the blocks; returns how many it moved.
    -- One transaction at a time does so; with `patient` it waits for another. Readers see the documents or the blocks,
    -- as their snapshot is.
    CREATE FUNCTION merge_postings(most integer, patient boolean) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE numbers bigint[];
    DECLARE full_terms text[];
    DECLARE full_scopes integer[];
    DECLARE moved bigint;
    BEGIN
        IF patient THEN
            PERFORM pg_advisory_xact_lock(1380142160, current_schema()::regnamespace::oid::integer);
        ELSIF NOT pg_try_advisory_xact_lock(1380142160, current_schema()::regnamespace::oid::integer) THEN
            RETURN 0;
        END IF;
        numbers := ARRAY(SELECT number FROM removals ORDER BY number LIMIT most);
        IF cardinality(numbers) > 0 THEN
            WITH dead AS (
                SELECT term, scope, array_agg(int8send(row)) AS rows, min(row) AS low, max(row) AS high
                FROM removals, unnest(terms) AS term WHERE number = ANY(numbers) GROUP BY term, scope
            )
            UPDATE blocks SET postings = (
                SELECT coalesce(string_agg(posting, ''::bytea ORDER BY place), ''::bytea)
                FROM (SELECT blocks.postings || ''::bytea AS held OFFSET 0) AS block,
                    generate_series(1, octet_length(held), 16) AS place,
                    LATERAL substring(held FROM place FOR 16) AS posting
                WHERE NOT EXISTS (SELECT 1 FROM unnest(dead.rows) AS row WHERE row = substring(posting FROM 1 FOR 8))
            )
            FROM dead WHERE blocks.term = dead.term AND blocks.scope = dead.scope
                AND blocks.low <= dead.high AND blocks.high >= dead.low;
            DELETE FROM blocks USING removals, unnest(terms) AS dead
                WHERE number = ANY(numbers) AND blocks.term = dead AND blocks.scope = removals.scope
                AND octet_length(postings) = 0;
            DELETE FROM removals WHERE number = ANY(numbers);
        END IF;
        WITH moving AS (
            UPDATE documents SET merged = true WHERE row IN (
                SELECT row FROM documents WHERE NOT merged
                    AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.row = documents.row)
                LIMIT most FOR UPDATE SKIP LOCKED)
            RETURNING row, scope, length, terms, counts
        ), written AS (
            INSERT INTO blocks (term, scope, part, low, high, postings)
            SELECT term, scope, 0, min(row), max(row),
                string_agg(int8send(row) || float4send(count) || int4send(length), ''::bytea ORDER BY row)
            FROM moving, unnest(terms, counts) AS held (term, count) GROUP BY term, scope ORDER BY term, scope
            ON CONFLICT (term, scope, part) DO UPDATE SET postings = blocks.postings || excluded.postings,
                low = least(blocks.low, excluded.low), high = greatest(blocks.high, excluded.high)
            RETURNING term, scope, octet_length(postings) AS size
        )
        SELECT (SELECT count(*) FROM moving), array_agg(term), array_agg(scope) INTO moved, full_terms, full_scopes
        FROM written WHERE size >= 1600;
        UPDATE blocks SET part = nextval('block_parts') FROM unnest(full_terms, full_scopes) AS filled (term, scope)
            WHERE blocks.term = filled.term AND blocks.scope = filled.scope AND part = 0;
        RETURN moved + cardinality(numbers);
    END $$;

    -- Those who may use the new tables are those who may use the old one. The next search analyses the records again.
    DO $$
    DECLARE held record;
    BEGIN
        EXECUTE format('ALTER FUNCTION merge_postings SET search_path TO %I, pg_temp', current_schema());
        REVOKE EXECUTE ON FUNCTION merge_postings FROM PUBLIC;
        FOR held IN SELECT privilege_type AS allowed,
                CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS role
            FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = 'postings'::regclass
        LOOP
            EXECUTE format('GRANT %s ON documents, blocks, removals TO %s', held.allowed, held.role);
            IF held.allowed = 'INSERT' THEN
                EXECUTE format('GRANT EXECUTE ON FUNCTION merge_postings TO %s', held.role);
            END IF;
        END LOOP;
    END $$;
    DROP TABLE postings;
    DELETE FROM meta WHERE key = 'keywords' AND EXISTS (SELECT 1 FROM records WHERE forgotten_at IS NULL);

    -- A search in one category reads its rows here.
    CREATE INDEX records_category ON records (category) INCLUDE (row, scope, length, superseded_at, expires_at)
        WHERE forgotten_at IS NULL AND category IS NOT NULL;
""",
    "new vectors outside the approximate index": """
    -- Adding a vector to HNSW costs more than all the rest of a record. New ones are compared one by one until they are
    -- many. An index that was built before has all of them, which is right, too.
    DO $$
    DECLARE held text;
    BEGIN
        FOR held IN SELECT 'vectors_' || space FROM spaces LOOP
            EXECUTE format('ALTER TABLE %I ADD COLUMN settled boolean NOT NULL DEFAULT true', held);
            EXECUTE format('ALTER TABLE %I ALTER COLUMN settled SET DEFAULT false', held);
            EXECUTE format('CREATE INDEX %1$s_new ON %1$s (scope) WHERE NOT settled AND vector IS NOT NULL', held);
        END LOOP;
    END $$;
    -- Without an index, as while a store is loaded, all are settled: the index will be built with them.
    CREATE OR REPLACE FUNCTION attach_vectors(of_space integer, passages bytea[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        EXECUTE format('UPDATE %1$I AS held SET vector = embeddings.vector::halfvec,'
            ' settled = to_regclass(%2$L) IS NULL FROM records JOIN embeddings'
            ' USING (passage) WHERE space = $1 AND passage = ANY($2) AND held.row = records.row'
            ' AND held.vector IS NULL',
            'vectors_' || of_space, format('vectors_%s_near', of_space)) USING of_space, passages;
    END $$;
    -- Adds up to `most` vectors to the index, of all scopes, if more than `spared` are not in it.
    CREATE FUNCTION settle_vectors(of_space integer, most bigint, spared bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE count bigint;
    BEGIN
        EXECUTE format('SELECT count(*) FROM %I WHERE NOT settled AND vector IS NOT NULL', 'vectors_' || of_space)
            INTO count;
        IF count > spared THEN
            EXECUTE format('UPDATE %1$I SET settled = true WHERE row IN (SELECT row FROM %1$I'
                ' WHERE NOT settled AND vector IS NOT NULL LIMIT $1 FOR UPDATE SKIP LOCKED)', 'vectors_' || of_space)
                USING least(most, count - spared);
        END IF;
    END $$;
    DO $$
    DECLARE writer text;
    DECLARE places text := concat_ws(', ', quote_ident(current_schema()), 'public', (SELECT quote_ident(nspname)
        FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
        WHERE extname = 'vector' AND nspname <> 'public'), 'pg_temp');
    BEGIN
        EXECUTE format('ALTER FUNCTION attach_vectors SET search_path TO %s', places);
        EXECUTE format('ALTER FUNCTION settle_vectors SET search_path TO %s', places);
        REVOKE EXECUTE ON FUNCTION settle_vectors FROM PUBLIC;
        FOR writer IN SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
            FROM pg_class, aclexplode(relacl) WHERE pg_class.oid = 'records'::regclass AND privilege_type = 'INSERT'
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION settle_vectors TO %s', writer);
        END LOOP;
    END $$;
""",
    "who wrote a record": """
    -- NULL is the usual origin of a kind: `file` of chunks, `user` of all others. So older rows need no change.
    ALTER TABLE records ADD COLUMN origin text, ADD COLUMN author text, ADD COLUMN author_session text;
    CREATE INDEX records_origin ON records (origin) INCLUDE (row, scope)
        WHERE forgotten_at IS NULL AND origin IS NOT NULL;
""",
    "where in its file a chunk is": """
    ALTER TABLE records ADD COLUMN place text;  -- `page 12`, of documents whose lines nobody sees
""",
    "short ids": """
    -- A record is also found by the beginning of its id, or by the end: the beginning is the time, alike for many.
    CREATE INDEX records_beginning ON records (id COLLATE "C");
    CREATE INDEX records_short ON records (right(id, 8) COLLATE "C");
""",
    "lengths by kind": """
    -- A stored length has the number of the record's kind in the bits from the 30th on. The next search makes the
    -- postings again.
    UPDATE records SET length = length + CASE kind WHEN 'chunk' THEN 1 << 29 ELSE 2 << 29 END WHERE kind <> 'fact';
    ALTER TABLE tallies ADD COLUMN kind integer NOT NULL DEFAULT 0;
    ALTER TABLE tallies ALTER COLUMN kind DROP DEFAULT;
    DELETE FROM tallies;
    INSERT INTO tallies (scope, kind, records, length)
        SELECT scope, length >> 29, count(*), sum(length & ((1 << 29) - 1)) FROM records
        WHERE forgotten_at IS NULL GROUP BY 1, 2;
    DROP INDEX tallies_scope;
    CREATE INDEX tallies_scope ON tallies (scope) INCLUDE (kind, records, length);
    DELETE FROM meta WHERE key = 'keywords' AND EXISTS (SELECT 1 FROM records WHERE forgotten_at IS NULL);
""",
}
MIGRATIONS: tuple[tuple[str, str], ...] = tuple(_SQL.items())
"""(name, SQL), in order; number 1 is the first. Never change the effect of one that has been released."""

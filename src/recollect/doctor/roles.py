"""A store in PostgreSQL as a whole: the server's versions, the role that we are, and the replica."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config import shown_place
from recollect.doctor import texts
from recollect.doctor.findings import Finding
from recollect.doctor.looking import LONGEST_S
from recollect.doctor.server import Server, looking, replica_of
from recollect.doctor.setup import Setup
from recollect.errors import RecollectError, StoreError
from recollect.stores.postgres.schema import MIGRATIONS, version

SERVICE = "let a service use a role that owns nothing: see Roles in docs/postgresql.md"

FAR_BYTES, FAR_S = 64_000_000, 30.0
"""How far a replica may be behind before searches there are of another day."""

WALLED = (
    "scopes", "records", "history", "postings", "tallies", "embeddings", "files", "roots", "notes", "joins",
)  # fmt: skip
"""Tables that row-level security guards, beside those of vectors."""

_ROLE = """
    SELECT rolname, rolsuper, rolbypassrls, row_security_active(pg_class.oid),
        pg_has_role(rolname, relowner, 'USAGE'), has_table_privilege(pg_class.oid, 'INSERT')
    FROM pg_class, pg_roles WHERE pg_class.oid = 'records'::regclass AND rolname = current_user
"""

_UNWALLED = """
    SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND NOT relrowsecurity
        AND (relname = ANY(%s) OR relname ~ '^vectors_[0-9]+$')
"""

_REPLAYED = """
    SELECT pg_is_in_recovery(), to_regclass('migrations') IS NOT NULL,
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()::text ELSE pg_current_wal_lsn()::text END,
        coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)::float
"""


def unready(server: Server) -> str:
    """Why what is in the store cannot be looked at; nothing, where it can."""
    try:
        done, known = version(server.database), len(MIGRATIONS)
    except StoreError:
        return "the store cannot be read"
    if done != known:
        return f"the store has schema {done}, this version {known}" if done else "there is no store yet"
    walled = server.row("SELECT row_security_active('records')")[0]
    return "this role sees the rows of one scope only; ask as the owner of the tables" if walled else ""


def store(server: Server, setup: Setup) -> Iterator[Finding]:
    """Whether the store is of this version, who we are there, and whether the replica follows."""
    done, known = version(server.database), len(MIGRATIONS)
    engine = _engine(server)
    if not done:
        make = f"the first command makes it, as a role that may: recollect status{setup.flags}"
        yield Finding("store", "note", f"there is no store at {server.shown} yet ({engine})", make)
    elif done > known:
        newer = f"{server.shown} has schema {done}, this version knows {known}"
        yield Finding("store", "failure", newer, "pip install -U recollect")
    elif done < known:
        older = f"{server.shown} has schema {done} of {known}: its owner's next command brings it up to date"
        yield Finding("store", "note", older, f"recollect status{setup.flags}")
    else:
        count = server.number("SELECT coalesce(sum(records), 0) FROM tallies")
        yield Finding("store", "ok", f"{server.shown}: {count:,} records, schema {done}, {engine}")
        yield from _texts(server)
        yield _role(server)
        yield from _walls(server)
    yield from _replica(server, setup.place)


def _texts(server: Server) -> Iterator[Finding]:
    """Records whose texts are not what was stored. A role behind row-level security sees too few of them to look."""
    if server.row("SELECT row_security_active('records')")[0]:
        return
    altered = texts.at_server(server)
    if altered.records:
        yield Finding("store", "failure", altered.message, altered.mend)
    elif not altered.finished:
        yield Finding("store", "note", f"the texts seen in {LONGEST_S:g} s are what was stored; there are more")


def _engine(server: Server) -> str:
    version = server.number("SELECT current_setting('server_version_num')")
    (vector,) = server.row("SELECT max(extversion) FROM pg_extension WHERE extname = 'vector'")
    return f"PostgreSQL {version // 10_000}.{version % 10_000}, pgvector {vector or 'not created yet'}"


def _role(server: Server) -> Finding:
    name, above, past, walled, owns, writes = server.row(_ROLE)
    if above or past:
        what = "is a superuser" if above else "has BYPASSRLS"
        return Finding("store", "warning", f"the role {name} {what}: row-level security does not hold for it", SERVICE)
    if walled:
        only = "" if writes else ", and may only read"
        return Finding("store", "ok", f"the role {name} is behind row-level security{only}")
    if owns:
        owner = f"the role {name} owns the tables: row-level security does not hold for it"
        return Finding("store", "note", owner, SERVICE)
    return Finding("store", "warning", f"row-level security does not hold for the role {name}", SERVICE)


def _walls(server: Server) -> Iterator[Finding]:
    """Tables whose rows the database does not guard, though it should."""
    (found,) = server.row(_UNWALLED, list(WALLED))
    if found:
        mend = "as their owner: ALTER TABLE … ENABLE ROW LEVEL SECURITY"
        yield Finding("store", "warning", f"row-level security is switched off for {found}", mend)


def _replica(server: Server, place: str) -> Iterator[Finding]:
    url = replica_of(place)
    if url is None:
        return
    try:
        with looking(url) as replica:
            yield _followed(server, replica)
    except RecollectError as error:
        yield Finding("store", "warning", f"the replica: {error.message}", error.hint)


def _followed(server: Server, replica: Server) -> Finding:
    """How far the replica is behind: what it has replayed beside what the main server had written by then."""
    (written,) = server.row("SELECT pg_current_wal_lsn()::text WHERE NOT pg_is_in_recovery()") or (None,)
    follows, there, replayed, seconds = replica.row(_REPLAYED)
    name = f"the replica {shown_place(replica.shown)}"
    if not there:
        return Finding("store", "warning", f"{name} has no store of this name", "check ?read=… in the URL")
    if not follows or written is None:
        return Finding("store", "note", f"{name} is no replica: it does not follow another server")
    behind = max(0, server.number("SELECT pg_wal_lsn_diff(%s::pg_lsn, %s::pg_lsn)", written, replayed))
    late = seconds if behind else 0.0
    said = f"{name} is {behind / 1e6:,.1f} MB and {late:,.0f} s behind" if behind else f"{name} has read everything"
    if behind > FAR_BYTES or late > FAR_S:
        return Finding("store", "warning", said, "look at pg_stat_replication on the main server")
    return Finding("store", "ok", said)

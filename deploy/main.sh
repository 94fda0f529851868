#!/bin/sh
# The roles, the database, and a way in for the replica. Runs once, when the main server's folder is made.
set -eu
cd "${SECRETS:-/run/secrets}"
psql --username postgres --set ON_ERROR_STOP=1 <<'SQL'
\set owner `cat owner`
\set service `cat service`
\set replica `cat replica`
CREATE ROLE replica LOGIN REPLICATION PASSWORD :'replica';

CREATE ROLE recollect_owner LOGIN PASSWORD :'owner';
CREATE ROLE recollect LOGIN PASSWORD :'service';
SELECT count(*) > 0 AS made FROM pg_database WHERE datname = 'recollect' \gset
\if :made
ALTER DATABASE recollect OWNER TO recollect_owner;
\else
CREATE DATABASE recollect OWNER recollect_owner;
\endif
\connect recollect
CREATE EXTENSION vector;
CREATE SCHEMA recollect AUTHORIZATION recollect_owner;
GRANT USAGE ON SCHEMA recollect TO recollect;
ALTER DEFAULT PRIVILEGES FOR ROLE recollect_owner IN SCHEMA recollect
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO recollect;
ALTER DEFAULT PRIVILEGES FOR ROLE recollect_owner IN SCHEMA recollect
    GRANT EXECUTE ON FUNCTIONS TO recollect;
SQL
echo "host replication replica all scram-sha-256" >> "$PGDATA/pg_hba.conf"

#!/bin/sh
# The database with Citus, and the administrator's password for the other servers. Runs once on every server of the cluster,
# when its folder is made. main.sh follows on the coordinator alone: Citus brings its roles to the workers.
set -eu
cd "${SECRETS:-/run/secrets}"
psql --username postgres --dbname postgres --set ON_ERROR_STOP=1 <<'SQL'
\set admin `cat admin`
CREATE DATABASE recollect;
\connect recollect
CREATE EXTENSION citus;
INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo) -- 0: every other server
    SELECT 0, 'postgres', format('password=''%s''', regexp_replace(:'admin', '([\\''])', '\\\1', 'g'));
SQL

#!/bin/sh
# Lets the replica in. Runs once, when the main server's folder is made.
set -eu
echo "host replication recollect_owner all scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username recollect_owner --dbname recollect --command "CREATE EXTENSION IF NOT EXISTS vector"

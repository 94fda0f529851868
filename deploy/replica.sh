#!/bin/sh
# A copy of the main server that follows it, and answers reads.
set -eu
echo "main:5432:*:recollect_owner:$(cat /run/secrets/owner)" > /tmp/pgpass
chmod 600 /tmp/pgpass
folder=/var/lib/postgresql/18/docker
if [ ! -s "$folder/PG_VERSION" ]; then
    mkdir -p "$folder"
    chmod 700 "$folder"
    pg_basebackup --host main --username recollect_owner --pgdata "$folder" --write-recovery-conf --wal-method stream
fi
exec postgres -D "$folder" -c hot_standby=on

#!/bin/sh
# A copy of the main server that follows it and answers reads. Started again, it goes on where it was.
set -eu
umask 077
echo "*:*:*:replica:$(cat "${SECRETS:-/run/secrets}/replica")" > "${PGPASSFILE:=/tmp/pgpass}"
export PGPASSFILE
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    rm -rf "$PGDATA.new" # of a copy that was interrupted
    mkdir -p "$(dirname "$PGDATA")"
    pg_basebackup --host "${MAIN:-main}" --username replica --pgdata "$PGDATA.new" --write-recovery-conf --checkpoint fast
    rm -rf "$PGDATA"
    mv "$PGDATA.new" "$PGDATA"
fi
exec postgres -D "$PGDATA" -c hot_standby_feedback=on "$@" # so that no search is ended by the main server's tidying

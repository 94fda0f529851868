#!/bin/sh
# As the owner of the tables: makes them, and the model's, or brings them to this version. On a Citus cluster, with
# DISTRIBUTE=yes, a new store is distributed first.
set -eu
PGPASSWORD="$(cat "$PASSWORD_FILE")"
export PGPASSWORD
if [ -n "${DISTRIBUTE:-}" ]; then recollect postgres distribute; fi
recollect embed
exec python - <<'PYTHON'
import os, psycopg

with psycopg.connect(os.environ["RECOLLECT_STORE"]) as connection:
    connection.execute(
        "REVOKE INSERT, UPDATE, DELETE ON recollect.migrations, recollect.meta, recollect.spaces FROM recollect"
    )
PYTHON

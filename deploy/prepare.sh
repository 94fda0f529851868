#!/bin/sh
# As the owner of the tables: makes them, and the model's, or brings them to this version.
set -eu
PGPASSWORD="$(cat "$PASSWORD_FILE")"
export PGPASSWORD
recollect embed
exec python - <<'PYTHON'
import os, psycopg

with psycopg.connect(os.environ["RECOLLECT_STORE"]) as connection:
    connection.execute(
        "REVOKE INSERT, UPDATE, DELETE ON recollect.migrations, recollect.meta, recollect.spaces FROM recollect"
    )
PYTHON

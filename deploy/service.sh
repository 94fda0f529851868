#!/bin/sh
# `recollect` with the password that a file holds.
set -eu
PGPASSWORD="$(cat "$PASSWORD_FILE")"
export PGPASSWORD
exec recollect "$@"

#!/bin/sh
# Makes the servers one cluster, as their administrator: join.sh COORDINATOR:PORT WORKER:PORT … Then the coordinator gets the
# passwords with which it opens connections to the workers. Run again, it adds the workers that are new.
set -eu
cd "${SECRETS:-/run/secrets}"
PGPASSWORD="$(cat admin)"
export PGPASSWORD PGHOST="${1%:*}" PGPORT="${1#*:}" PGUSER=postgres PGDATABASE=recollect
psql --set ON_ERROR_STOP=1 --command "SELECT citus_set_coordinator_host('$PGHOST', $PGPORT)"
shift
for worker; do
    psql --set ON_ERROR_STOP=1 --command "SELECT citus_add_node('${worker%:*}', ${worker#*:})"
done
psql --set ON_ERROR_STOP=1 <<'SQL'
\set owner `cat owner`
\set service `cat service`
BEGIN;
DELETE FROM pg_dist_authinfo WHERE rolename IN ('recollect_owner', 'recollect');
INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)
    SELECT 0, role, format('password=''%s''', regexp_replace(secret, '([\\''])', '\\\1', 'g'))
    FROM (VALUES ('recollect_owner', :'owner'), ('recollect', :'service')) AS given (role, secret);
COMMIT;
SQL

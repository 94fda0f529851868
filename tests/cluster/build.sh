#!/bin/sh
# Builds Citus and pgvector against an installed PostgreSQL, into a private copy of that server: build.sh FOLDER.
# It prints the folder of the server's programs. A second run finds what the first has built.
# CITUS_SOURCE and PGVECTOR_SOURCE name git repositories other than those on GitHub, PG_CONFIG another server's pg_config.
# On Debian: apt-get install postgresql-15 postgresql-server-dev-15 build-essential git flex libzstd-dev liblz4-dev \
#   libssl-dev libkrb5-dev libicu-dev libxml2-dev libxslt1-dev libreadline-dev libpam0g-dev libselinux1-dev
set -eu
citus=v12.1.6 pgvector=v0.8.0

folder=$(mkdir -p "$1" && cd "$1" && pwd)
config=${PG_CONFIG:-$(ls /usr/lib/postgresql/15/bin/pg_config 2>/dev/null || command -v pg_config)}
root=$folder/$citus-$pgvector
bin=$root$("$config" --bindir)
if [ -e "$root/.built" ]; then echo "$bin"; exit; fi

rm -rf "$root" "$folder/citus" "$folder/pgvector"
# The server finds its files beside its programs, so a copy of both is a server of its own.
for part in "$(dirname "$("$config" --bindir)")" "$("$config" --sharedir)"; do
    mkdir -p "$root$(dirname "$part")"
    cp -a "$part" "$root$(dirname "$part")/"
done
quiet() { "$@" >>"$folder/log" 2>&1 || { tail -20 "$folder/log" >&2; exit 1; }; }
: >"$folder/log"
quiet git clone --depth 1 --branch $citus "${CITUS_SOURCE:-https://github.com/citusdata/citus}" "$folder/citus"
quiet git clone --depth 1 --branch $pgvector "${PGVECTOR_SOURCE:-https://github.com/pgvector/pgvector}" "$folder/pgvector"
cd "$folder/citus"
quiet ./configure PG_CONFIG="$config" --without-libcurl
quiet make -j2 extension
quiet make install-all DESTDIR="$root"
cd "$folder/pgvector"
quiet make -j2 PG_CONFIG="$config" OPTFLAGS=
quiet make install PG_CONFIG="$config" DESTDIR="$root"
rm -rf "$folder/citus" "$folder/pgvector"
touch "$root/.built"
echo "$bin"

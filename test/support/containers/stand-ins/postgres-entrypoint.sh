#!/bin/sh
# The part of the official image's entry point that deploy/ and the tests need: it creates a database once, from
# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, and then runs PostgreSQL in place of this process.
set -eu
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  passwords=$(mktemp)
  printf '%s\n' "$POSTGRES_PASSWORD" > "$passwords"
  initdb -D "$PGDATA" -U "$user" --pwfile="$passwords" --auth-host=scram-sha-256 --auth-local=trust > /dev/null
  rm "$passwords"
  printf 'host all all all scram-sha-256\n' >> "$PGDATA/pg_hba.conf"
  if [ "$database" != postgres ]; then
    printf 'CREATE DATABASE "%s";\n' "$database" | postgres --single -D "$PGDATA" postgres > /dev/null
  fi
fi
exec "$@" -D "$PGDATA" -c 'listen_addresses=*' -c unix_socket_directories=/var/run/postgresql

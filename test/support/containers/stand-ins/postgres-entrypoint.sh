#!/bin/sh
# What deploy/ and the tests need of the official image's entry point: a database is made once, from POSTGRES_USER,
# POSTGRES_PASSWORD and POSTGRES_DB; then PostgreSQL takes this process's place.
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

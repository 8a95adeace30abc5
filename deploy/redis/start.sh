#!/bin/sh
# Starts Redis with redis.conf and users.acl, both beside this file. A user can log in if the environment contains its
# password, such as REDIS_GATEWAY_PASSWORD for gateway; only the SHA-256 digest is written. The users are written to
# RUN_FOLDER, preferably in memory, and the data to DATA_FOLDER. Arguments are passed on to redis-server. Redis uses a
# copy of redis.conf in RUN_FOLDER, because at a failover, sentinels make it write its own settings, such as masterauth.
#
# Nobody can log in as the default user, but it needs all permissions: at a start, Redis replays the transactions in its
# append-only file as this user, and silently drops each command that this user may not run (redis/redis#14541).
set -euf
umask 077
folder=$(dirname "$0")
run=${RUN_FOLDER:-/run/redis}
users=$run/users.acl

: > "$users"
while read -r keyword name rules; do
  eval "password=\${REDIS_$(printf %s "$name" | tr a-z A-Z)_PASSWORD:-}"
  # printf is built into the shell, so no password becomes an argument of a process.
  if [ -n "$password" ]; then rules="$rules #$(printf %s "$password" | sha256sum | cut -d' ' -f1)"; fi
  printf '%s\n' "$keyword $name $rules" >> "$users"
done < "$folder/users.acl"

cat "$folder/redis.conf" > "$run/redis.conf"
exec redis-server "$run/redis.conf" --dir "${DATA_FOLDER:-/data}" --aclfile "$users" "$@"

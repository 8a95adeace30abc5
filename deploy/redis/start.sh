#!/bin/sh
# Starts Redis with redis.conf and the users of users.acl, both beside this file. A user whose password is in the
# environment, gateway's in REDIS_GATEWAY_PASSWORD and so on, gets its SHA-256 and can come in; the others cannot.
# RUN_FOLDER is where the users are written, in memory at best, DATA_FOLDER what outlives it. Arguments are passed on to
# redis-server.
set -euf
umask 077
folder=$(dirname "$0")
users=${RUN_FOLDER:-/run/redis}/users.acl

: > "$users"
while read -r keyword name rules; do
  eval "password=\${REDIS_$(printf %s "$name" | tr a-z A-Z)_PASSWORD:-}"
  # printf is the shell's own: no password becomes a process's argument.
  if [ -n "$password" ]; then rules="$rules #$(printf %s "$password" | sha256sum | cut -d' ' -f1)"; fi
  printf '%s\n' "$keyword $name $rules" >> "$users"
done < "$folder/users.acl"

exec redis-server "$folder/redis.conf" --dir "${DATA_FOLDER:-/data}" --aclfile "$users" "$@"

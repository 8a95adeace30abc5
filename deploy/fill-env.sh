#!/bin/sh
# Writes .env.example to standard output, with a fresh secret (192 bits in hexadecimal) after each name.
set -eu
while IFS= read -r line; do
  case $line in
    *=) printf '%s%s\n' "$line" "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" ;;
    *) printf '%s\n' "$line" ;;
  esac
done < "$(dirname "$0")/.env.example"

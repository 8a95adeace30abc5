#!/bin/sh
# Writes today's backup of all keys to a folder, and keeps only the newest backups there:
#   backup.sh <folder> <how many>           writes today's backup unless it exists
#   backup.sh <folder> <how many> daily     does so every hour
#   backup.sh <folder> <how many> restore   restores the newest backup; options of ctl restore may follow
# A backup without keys is not kept. After a loss of data, such backups would replace the good ones.
set -eu
umask 077
folder=$1
keep=$2
ctl() { node gateway/operators/cli/main.ts "$@"; }
newest_first() { ls "$folder" | grep '^keys-[0-9-]*\.jsonl$' | sort -r; }

case ${3:-} in
  daily)
    while :; do
      sh "$0" "$folder" "$keep" || echo 'The backup failed. It will be retried in an hour.' >&2
      sleep 3600
    done
    ;;
  restore)
    file=$(newest_first | head -n 1)
    echo "Restoring $file" >&2
    shift 3
    ctl restore "$@" < "$folder/$file"
    exit
    ;;
esac

mkdir -p "$folder"
today=$folder/keys-$(date -u +%Y-%m-%d).jsonl
if [ ! -e "$today" ]; then
  code=0
  ctl backup > "$folder/draft" || code=$?
  end=$(tail -n 1 "$folder/draft")
  case $end in
    '{"end":true,"keys":0}') rm "$folder/draft" ;;
    '{"end":true,'*)
      sync "$folder/draft"
      mv "$folder/draft" "$today"
      ;;
  esac
  # A backup that lacks some keys is kept too, but does not replace an older one.
  [ "$code" -eq 0 ] || exit "$code"
  newest_first | tail -n "+$((keep + 1))" | while read -r old; do rm "$folder/$old"; done
fi
# The health check reads the time of this file.
touch "$folder/looked"

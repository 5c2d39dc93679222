#!/bin/sh
# reports.sh clear|check FOLDER: empties the folder of sanitizer reports, or
# prints the reports in it and fails if there are any.
set -eu
case "$1" in
  clear) rm -rf "$2"; mkdir -p "$2" ;;
  check)
    [ -d "$2" ] || { echo "no folder $2: nothing could be reported" >&2; exit 1; }
    found=$(find "$2" -type f -size +0c | sort)
    [ -n "$found" ] || exit 0
    for report in $found; do echo "== $report"; cat "$report"; done
    exit 1 ;;
  *) echo "usage: reports.sh clear|check FOLDER" >&2; exit 2 ;;
esac

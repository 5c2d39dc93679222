#!/bin/sh
# Runs a command that must exit with 0 and print a line beginning with PASS.
output=$("$@")
status=$?
printf '%s\n' "$output"
[ "$status" -eq 0 ] || { echo "exit status $status" >&2; exit 1; }
printf '%s\n' "$output" | grep -q '^PASS ' || { echo "no PASS line" >&2; exit 1; }

#!/usr/bin/env bash
# The README's demo, narrated: a real HIP program, compiled here, run plain and
# then instrumented, on the software GPU. Usage: demo.sh BUILD_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
cd "$here/../.."
export PATH="$build/clients:$build/daemon:$PATH"
work=$(mktemp -d "${TMPDIR:-/tmp}/rjdbi-demo.XXXXXX")
daemon=
cleanup() {
  [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null; } || true
  rm -rf "$work"
}
trap cleanup EXIT

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; else bold='' dim='' off=''; fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$off"; }
say_command() { printf '%s$ %s%s\n' "$dim" "${*//$work\//}" "$off"; }
show() { say_command "$@"; "$@"; }

# The software GPU stands below ROCR; nothing else in the process is replaced.
export LD_LIBRARY_PATH="$build/softgpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export SOFTGPU_TARGET=gfx90a
export RJDBI_SOCKET="$work/agent.sock" RJDBI_CONTROL_SOCKET="$work/control.sock"

step "1. A HIP program, compiled for gfx90a. From here on nobody has its source."
show hipcc --offload-arch=gfx90a -O2 "tests/e2e/demo/dot_product.hip" -o "$work/dot_product"

step "2. Run it plain."
say_command "$work/dot_product"
"$work/dot_product" | tee "$work/plain.txt"

step "3. Start rjdbid on private sockets."
rjdbid --agent-socket "$RJDBI_SOCKET" --control-socket "$RJDBI_CONTROL_SOCKET" \
  --state-dir "$work/state" --config "tests/e2e/demo/rjdbid.yaml" 2>"$work/rjdbid.log" &
daemon=$!
for _ in $(seq 100); do
  rjctl status >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || { cat "$work/rjdbid.log" >&2; exit 1; }
  sleep 0.1
done
rjctl status >/dev/null

step "4. Attach two probes: wavefronts at LDS instructions, lanes at global stores."
show rjctl attach --kernel 'dot_product*' --sites 'ds_*' --probe count-waves
show rjctl attach --kernel 'dot_product*' --sites 'global_store*' --probe count-lanes

step "5. Run the same binary under rjctl run."
say_command rjctl run -- "$work/dot_product"
rjctl run -- "$work/dot_product" | tee "$work/instrumented.txt"

step "6. What the probes saw, and how much of what was asked for they cover."
show rjctl report

step "7. Did instrumentation change the answer?"
if cmp -s "$work/plain.txt" "$work/instrumented.txt"; then
  echo "No: both runs printed the same line, checksum included."
else
  echo "YES: the outputs differ"; diff "$work/plain.txt" "$work/instrumented.txt" || true; exit 1
fi

step "8. Ask for something that a budget forbids, and for something no site can give."
show rjctl detach --all
show rjctl attach --kernel 'dot_product*' --sites 'ds_write*' --probe count-lanes --max-injected-instructions 4
show rjctl attach --kernel 'dot_product*' --sites 's_endpgm' --position after --probe count-waves
show rjctl run -- "$work/dot_product"

step "9. Why is nothing attached?"
show rjctl why-not-attached 'dot_product*'

step "Done. Next: README.md, docs/contract.md, and rjctl --help."

#!/usr/bin/env bash
# The long tests, one after another, with a line for each: its name, how it ended, how long it took, and what
# it did. Logs of those that failed are kept. Usage: soak.sh CARGO [NAME...]; the environment has SEEDS, BRAID
# (a release binary) and FSX (the program).
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${1:-cargo}
shift
wanted=" $* "
logs=$(mktemp -d)
failed=0
ran=0

# run NAME SUMMARY COMMAND...: SUMMARY is a pattern of the line that says what was done.
run() {
    local name=$1 summary=$2 ended=ok begun=$SECONDS
    shift 2
    [[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
    ran=$((ran + 1))
    "$@" >"$logs/$name" 2>&1 && ! grep -q '^test result: ok. 0 passed' "$logs/$name" || { ended=FAILED; failed=1; }
    local did
    did=$(grep -E "$summary" "$logs/$name" | tail -1 | cut -c 1-100)
    printf '%-15s %-6s %6d s  %s\n' "$name" "$ended" $((SECONDS - begun)) "$did"
    if [ "$ended" = ok ]; then rm "$logs/$name"; else echo "  its log: $logs/$name"; fi
}

torture=("$cargo" run --locked --quiet -p braid-torture --)
run torture 'seeds in' "${torture[@]}" --seeds "$SEEDS" --all
run torture-mounts 'seeds in' "${torture[@]}" --mounts --seeds "$SEEDS" --all
run mutants '.' "$cargo" run --locked --quiet -p braid-torture --bin braid-mutants
run store-faults 'test result' env BRAID_STORE_EVERY=1 "$cargo" test --locked -p braid-store --test store enumerate
run store-model 'test result' env BRAID_STORE_MODEL_SECONDS=600 \
    "$cargo" test --release --locked -p braid-store --test store storm
run rounds 'test result' env BRAID_ROUNDS=1000 BRAID_ROUNDS_SEED="${SEED:-1}" \
    "$cargo" test --locked -p braid-cli --test e2e rounds::no_
run udp 'test result' tools/udp.sh "$cargo"
run kill-loop '.' tests/kill-loop.sh 200
run kill-managers '.' tests/kill-managers.sh 100
run mount-soak '.' tests/mount-soak.sh "$BRAID" 15
run mount-fsx '.' tests/mount-fsx.sh "$BRAID" "$FSX" 200000 "$RANDOM"
test "$ran" -gt 0 || { echo "soak.sh: no test has one of these names:$wanted" >&2; exit 2; }
exit "$failed"

#!/usr/bin/env bash
# All tests of the workspace, in two lanes side by side: tests with real processes wait most of the time, so
# they run beside those that compute. Usage: test-lanes.sh CARGO
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${1:-cargo}

# The waiting lane, by names of test targets. All others are in the computing lane.
waiting=(cluster e2e manager programs)

all=$(for path in {crates,tools}/*/tests/*.rs {crates,tools}/*/tests/*/main.rs; do
    test -e "$path" || continue
    name=${path%/main.rs}
    basename "$name" .rs
done | sort -u)
computing=$(comm -23 <(echo "$all") <(printf '%s\n' "${waiting[@]}" | sort))

"$cargo" test --workspace --locked --no-run || exit 1
log=$(mktemp)
export BRAID_NOT_RUN
BRAID_NOT_RUN=$(mktemp)
trap 'rm -f "$log" "$BRAID_NOT_RUN"' EXIT
"$cargo" test --workspace --locked --no-fail-fast ${waiting[*]/#/--test } -- --test-threads 3 >"$log" 2>&1 &
lane=$!
"$cargo" test --workspace --locked --no-fail-fast --lib --bins $(printf -- '--test %s ' $computing)
ended=$?
wait "$lane" || ended=1
cat "$log"
sort -u "$BRAID_NOT_RUN"
test "$ended" = 0 && "$cargo" test --workspace --locked --doc || ended=1
exit "$ended"

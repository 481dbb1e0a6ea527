#!/usr/bin/env bash
# Rounds of copy-and-compare in which one process, chosen at random, is killed with SIGKILL at a random
# moment: the manager, a drive, or the copy itself. It is started again while the copy goes on, its stale
# columns are rebuilt, and what was acknowledged is compared: a copy that exited 0 must be there whole; one
# that did not must have left the old file or the new one, whole. At the end everything is compared and every
# unit checked against its parity.
#
# usage: tests/kill-loop.sh [ROUNDS [SEED]]      exit 0 only if nothing acknowledged was lost
#   BRAID          the binary [target/release/braid]
#   KILL_LOOP_DIR  where to work [TMPDIR or /tmp]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-200}
seed=${2:-$((RANDOM * 32768 + RANDOM))}
braid=$(realpath "${BRAID:-${CARGO_TARGET_DIR:-target}/release/braid}")
[ -x "$braid" ] || { echo "no binary at $braid: run \`make build\` first" >&2; exit 2; }
echo "kill-loop: $rounds rounds, seed $seed"
RANDOM=$((seed % 32768))

work=$(mktemp -d "${KILL_LOOP_DIR:-${TMPDIR:-/tmp}}/braid-kill-loop.XXXXXX")
export BRAID_CLUSTER=$work/cluster
copy=
cleanup() {
  [ -z "$copy" ] || kill -9 "$copy" 2>/dev/null || true
  "$braid" down --dir "$BRAID_CLUSTER" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
lost() {
  echo "kill-loop: round $round, seed $seed: $*" >&2
  tail -n 8 "$BRAID_CLUSTER"/logs/*.log >&2 || true
  exit 1
}
up() { timeout 120 "$braid" up --detach --dir "$BRAID_CLUSTER" --drives 6 >/dev/null; }
pid_of() { sed -n 's/^pid = //p' "$BRAID_CLUSTER/pids/$1"; }
# The hash of a file's bytes in the cluster; "none" if there is no such file.
stored() {
  local code=0 hash
  hash=$(set -o pipefail; timeout 180 "$braid" cat "braid://main/$1" 2>"$work/err" | sha256sum) || code=$?
  case $code in
    0) echo "${hash%% *}" ;;
    3) echo none ;;
    *) echo "unreadable ($(cat "$work/err"))" ;;
  esac
}
milliseconds() { sleep "$(printf '0.%03d' "$1")"; }

round=0
up
sources=8
for ((i = 0; i < sources; i++)); do
  head -c $(((RANDOM * 32768 + RANDOM) % 60000000 + i)) /dev/urandom >"$work/source-$i"
  hash[i]=$(sha256sum <"$work/source-$i" | cut -d' ' -f1)
done
declare -A held=() killed=()
acknowledged=0 failed=0
for ((round = 1; round <= rounds; round++)); do
  name=file-$((RANDOM % 12))
  source=$((RANDOM % sources))
  before=${held[$name]:-none}
  case $((RANDOM % 4)) in
    0) victim=manager ;;
    1) victim=copy ;;
    *) victim=drive-$((RANDOM % 6 + 1)) ;;
  esac
  timeout 180 "$braid" cp -q "$work/source-$source" "braid://main/$name" 2>"$work/copy.err" &
  copy=$!
  milliseconds $((RANDOM % 120))
  if [ $victim = copy ]; then
    # The child of timeout, so that nobody passes a signal on.
    pkill -9 -P "$copy" 2>/dev/null || true
  else
    kill -9 "$(pid_of $victim)" || true
    milliseconds $((RANDOM % 300))
    # Sometimes a drive comes back at another address than the one that open files know.
    case $victim in drive-*) ((RANDOM % 4)) || rm -f "$BRAID_CLUSTER/pids/$victim" ;; esac
    up || lost "$victim does not come back"
  fi
  code=0
  { wait "$copy"; } 2>/dev/null || code=$?
  copy=
  killed[$victim]=$((${killed[$victim]:-0} + 1))
  now=$(stored "$name")
  if [ $code = 0 ]; then
    acknowledged=$((acknowledged + 1))
    [ "$now" = "${hash[source]}" ] || lost "$name was acknowledged and is not there: $now (killed: $victim)"
  else
    [ $victim = copy ] || [ $code = 5 ] || { failed=$((failed + 1)); echo "round $round: with $victim killed the copy failed: $(cat "$work/copy.err")"; }
    [ "$now" = "$before" ] || [ "$now" = "${hash[source]}" ] ||
      lost "$name is neither what it was nor what it was to be: $now (killed: $victim)"
  fi
  held[$name]=$now
  # What the drive missed while it was away is brought up to date, so that the next death finds full
  # redundancy.
  case $victim in
    drive-*) timeout 180 "$braid" rebuild "$victim" >"$work/rebuild.out" 2>&1 || lost "rebuild of $victim: $(cat "$work/rebuild.out")" ;;
  esac
  other=file-$((RANDOM % 12))
  now=$(stored $other)
  [ "$now" = "${held[$other]:-none}" ] || lost "$other was lost: $now (killed: $victim)"
  ((round % 20)) || echo "round $round: $acknowledged copies acknowledged, none lost"
done

for name in "${!held[@]}"; do
  now=$(stored "$name")
  [ "$now" = "${held[$name]}" ] || lost "$name was lost: $now"
done
timeout 300 "$braid" check --all braid://main >"$work/check.out" 2>&1 || lost "check: $(tail -n 3 "$work/check.out")"
echo "kill-loop: $acknowledged copies acknowledged, nothing lost; killed:$(for v in "${!killed[@]}"; do printf ' %s %s' "$v" "${killed[$v]}"; done)"
[ $failed = 0 ] || { echo "kill-loop: $failed copies failed although they could have gone on"; exit 1; }

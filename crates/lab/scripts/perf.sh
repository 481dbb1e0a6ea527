#!/usr/bin/env bash
# What small operations cost in two commits: `bench small` of one and of the other, in turn, and what
# moved by more than 3 %. Each commit is built in a work tree of its own, once.
#
# usage: crates/lab/scripts/perf.sh OLD [NEW]
#   OLD, NEW     commits [NEW: HEAD]
#   PERF_ROUNDS  how often each is run [3]
#   PERF_ONLY    only rows with this text in their name, as for --only [all rows]
#   PERF_DIR     where builds are kept [target/perf]
#
# Of each row: processor time of all processes for one operation, and operations a second, both as the middle
# of the rounds. Where the processor counts instructions (most virtual machines do not), a third table has
# those of a whole run, with all that the run sets up.
set -euo pipefail
cd "$(dirname "$0")/../../.."
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '5,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v jq >/dev/null || { echo "perf.sh needs jq: apt-get install jq" >&2; exit 2; }
rounds=${PERF_ROUNDS:-3}
commit_of() {
  git rev-parse --verify --quiet "$1^{commit}" || { echo "perf.sh: $1 is no commit" >&2; exit 2; }
}
old=$(commit_of "$1")
new=$(commit_of "${2:-HEAD}")
kept=$(realpath -m "${PERF_DIR:-target/perf}")
mkdir -p "$kept"

work=$(mktemp -d)
cleanup() {
  for commit in "$old" "$new"; do git worktree remove --force "$work/$commit" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

for commit in "$old" "$new"; do
  [ -x "$kept/$commit" ] && continue
  echo "building $commit" >&2
  git worktree add --detach --quiet "$work/$commit" "$commit"
  # Before there was a crate of experiments, `braid` had them.
  package=braid-cli binary=braid
  [ ! -d "$work/$commit/crates/lab" ] || package=braid-lab binary=braid-lab
  CARGO_TARGET_DIR="$kept/build" \
    cargo build --quiet --release --locked -p $package --manifest-path "$work/$commit/Cargo.toml"
  cp "$kept/build/release/$binary" "$kept/$commit"
done

# So that the rest of the run's set-up is not counted by mistake: whether instructions can be counted at all.
counts=no
if command -v perf >/dev/null && perf stat -x, -e instructions true 2>&1 | grep -q '^[0-9]'; then counts=yes; fi
run() {
  local to=$1 binary=$2
  local small=("$binary" bench small --json)
  [ -z "${PERF_ONLY:-}" ] || small+=(--only "$PERF_ONLY")
  if [ $counts = yes ]; then
    perf stat -x, -e instructions -o "$to.instructions" "${small[@]}" >"$to.json"
  else
    "${small[@]}" >"$to.json"
  fi
}
for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  run "$work/old.$round" "$kept/$old"
  run "$work/new.$round" "$kept/$new"
done

# FIGURE of each row, old and new, where it moved.
moved() {
  jq -rs --slurpfile new <(cat "$work"/new.*.json) --arg name "$1" --arg unit "$2" '
    def middle: sort | .[((length - 1) / 2 | floor)];
    def table($runs): [$runs[].rows[]] | group_by(.name)
      | map({key: .[0].name, value: (map('"$3"') | map(select(. != null)) | middle)}) | from_entries;
    . as $old | table($old) as $a | table($new) as $b
    | [$a | to_entries[] | select(.value != null and .value > 0 and $b[.key] != null)
       | {name: .key, old: .value, new: $b[.key], by: (($b[.key] / .value - 1) * 100)}
       | select(.by > 3 or .by < -3)]
    | if length == 0 then "\($name): nothing moved by more than 3 %"
      else "\($name), \($unit):", (.[] | "  \(.name): \(.old | round) -> \(.new | round) (\(.by * 10 | round / 10) %)")
      end' "$work"/old.*.json
}
moved "processor time for one operation" us .cpu_total_us
moved "rate" "operations a second" .per_second.median
if [ $counts = yes ]; then
  of() { cut -d, -f1 "$work/$1".*.instructions | grep '^[0-9]' | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
  awk -v old="$(of old)" -v new="$(of new)" 'BEGIN {
    printf "instructions of a whole run: %.4g -> %.4g (%.1f %%)\n", old, new, (new / old - 1) * 100 }'
else
  echo "instructions: this processor does not count them"
fi

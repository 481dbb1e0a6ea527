#!/usr/bin/env bash
# What reads cost when drives send them by sendfile, and by copies. Two clusters of six drives each run on
# this machine, each told one of the two ways. A file is read from them in turn, and the drives' processor
# time and the time of the whole read are taken. For each unit it prints the median of the rounds' ratios
# (sendfile over copy): below 1, sendfile takes less. The time of the whole read is not what other machines
# would see; the drives' processor time is about that.
#
# usage: crates/lab/scripts/send-ways.sh [ROUNDS [BRAID_BINARY]]
#   SEND_WAYS_DIR   where to work; needs 5 GB [/dev/shm]
set -euo pipefail
cd "$(dirname "$0")/../../.."
rounds=${1:-9}
braid=$(realpath "${2:-${CARGO_TARGET_DIR:-target}/release/braid}")
[ -x "$braid" ] || { echo "no binary at $braid: run \`make build\` first" >&2; exit 2; }
units="64K 256K 512K 1M"

work=$(mktemp -d "${SEND_WAYS_DIR:-/dev/shm}/braid-send-ways.XXXXXX")
cleanup() {
  for way in sendfile copy; do "$braid" down --dir "$work/$way" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

for way in sendfile copy; do
  timeout 60 "$braid" up --detach --drives 6 --dir "$work/$way" --send "$way" >/dev/null
done
head -c 300000000 /dev/urandom >"$work/file"
for unit in $units; do
  for way in sendfile copy; do
    BRAID_CLUSTER="$work/$way" timeout 60 "$braid" volume create "u$unit" --scheme raid5 --unit "$unit" >/dev/null
    BRAID_CLUSTER="$work/$way" timeout 120 "$braid" cp "$work/file" "braid://u$unit/file" >/dev/null 2>&1
  done
done

# Ticks of processor time that the drives of a cluster have had.
drives_ticks() {
  local ticks=0 pid stat
  for pid in $(sed -n 's/^pid = //p' "$work/$1"/pids/drive*); do
    stat=$(<"/proc/$pid/stat")
    read -r -a stat <<<"${stat##*) }"
    ticks=$((ticks + stat[11] + stat[12]))
  done
  echo "$ticks"
}
# Reads the file WAY UNIT several times, because a few ticks say little. Prints the drives' ticks and the
# milliseconds.
sample() {
  local ticks from
  ticks=$(drives_ticks "$1")
  from=$(date +%s%3N)
  for _ in 1 2 3; do
    BRAID_CLUSTER="$work/$1" timeout 60 "$braid" cp "braid://u$2/file" /dev/null >/dev/null 2>&1
  done
  echo "$(($(drives_ticks "$1") - ticks)) $(($(date +%s%3N) - from))"
}
middle() { sort -n | sed -n "$(((rounds + 1) / 2))p"; }

echo "unit    drives' processor time    whole read      (sendfile over copy, middle of $rounds rounds)"
for unit in $units; do
  : >"$work/ticks"; : >"$work/time"
  for ((round = 0; round < rounds; round++)); do
    # Who goes first changes: what one leaves behind must not be the other's.
    if ((round % 2)); then order="copy sendfile"; else order="sendfile copy"; fi
    declare -A ticks=() time=()
    for way in $order; do read -r "ticks[$way]" "time[$way]" < <(sample "$way" "$unit"); done
    awk "BEGIN { printf \"%.2f\n\", ${ticks[sendfile]} / ${ticks[copy]} }" >>"$work/ticks"
    awk "BEGIN { printf \"%.2f\n\", ${time[sendfile]} / ${time[copy]} }" >>"$work/time"
  done
  printf '%-7s %-25s %s\n' "$unit" "$(middle <"$work/ticks")" "$(middle <"$work/time")"
done
for way in sendfile copy; do
  echo "the drives told --send $way say: $(BRAID_CLUSTER="$work/$way" "$braid" status | grep -o 'reads .* copy' | sort -u | tr '\n' ';')"
done

#!/usr/bin/env bash
# A mixed load on a mount for MINUTES, by several processes: files made, written, synced, renamed, read back,
# removed; a large file; a log that several append to; mappings; trees copied, searched and removed. What is
# read is compared with what was written. The memory of the mount, the manager and the drives is sampled
# every ten seconds; mount-soak.py prints the samples and says when memory counts as growing.
# Wants root, FUSE, and up to 14 GB below PLACE (default /dev/shm): the dead is cleaned when there is time.
#
# usage: tests/mount-soak.sh BRAID [MINUTES [SEED]]
# exit 0 only if no byte was wrong and memory stayed flat
set -euo pipefail
braid=${1:?the braid binary} minutes=${2:-15} seed=${3:-$((RANDOM * 32768 + RANDOM))}
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/on-a-mount.sh
. "$here/on-a-mount.sh"
load=""
# shellcheck disable=SC2317 # what was sourced calls it
also_ended() { [ -z "$load" ] || kill "$load" 2>/dev/null || true; }
begin soak
mounted mount
processes=("mount=${mount_pids[mount]}" "manager=$(pid_of manager)")
for drive in 1 2 3 4 5 6; do processes+=("drive-$drive=$(pid_of "drive-$drive")"); done
echo "soak: $minutes minutes, seed $seed"
python3 "$here/mount-soak.py" "$place/mount" "$((minutes * 60))" "$seed" "${processes[@]}" &
load=$!
code=0
wait "$load" || code=$?
load=""
du -sh "$BRAID_CLUSTER" | sed 's/\t.*/ in the cluster at the end/'
"$braid" df || true
unmounted mount
timeout 300 "$braid" check --all braid://main >"$place/check.said" 2>&1 || { tail -n 5 "$place/check.said"; code=1; }
exit "$code"

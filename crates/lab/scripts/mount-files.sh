#!/usr/bin/env bash
# Large files and single small operations through a mount. Cluster, mount and programs are on this machine.
#   files    MIB MiB written with fsync, and read, natively (`braid cp`, `braid cat`) and through the mount
#            (dd), in turn, ROUNDS rounds (default 5). Before each read of the mount it is mounted anew, so
#            that neither the kernel nor the mount has any of the bytes. Medians, and their ratio.
#   latency  medians of single operations by mount-latency.py, beside those on a local tmpfs
# Wants root, FUSE, and five times MIB below PLACE (default /dev/shm).
#
# usage: crates/lab/scripts/mount-files.sh BRAID [MIB]
set -euo pipefail
braid=${1:?the braid binary} mib=${2:-1024} rounds=${ROUNDS:-5}
here=$(realpath "$(dirname "$0")")
# shellcheck source=tests/on-a-mount.sh
. "$here/../../../tests/on-a-mount.sh"
begin files
command -v bc >/dev/null || missing "no bc" "apt-get install bc"
mounted mount
at=$place/mount
head -c "${mib}M" /dev/urandom >"$place/source"

declare -A rates=()
# Runs a command, and notes MiB/s under a name.
rate() {
    local name=$1 from to rate; shift
    from=$(date +%s.%N)
    timeout 600 "$@" >/dev/null 2>"$place/said" || { cat "$place/said" >&2; exit 1; }
    to=$(date +%s.%N)
    rate=$(echo "$mib / ($to - $from)" | bc)
    rates[$name]+="$rate "
}
to_null() { "$braid" cat "$1" >/dev/null; }
export -f to_null; export braid
# The numbers in order, one a line.
ordered() { printf '%s\n' "$@" | sort -n; }
median() { ordered "$@" | sed -n "$((($# + 1) / 2))p"; }
range() { echo "$(ordered "$@" | head -n 1) to $(ordered "$@" | tail -n 1)"; }
same() { cmp -s "$place/source" "$1" || { echo "other bytes come back: $1" >&2; exit 1; }; }

for ((round = 1; round <= rounds; round++)); do
    rate native-write "$braid" cp -q "$place/source" braid://main/native
    rate mount-write dd if="$place/source" of="$at/mount" bs=1M conv=fsync
    rate native-null bash -c 'to_null braid://main/native'
    mounted_anew mount
    rate mount-null dd if="$at/mount" of=/dev/null bs=1M
    rate native-tmpfs "$braid" cp -q braid://main/native "$place/out"
    [ "$round" != 1 ] || same "$place/out"
    rm "$place/out"
    mounted_anew mount
    rate mount-tmpfs dd if="$at/mount" of="$place/out" bs=1M
    [ "$round" != 1 ] || same "$place/out"
    rm "$place/out" "$at/mount" "$at/native"
done
rm "$place/source"
row() {
    local what=$1 native mount goal=$4
    read -ra native <<<"${rates[$2]}"
    read -ra mount <<<"${rates[$3]}"
    printf '%-22s %8s %16s %8s %16s %7.2f  %s\n' "$what" \
        "$(median "${native[@]}")" "($(range "${native[@]}"))" "$(median "${mount[@]}")" "($(range "${mount[@]}"))" \
        "$(echo "$(median "${mount[@]}") / $(median "${native[@]}")" | bc -l)" "$goal"
}
printf '%-22s %8s %16s %8s %16s %7s  goal\n' "$mib MiB, MiB/s" native '' mount '' ratio
row 'write and fsync' native-write mount-write 0.7
row 'read to tmpfs' native-tmpfs mount-tmpfs 0.8
row 'read to /dev/null' native-null mount-null 0.8

echo
mkdir "$place/local" "$at/latency"
python3 "$here/mount-latency.py" prepare "$at/latency" >/dev/null
mounted_anew mount
python3 "$here/mount-latency.py" measure "$at/latency" >"$place/mount.us"
python3 "$here/mount-latency.py" prepare "$place/local" >/dev/null
python3 "$here/mount-latency.py" measure "$place/local" >"$place/local.us"
printf '%-40s %8s %8s %8s\n' 'us, by a Python program' local mount '99th'
paste -d '\t' "$place/local.us" "$place/mount.us" |
    awk -F '\t' '{ printf "%-40s %8.1f %8.1f %8.1f%s\n", $1, $2, $5, $6, $1 ~ /^open, read 4/ ? "  goal: mount at most 30" : "" }'

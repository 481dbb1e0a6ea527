#!/usr/bin/env bash
# IOR easy and hard through the C library and through a mount, each rank's data compared; prints the table of
# docs/results/ior.md. As root. Usage: measure.sh BRAID IOR [RANKS [ROUNDS]];
# BLOCK=32m is what a rank writes of the easy ones, SEGMENTS=200 the pieces of the hard one.
set -euo pipefail
braid=$1
ior=$2
ranks=${3:-4}
rounds=${4:-3}
block=${BLOCK:-32m}
segments=${SEGMENTS:-200}
work=$(mktemp -d)
mount=$work/mount
export BRAID_CLUSTER=$work/cluster
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
ended() {
    umount "$mount" 2>/dev/null || true
    "$braid" down --dir "$BRAID_CLUSTER" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap ended EXIT
"$braid" up --detach --dir "$BRAID_CLUSTER" >"$work/up" 2>&1 || { cat "$work/up"; exit 1; }
mkdir "$mount"
"$braid" mount --detach braid://main "$mount"

# One run: prints MiB/s of writing and of reading, and fails if a byte differs. IOR counts such bytes.
one() {
    mpirun -n "$ranks" "$ior" "$@" -e -C -w -r -W -R >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
    if grep -qi 'incorrect data' "$work/said"; then
        cat "$work/said" >&2
        exit 1
    fi
    awk '/^write /{w=$2} /^read /{r=$2} END{print w, r}' "$work/said"
}

median() { sort -n | awk '{v[NR]=$1} END{printf "%.1f", v[int((NR+1)/2)]}'; }

# A row: its name, the file's name in the volume, and what IOR is told.
row() {
    local name=$1 file=$2
    shift 2
    local posix=()
    for word in "$@"; do
        case $word in --braid.*) ;; *) posix+=("$word") ;; esac
    done
    for round in $(seq "$rounds"); do
        one -a BRAID -o "braid://main/$file-$round" "$@" >>"$work/$file.braid"
        one -a POSIX -o "$mount/$file-$round" "${posix[@]}" >>"$work/$file.mount"
    done
    printf '| %s |' "$name"
    for way in braid mount; do
        for column in 1 2; do
            printf ' %s |' "$(cut -d' ' -f$column "$work/$file.$way" | median)"
        done
    done
    echo
}

echo "| run | library: write | read | mount: write | read |"
echo "|---|---|---|---|---|"
row "easy: a file for each rank, 1 MiB" easy -F -t 1m -b "$block"
row "easy: one file, a block for each rank, 1 MiB" block -t 1m -b "$block" --braid.ranges
row "hard: one file, 47008 bytes in turn" hard -t 47008 -b 47008 -s "$segments"

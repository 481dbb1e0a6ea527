#!/usr/bin/env bash
# What programs take on a tree of many small files: in a local directory, and on a mount of a cluster whose
# drives are beside it. FILES files of 0 to 8 KiB in directories of a hundred. Each line: seconds locally, on
# the mount, and their ratio. Wants root, FUSE and git; everything is below PLACE (default /dev/shm).
set -euo pipefail
braid=${1:?the braid binary} files=${2:-20000} place=$(mktemp -d -p "${PLACE:-/dev/shm}")
export BRAID_CLUSTER=$place/cluster
ended() {
    umount "$place/mount" 2>/dev/null || true
    "$braid" down --dir "$BRAID_CLUSTER" >/dev/null 2>&1 || true
    rm -rf "$place"
}
trap ended EXIT
mkdir "$place/mount" "$place/local" "$place/source"
python3 - "$place/source" "$files" <<'MADE'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
random.seed(1)
for n in range(files):
    directory = f"{root}/tree/{n // 100:04}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/{n}", "wb") as file:
        file.write(random.randbytes(random.randrange(8192)))
MADE
tar -C "$place/source" -cf "$place/tree.tar" tree
"$braid" up --detach --dir "$BRAID_CLUSTER" >/dev/null
"$braid" mount --detach braid://main "$place/mount" >/dev/null
seconds() { local from to; from=$(date +%s.%N); "$@" >/dev/null 2>&1; to=$(date +%s.%N); echo "$to - $from" | bc; }
both() {
    local what=$1 here there; shift
    cd "$place/local"; here=$(seconds "$@")
    cd "$place/mount"; there=$(seconds "$@")
    printf '%-34s %8.2f %8.2f %8.1f\n' "$what" "$here" "$there" "$(echo "$there / ($here + 0.0001)" | bc -l)"
    cd "$place"
}
printf '%-34s %8s %8s %8s\n' "$files files" local mount ratio
both 'tar x' tar xf "$place/tree.tar"
both 'cp -r' cp -r tree copy
both 'find, first' find tree -size +1k
both 'find, second' find tree -size +1k
both 'grep -r' grep -r nothing-like-this tree
both 'git init, add, commit' sh -c 'git -C tree init -q && git -C tree add . && git -C tree -c user.name=a -c user.email=b commit -qm c'
both 'git clone' git clone -q tree clone
both 'git status' git -C clone status
both 'rm -r' rm -r copy clone

# shellcheck shell=bash
# For the scripts beside it, and those of crates/lab/scripts: a cluster of six drives
# (raid5, 4+1) in a directory of its own, mounts of it, and their end, however the script ends. A script sets
# `braid`, the binary, calls `begin`, and may then use `place`, its directory. Every wait has a bound.

# A directory below PLACE (default /dev/shm), and a cluster there.
begin() {
    braid=$(realpath "$braid")
    [ -x "$braid" ] || missing "no binary at $braid" "make build"
    [ -e /dev/fuse ] || missing "there is no /dev/fuse here" "modprobe fuse"
    place=$(mktemp -d -p "${PLACE:-/dev/shm}" "braid-$1.XXXXXX")
    export BRAID_CLUSTER=$place/cluster
    trap ended EXIT
    trap 'exit 130' INT TERM
    up
}
missing() { echo "$(basename "$0"): $1; this brings it: $2" >&2; exit 2; }
# Starts what does not run, of the cluster.
up() { timeout 120 "$braid" up --detach --dir "$BRAID_CLUSTER" --drives 6 >/dev/null; }
# The process of a drive, or of the manager.
pid_of() { sed -n 's/^pid = //p' "$BRAID_CLUSTER/pids/$1"; }

declare -A mount_pids=()
# Mounts a volume on a directory below `place`, by a process whose id is then in mount_pids.
mounted() {
    local name=$1 volume=${2:-main} pid
    mkdir -p "$place/$name"
    "$braid" mount --log "$place/$name.log" "braid://$volume" "$place/$name" >"$place/$name.said" 2>&1 </dev/null &
    pid=$!
    for ((waited = 0; waited < 300; waited++)); do
        mountpoint -q "$place/$name" && { mount_pids[$name]=$pid; return; }
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    echo "it was not mounted: $(cat "$place/$name.said")" >&2
    return 1
}
# Unmounts it, in at most a minute. Fails if the mount says that something was lost.
unmounted() {
    local name=$1 pid=${mount_pids[$1]} code=0
    unset "mount_pids[$name]"
    kill -INT "$pid" 2>/dev/null || true
    if ! timeout 60 tail --pid="$pid" -f /dev/null; then
        kill -9 "$pid" 2>/dev/null || true
        umount -l "$place/$name" 2>/dev/null || true
        code=1
    fi
    wait "$pid" || code=$?
    [ "$code" = 0 ] || { echo "the mount ended with $code: $(cat "$place/$name.said" "$place/$name.log")" >&2; return 1; }
}
# Anew, so that the mount and the kernel know nothing of it.
mounted_anew() { unmounted "$1"; mounted "$1" "${2:-main}"; }

# What a script must end besides, set by it.
also_ended() { :; }
ended() {
    local name
    cd /
    also_ended
    for name in "${!mount_pids[@]}"; do unmounted "$name" 2>/dev/null || true; done
    timeout 120 "$braid" down --dir "$BRAID_CLUSTER" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$place"
}

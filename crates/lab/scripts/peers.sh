# shellcheck shell=bash
# For the scripts beside it: what people would mount instead, on this machine, with redundancy like Braid's.
# Each `..._begin DIR` makes it below `place`, and mounts it at DIR; `peers_ended` ends all of them. A script
# calls it when it ends, and sets `place` before.
#   glusterfs  five bricks, disperse 4+1, its own FUSE client
#   seaweedfs  two volume servers, two copies of all (it writes with no parity), `weed mount`
# Both with their defaults otherwise: neither syncs what it stores to a disk when a file is closed.

peer_pids=()
peer_mounts=()
gluster_pid=""
: "${place:=}"
glusterfs_missing() { command -v glusterd gluster glusterfs >/dev/null || echo 'apt-get install glusterfs-server'; }
seaweedfs_missing() { command -v weed >/dev/null || echo 'make mount-peers, with Go on the PATH'; }
# Waits for a command to succeed, a minute at most.
succeeds() {
    local waited
    for ((waited = 0; waited < 300; waited++)); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    echo "it does not come: $*" >&2
    return 1
}
gluster_says() { timeout 60 gluster --mode=script --glusterd-sock="$place/glusterfs/socket" "$@"; }
# Bricks ask for their volume at port 24007, whatever glusterd is told.
glusterfs_begin() {
    local at=$1 to=$place/glusterfs bricks=() n
    mkdir -p "$at" "$to"/{state,run}
    cat >"$to/glusterd.vol" <<VOLUME
volume management
    type mgmt/glusterd
    option working-directory $to/state
    option run-directory $to/run
    option glusterd-sockfile $to/socket
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.socket.bind-address 127.0.0.1
end-volume
VOLUME
    glusterd --no-daemon --volfile="$to/glusterd.vol" --log-file="$to/glusterd.log" >/dev/null 2>&1 &
    gluster_pid=$!
    succeeds gluster_says volume info || return 1
    # It refuses addresses of the loopback, but not a name for one.
    for n in 1 2 3 4 5; do bricks+=("$(hostname):$to/brick-$n"); done
    gluster_says volume create peer disperse 5 redundancy 1 transport tcp "${bricks[@]}" force >/dev/null &&
        gluster_says volume start peer >/dev/null || return 1
    glusterfs --no-daemon --volfile-server=127.0.0.1 --volfile-id=peer --log-file="$to/client.log" "$at" >/dev/null 2>&1 &
    peer_pids+=("$!")
    peer_mounts+=("$at")
    succeeds mountpoint -q "$at" && succeeds touch "$at/.begun"
}
seaweedfs_begin() {
    local at=$1 to=$place/seaweedfs n
    mkdir -p "$at" "$to"/{master,filer,volume-1,volume-2,logs,cache}
    weed -logdir="$to/logs" master -ip=127.0.0.1 -port=19333 -mdir="$to/master" -defaultReplication=001 \
        -volumeSizeLimitMB=512 >"$to/logs/master" 2>&1 &
    peer_pids+=("$!")
    for n in 1 2; do
        weed -logdir="$to/logs" volume -ip=127.0.0.1 -port="1808$n" -dir="$to/volume-$n" -max=20 \
            -master=127.0.0.1:19333 >"$to/logs/volume-$n" 2>&1 &
        peer_pids+=("$!")
    done
    weed -logdir="$to/logs" filer -ip=127.0.0.1 -port=18888 -master=127.0.0.1:19333 \
        -defaultReplicaPlacement=001 -defaultStoreDir="$to/filer" >"$to/logs/filer" 2>&1 &
    peer_pids+=("$!")
    succeeds bash -c 'exec 3<>/dev/tcp/127.0.0.1/18888' || return 1
    weed -logdir="$to/logs" mount -filer=127.0.0.1:18888 -dir="$at" -replication=001 -cacheDir="$to/cache" \
        >"$to/logs/mount" 2>&1 &
    peer_pids+=("$!")
    peer_mounts+=("$at")
    # It takes files when both servers have told the master of themselves.
    succeeds mountpoint -q "$at" && succeeds cp /etc/hostname "$at/.begun"
}
peers_ended() {
    local at pid
    for at in "${peer_mounts[@]}"; do timeout 30 umount "$at" 2>/dev/null || umount -l "$at" 2>/dev/null || true; done
    if [ -n "$gluster_pid" ]; then
        gluster_says volume stop peer force >/dev/null 2>&1 || true
        peer_pids+=("$gluster_pid")
    fi
    for pid in "${peer_pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    # What they store is removed anyway.
    for pid in "${peer_pids[@]}"; do
        timeout 5 tail --pid="$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
    done
    peer_pids=() peer_mounts=() gluster_pid=""
}

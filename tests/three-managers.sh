#!/usr/bin/env bash
# "Three managers" of docs/operations.md, in four network namespaces on this machine (root; iproute2,
# etcd-server, etcd-client). Hosts a, b, c, d have 10.78.0.1-4 on one bridge; a begins, b and c join, each
# host runs a drive. Host a dies, manager and all: files are read and written. d takes its place. Then all
# managers' hosts die, and a snapshot begins the cluster anew on a; all files compare.
#
# usage: tests/three-managers.sh [BRAID_BINARY]      exit 0 only if every comparison held
set -euo pipefail
cd "$(dirname "$0")/.."
braid=$(realpath "${1:-target/release/braid}")
[ -x "$braid" ] || { echo "no binary at $braid: run \`make build\` first" >&2; exit 2; }
for program in ip etcd etcdctl; do
  command -v "$program" >/dev/null || { echo "no $program: apt install iproute2 etcd-server etcd-client" >&2; exit 2; }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-three-managers.XXXXXX")
declare -A pid=()
tag=$$
net() { echo "bm$tag-$1"; }
end() { # NAME: SIGKILL, and no word from the shell about it
  kill -9 "${pid[$1]}" 2>/dev/null || true
  wait "${pid[$1]}" 2>/dev/null || true
  unset "pid[$1]"
}
cleanup() {
  for name in "${!pid[@]}"; do end "$name"; done
  for h in a b c d sw; do ip netns del "$(net $h)" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT

ip netns add "$(net sw)"
ip -n "$(net sw)" link add br0 type bridge
ip -n "$(net sw)" link set br0 up
declare -A ip_of=([a]=10.78.0.1 [b]=10.78.0.2 [c]=10.78.0.3 [d]=10.78.0.4)
for h in a b c d; do
  ip netns add "$(net $h)"
  ip -n "$(net sw)" link add "to-$h" type veth peer name eth0 netns "$(net $h)"
  ip -n "$(net sw)" link set "to-$h" master br0 up
  ip -n "$(net $h)" addr add "${ip_of[$h]}/24" dev eth0
  ip -n "$(net $h)" link set eth0 up
  ip -n "$(net $h)" link set lo up
done
on() { local h=$1; shift; ip netns exec "$(net "$h")" "$@"; }
wait_for() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "gave up waiting for $what" >&2; tail -n 5 "$work"/*.log >&2; exit 1; }
    sleep 0.2
  done
}
manager() { # HOST WORDS...: serves a manager in the background
  local h=$1; shift
  ip netns exec "$(net "$h")" "$braid" "$@" --dir "$work/$h" >"$work/$h.out" 2>>"$work/$h.log" &
  pid[$h]=$!
  wait_for 120 "the manager on $h" test -s "$work/$h/cluster.toml"
}
members() { [ "$(on "$1" "$braid" --cluster "$work/$1/cluster.toml" cluster ls --json | grep -c '"healthy": true')" = "$2" ]; }
by() { local h=$1; shift; on "$h" "$braid" --cluster "$work/$h/cluster.toml" "$@"; }

echo "== a begins; b and c join with what it printed; a drive on each of b, c, d"
manager a cluster init --hosts 10.78.0.1,10.78.0.2,10.78.0.3
wait_for 30 "the commands for b and c" grep -q "to start this one again" "$work/a.out"
for h in b c; do
  grep -A1 "on ${ip_of[$h]}:" "$work/a.out" | grep -o 'braid1\.[^ ]*' >"$work/$h.token"
  manager $h cluster join --token-file "$work/$h.token" --manager 10.78.0.1:7400 --listen "${ip_of[$h]}:7400"
done
wait_for 60 "three members" members a 3
for h in b c d; do
  ip netns exec "$(net $h)" "$braid" drive serve --dir "$work/drive-$h" --name "$h" --host "$h" --no-calibration \
    --listen "${ip_of[$h]}:7401" --manager 10.78.0.1:7400 --token-file "$work/a/join.token" >"$work/drive-$h.log" 2>&1 &
  pid[drive-$h]=$!
done
three_up() { [ "$(by "$1" drive ls --json | grep -o '"state": *"up"' | wc -l)" -ge 3 ]; }
wait_for 30 "three drives" three_up a
by a volume create media --scheme raid5 --width 3
head -c 20000000 /dev/urandom >"$work/one"
by a cp "$work/one" braid://media/one
by a cluster ls

echo "== host a dies: the others go on"
end a
by b cp braid://media/one - | cmp - "$work/one"
by c cp "$work/one" braid://media/two

echo "== d takes its place"
by b manager replace 10.78.0.1 | grep -o 'braid1\.[^ ]*' >"$work/d.token"
manager d cluster join --token-file "$work/d.token" --manager 10.78.0.2:7400 --listen 10.78.0.4:7400
wait_for 60 "three members" members d 3
by d cp braid://media/two - | cmp - "$work/one"

echo "== all managers die; a begins anew from a snapshot"
snapshots() { ls "$work"/[bcd]/etcd-snapshots/*.snapshot; }
wait_for 60 "a snapshot" snapshots
for h in b c d; do end $h; done
rm -rf "$work/a"
manager a cluster restore "$(snapshots | tail -n 1)" --listen 10.78.0.1:7400
readable() { by a cp braid://media/one - | cmp - "$work/one"; }
wait_for 120 "the restored state" readable
echo "three managers: every comparison held"
